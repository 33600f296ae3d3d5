// Verbs: what a user can do with a thing, each by calls. The first is a button; the rest stand in a menu, which ends with the curl line of the marked one.
import type { ComponentChildren } from "preact";
import { useEffect, useId, useLayoutEffect, useRef, useState } from "preact/hooks";
import { ApiError, curl, request, unreachable, type Call } from "../api";
import { confirm } from "./dialog";
import { Icon, type IconName } from "./icon";
import { showError, showToast } from "./toasts";

export interface Verb {
  readonly label: string;
  readonly icon: IconName;
  /** One call, or one for each of many things. */
  readonly call: Call | readonly Call[];
  /** A sentence that is shown after success; of many calls, those that were done are counted. */
  readonly toast: string | ((count: number) => string);
  /** The call that takes it back. */
  readonly undo?: Call;
  /** The loss: then it is confirmed first, with `title` as the question. */
  readonly confirm?: ComponentChildren;
  readonly title?: string | (() => Promise<string>);
  /** In the place of the call, for what must be filled in first. */
  readonly open?: () => void;
  readonly danger?: boolean;
  readonly done?: () => void;
}

const callsOf = ({ call }: Verb): readonly Call[] => ("path" in call ? [call] : call);

/** Calls of one verb that are made at a time. */
const MAX_CALLS = 4;

/** Calls `act` for each element, at most `MAX_CALLS` at a time. */
export async function forEachOf<T>(all: readonly T[], act: (one: T) => Promise<void>): Promise<void> {
  const left = [...all];
  await Promise.all(Array.from({ length: MAX_CALLS }, async () => {
    for (let one = left.shift(); one !== undefined; one = left.shift()) await act(one);
  }));
}

/** An answer about many things. */
interface Answer {
  readonly done?: number;
  readonly next_cursor?: string | null;
  readonly failed?: readonly { readonly error: { readonly detail: string } }[];
}

/** How many were done, with what follows the cursor of the answer. */
async function makeAll(call: Call): Promise<number> {
  const { done = 1, next_cursor: cursor, failed } = (await request<Answer | null>(call)) ?? {};
  if (failed?.[0]) showError(failed[0].error.detail);
  return done + (cursor ? await makeAll({ ...call, body: { ...(call.body as object), cursor } }) : 0);
}

/** How many were done: another user may have done the others. */
async function make(calls: readonly Call[]): Promise<number> {
  let count = 0;
  await forEachOf(calls, (call) => makeAll(call).then((done) => void (count += done), (problem: unknown) => {
    if (calls.length === 1 || !(problem instanceof ApiError && [404, 409].includes(problem.status))) throw problem;
  }));
  return count;
}

export async function perform(verb: Verb): Promise<void> {
  if (verb.open) return verb.open();
  try {
    const { title = verb.label } = verb;
    const words = typeof title === "string" ? title : await title();
    if (verb.confirm && !(await confirm(`${words}?`, verb.confirm, words, verb.danger))) return;
    const count = await make(callsOf(verb));
    const { undo, toast } = verb;
    showToast(typeof toast === "string" ? toast : toast(count), "good", undo && (() => void request<unknown>(undo).then(() => verb.done?.(), showError)));
  } catch (error) {
    showError(error);
  }
  verb.done?.();
}

/** `letter` moves the keyboard there; Enter presses it then. */
export function VerbButton({ verb, main = false, small = false, letter }: { verb: Verb; main?: boolean; small?: boolean; letter?: string | undefined }) {
  const [busy, setBusy] = useState(false);
  const act = (): void => {
    setBusy(true);
    void perform(verb).finally(() => setBusy(false));
  };
  return (
    <button type="button" data-key={letter} data-hold={letter} class={`${main ? "main-act" : ""}${small ? " small" : ""}`} disabled={busy || unreachable.value !== null} onClick={act}>
      <Icon name={verb.icon} />{verb.label}
    </button>
  );
}

/** Copies a text, where the browser lets a page do so. */
export function Copy({ text, label }: { text: string; label: string }) {
  if (!("clipboard" in navigator)) return null;
  return <button type="button" class="small bare square" aria-label={label} title={label} onClick={() => navigator.clipboard.writeText(text).then(() => showToast("Copied."), showError)}><Icon name="copy" /></button>;
}

/** Between a button and its menu, in pixels. */
const GAP = 4;

export interface MenuProps {
  readonly label: string;
  readonly verbs: readonly Verb[];
  readonly small?: boolean;
}

export function Menu({ label, verbs, small = false }: MenuProps) {
  const [open, setOpen] = useState(false);
  const [marked, mark] = useState(0);
  const place = useRef<HTMLSpanElement>(null);
  const box = useRef<HTMLDivElement>(null);
  const id = useId();
  const at = Math.min(marked, verbs.length - 1);
  const close = (focus: boolean): void => {
    setOpen(false);
    if (focus) place.current?.querySelector("button")?.focus();
  };
  useLayoutEffect(() => {
    const own = box.current;
    const button = place.current?.getBoundingClientRect();
    if (!own || !button) return;
    // Above the button where there is no room below; tables would cut it off, so it stands on the page.
    const below = button.bottom + own.offsetHeight + GAP < innerHeight;
    own.style.top = `${Math.max(GAP, below ? button.bottom + GAP : button.top - own.offsetHeight - GAP)}px`;
    own.style.left = `${Math.max(12, Math.min(button.right, innerWidth - 12) - own.offsetWidth)}px`;
  }, [open]);
  useLayoutEffect(() => {
    if (open) place.current?.querySelectorAll<HTMLElement>("[role=menuitem]")[at]?.focus({ preventScroll: true });
  }, [open, at]);
  useEffect(() => {
    if (!open) return;
    const outside = (event: Event): void => {
      if (!place.current?.contains(event.target as Node)) setOpen(false);
    };
    addEventListener("pointerdown", outside);
    addEventListener("focusin", outside);
    const leave = (event: Event): void => {
      if (!box.current?.contains(event.target as Node)) setOpen(false);
    };
    addEventListener("scroll", leave, true);
    return () => {
      removeEventListener("scroll", leave, true);
      removeEventListener("pointerdown", outside);
      removeEventListener("focusin", outside);
    };
  }, [open]);
  if (verbs.length === 0) return null;
  const keys = (event: KeyboardEvent): void => {
    if (!open) return;
    const to: Readonly<Record<string, number>> = { ArrowDown: (at + 1) % verbs.length, ArrowUp: (at + verbs.length - 1) % verbs.length, Home: 0, End: verbs.length - 1 }; // plain: a key
    const next = to[event.key];
    if (next !== undefined) mark(next);
    else if (event.key === "Escape") close(true);
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  const line = verbs[at] ? callsOf(verbs[at]).map(curl).join("\n") : "";
  return (
    <span ref={place} class="menu-place" onKeyDown={keys}>
      <button type="button" class={small ? "small bare square" : "square"} aria-label={label} title={label} data-key="m" aria-haspopup="menu" aria-expanded={open} aria-controls={id} onClick={() => (mark(0), setOpen(!open))}><Icon name="more" /></button>
      {open ? (
        <div ref={box} class="menu over">
          <div id={id} role="menu" aria-label={label}>
            {verbs.map((verb, row) => (
              <button key={verb.label} type="button" role="menuitem" tabIndex={row === at ? 0 : -1} class={row === at ? "on" : undefined} disabled={unreachable.value !== null}
                onPointerEnter={() => mark(row)} onClick={() => (close(true), void perform(verb))}>
                <Icon name={verb.icon} />{verb.label}{verb.confirm || verb.open ? "…" : ""}
              </button>
            ))}
          </div>
          <div class="curl-line"><pre class="curl" role="region" aria-label="curl line">{line}</pre><Copy text={line} label="Copy the curl line" /></div>
        </div>
      ) : null}
    </span>
  );
}
