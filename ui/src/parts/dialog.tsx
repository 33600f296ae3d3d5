// A question or a text before the page. The browser keeps the keyboard inside, and Escape closes it.
import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";

interface Shown {
  readonly title: string;
  readonly body: ComponentChildren;
  /** The word on the button that does it; a dialog that only shows something has none. */
  readonly verb: string | null;
  readonly danger: boolean;
  readonly end: (done: boolean) => void;
}

const shown = signal<Shown | null>(null);

/** Asks once. True when it is to be done. */
export function confirm(title: string, body: ComponentChildren, verb: string, danger = true): Promise<boolean> {
  end(false);
  return new Promise((end) => (shown.value = { title, body, verb, danger, end }));
}

export function show(title: string, body: ComponentChildren): void {
  end(false);
  shown.value = { title, body, verb: null, danger: false, end: () => {} };
}

export const closeDialog = (): void => end(false);

function end(done: boolean): void {
  const at = shown.value;
  shown.value = null;
  // The browser gives the keyboard back to where it was.
  document.querySelector("dialog")?.close();
  at?.end(done);
}

/** Stands once in the page. */
export function Dialogs() {
  const at = shown.value;
  const element = useRef<HTMLDialogElement>(null);
  useLayoutEffect(() => {
    if (at) element.current?.showModal();
  }, [at]);
  useEffect(() => {
    // The subject of the question was on the page that was left.
    const leave = (): void => end(false);
    addEventListener("hashchange", leave);
    return () => removeEventListener("hashchange", leave);
  }, []);
  if (!at) return null;
  return (
    <dialog key={at} ref={element} onClose={() => shown.value === at && end(false)} aria-labelledby="dialog-title">
      <form method="dialog" onSubmit={(event) => (event.preventDefault(), end(at.verb !== null))}>
        <h2 id="dialog-title">{at.title}</h2>
        <div class="dialog-body">{at.body}</div>
        <div class="buttons">
          <button type="button" onClick={() => end(false)} autoFocus={at.danger}>{at.verb ? "Cancel" : "Close"}</button>
          {at.verb ? <button type="submit" class={at.danger ? "danger" : "main-act"} autoFocus={!at.danger}>{at.verb}</button> : null}
        </div>
      </form>
    </dialog>
  );
}
