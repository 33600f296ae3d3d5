// A button that makes one call of the API, with the same call as a curl line beside it.
import { useState } from "preact/hooks";
import { request, curl, mayAct, unreachable, type Call } from "../api";
import { show } from "./dialog";
import { showToast, showError } from "./toasts";

export interface CurlProps {
  readonly call: Call | readonly Call[];
  readonly label: string;
  /** The part of the button's work that the line does not do. */
  readonly note?: string;
  readonly disabled?: boolean;
}

export function Curl({ call, label, note, disabled = false }: CurlProps) {
  const open = (): void => {
    const line = (Array.isArray(call) ? (call as readonly Call[]) : [call as Call]).map(curl).join("\n");
    const copy = (): void => {
      navigator.clipboard?.writeText(line).then(() => showToast("Copied."), showError);
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
  /** A sentence that is shown after success. */
  readonly toast: string;
  readonly done: () => void;
  readonly disabled: boolean;
}

export function Action({ label, call, toast, done, disabled }: ActionProps) {
  const [busy, setBusy] = useState(false);
  if (!mayAct()) return null;
  const act = async (): Promise<void> => {
    setBusy(true);
    try {
      await request<unknown>(call);
      showToast(toast);
      done();
    } catch (error) {
      showError(error);
    }
    setBusy(false);
  };
  return (
    <span class="action">
      <button type="button" disabled={busy || disabled || unreachable.value !== null} onClick={() => void act()}>{label}</button>
      <Curl call={call} label={label} disabled={disabled} />
    </span>
  );
}
