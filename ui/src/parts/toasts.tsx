// Results of actions: screen readers read them aloud, and they close after a while.
import { signal } from "@preact/signals";
import { ApiError } from "../api";
import { Icon } from "./icon";
import { cut, plain } from "./text";

interface Toast {
  readonly id: number;
  readonly text: string;
  readonly kind: "good" | "bad";
  /** The inverse of what was done. */
  readonly undo?: (() => void) | undefined;
}

const toasts = signal<readonly Toast[]>([]);
let last = 0;

export function showToast(text: string, kind: "good" | "bad" = "good", undo?: () => void): void {
  const id = ++last;
  toasts.value = [...toasts.value.slice(-3), { id, text: cut(plain(text), 400), kind, undo }];
  setTimeout(() => close(id), kind === "good" ? 6000 : 20_000);
}

const close = (id: number): void => {
  toasts.value = toasts.value.filter((one) => one.id !== id);
};

export function showError(error: unknown): void {
  showToast(error instanceof ApiError ? `${error.code}: ${error.message}` : String(error), "bad");
}

/** The list of toasts, which is once in the page. */
export function Toasts() {
  return (
    <div class="toasts" role="status">
      {toasts.value.map((one) => (
        <div key={one.id} class={`toast ${one.kind}`}>
          <span>{one.kind === "good" ? <Icon name="check" /> : <b>Not done:</b>} <bdi>{one.text}</bdi></span>
          {one.undo ? <button class="small bare undo" onClick={() => (close(one.id), one.undo?.())}>Undo</button> : null}
          <button class="small bare square" aria-label="close this note" onClick={() => close(one.id)}><Icon name="cross" /></button>
        </div>
      ))}
    </div>
  );
}

/** The error of a call, in the place of its answer. The frame says once, for all, that the server is unreachable. */
export function Problem({ error }: { error: ApiError | null }) {
  if (!error || error.code === "unreachable") return null;
  return (
    <p class="problem" role="alert">
      <b>{error.code}</b> <bdi>{cut(plain(error.message), 1000)}</bdi>
    </p>
  );
}
