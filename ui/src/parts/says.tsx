// What came of an action: said aloud by screen readers, gone after a while.
import { signal } from "@preact/signals";
import { Refused } from "../api";
import { cut, plain } from "./text";

interface Saying {
  readonly id: number;
  readonly text: string;
  readonly kind: "good" | "bad";
}

const sayings = signal<readonly Saying[]>([]);
let last = 0;

export function say(text: string, kind: "good" | "bad" = "good"): void {
  const id = ++last;
  sayings.value = [...sayings.value.slice(-3), { id, text: cut(plain(text), 400), kind }];
  setTimeout(() => hush(id), kind === "good" ? 6000 : 20_000);
}

const hush = (id: number): void => {
  sayings.value = sayings.value.filter((one) => one.id !== id);
};

export function sayError(error: unknown): void {
  say(error instanceof Refused ? `${error.code}: ${error.message}` : String(error), "bad");
}

/** Stands once in the page. */
export function Sayings() {
  return (
    <div class="sayings" role="status">
      {sayings.value.map((one) => (
        <div key={one.id} class={`saying ${one.kind}`}>
          <span><b>{one.kind === "good" ? <span aria-hidden="true">✓</span> : "Not done:"}</b> <bdi>{one.text}</bdi></span>
          <button class="small" aria-label="close this note" onClick={() => hush(one.id)}>×</button>
        </div>
      ))}
    </div>
  );
}

/** A call that failed, where its answer would stand. */
export function Problem({ error }: { error: Refused | null }) {
  if (!error) return null;
  return (
    <p class="problem" role="alert">
      <b>{error.code}</b> <bdi>{cut(plain(error.message), 1000)}</bdi>
    </p>
  );
}
