// A place where nothing is yet: what it is, one sentence, and one command to begin.
import { Icon, type IconName } from "./icon";
import { Copy } from "./menu";

export interface EmptyProps {
  readonly icon: IconName;
  readonly title: string;
  readonly text: string;
  readonly command?: string;
}

export function Empty({ icon, title, text, command }: EmptyProps) {
  return (
    <>
      <Icon name={icon} />
      <b class="blank">{title}</b>
      <span>{text}</span>
      {command ? <span class="command"><code>{command}</code><Copy text={command} label="Copy the command" /></span> : null}
    </>
  );
}
