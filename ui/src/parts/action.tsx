// A button that makes one call of the API, with the same call as a curl line beside it.
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { ask, curl, mayAct, type Call } from "../api";
import { confirm, show } from "./dialog";
import { say, sayError } from "./says";

export interface CurlProps {
  readonly call: Call | readonly Call[];
  readonly label: string;
  /** What the button does and the line does not. */
  readonly note?: string;
  readonly disabled?: boolean;
}

export function Curl({ call, label, note, disabled = false }: CurlProps) {
  const open = (): void => {
    const line = (Array.isArray(call) ? (call as readonly Call[]) : [call as Call]).map(curl).join("\n");
    const copy = (): void => {
      navigator.clipboard?.writeText(line).then(() => say("Copied."), sayError);
    };
    show(`${label} with curl`, (
      <>
        <pre class="curl" tabIndex={0} role="region" aria-label="curl line">{line}</pre>
        {note ? <p>{note}</p> : null}
        {"clipboard" in navigator ? <button type="button" onClick={copy}>Copy</button> : null}
      </>
    ));
  };
  return <button type="button" class="curl-button" disabled={disabled} onClick={open} title={`${label}: the call as a curl line`} aria-label={`curl: ${label}`}>curl</button>;
}

export interface ActionProps {
  readonly label: string;
  readonly call: Call;
  /** Asked once before: what will happen. */
  readonly confirm?: ComponentChildren;
  /** The word on the button that does it then: the deed. */
  readonly verb?: string;
  readonly danger?: boolean;
  /** A sentence that is said when it is done. */
  readonly said: string;
  readonly done?: (answer: unknown) => void;
  readonly disabled?: boolean;
  /** Who may do it; else it is not shown. */
  readonly may?: () => boolean;
}

export function Action({ label, call, confirm: question, verb = label, danger = false, said, done, disabled = false, may = mayAct }: ActionProps) {
  const [busy, setBusy] = useState(false);
  if (!may()) return null;
  const act = async (): Promise<void> => {
    if (question && !(await confirm(verb, question, verb, danger))) return;
    setBusy(true);
    try {
      const answer = await ask<unknown>(call);
      say(said);
      done?.(answer);
    } catch (error) {
      sayError(error);
    }
    setBusy(false);
  };
  return (
    <span class="action">
      <button type="button" class={danger ? "danger" : undefined} disabled={busy || disabled} onClick={() => void act()}>{label}</button>
      <Curl call={call} label={label} disabled={disabled} />
    </span>
  );
}
