// Texts of others: names, errors, outputs. They are shown as text only, in their own direction, and never at any length.
import { useState } from "preact/hooks";
import { plain } from "./control-chars";

const END = "…";
/** More than this is not put on the page at once: a browser lays out a line of a megabyte for seconds. */
const CHUNK_CHARS = 100_000;

/** Cut so that no half of a character is left. */
export function cut(text: string, max: number): string {
  if (text.length <= max) return text;
  const last = text.charCodeAt(max - 1);
  return text.slice(0, last >= 0xd800 && last < 0xdc00 ? max - 1 : max) + END;
}

export { plain };

/** A short text in a line: a name or an id. All of it is in the title. */
export function Name({ text, max = 80, mono = false }: { text: string; max?: number; mono?: boolean }) {
  const line = plain(text).replace(/[\n\t]/g, " ");
  return (
    <bdi dir="auto" class={mono ? "mono" : undefined} title={line.length > max ? cut(line, 1000) : undefined}>
      {cut(line, max)}
    </bdi>
  );
}

/** `1,204 workflows`. */
export const many = (count: number, noun: string): string => `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;

/** A text of any length: its beginning, and all of it piece by piece when asked. */
export function Text({ text, lines = 12, label = "text" }: { text: string; lines?: number; label?: string }) {
  const [shown, show] = useState(0);
  const clean = shown === 0 ? plain(text.slice(0, 4000)) : plain(text.slice(0, shown));
  const start = clean.split("\n", lines + 1);
  const short = start.length <= lines && text.length <= 2000;
  const part = shown > 0 || short ? clean : cut(start.slice(0, lines).join("\n"), 2000);
  const more = shown > 0 ? shown < text.length : !short;
  return (
    <div class="text">
      <pre dir="auto" tabIndex={0} role="region" aria-label={label}>{part}</pre>
      {more ? (
        <button class="small" onClick={() => show(shown + CHUNK_CHARS)}>
          {shown === 0 ? `Show all ${text.length.toLocaleString("en")} characters` : "Show more"}
        </button>
      ) : null}
      {shown > 0 ? <button class="small" onClick={() => show(0)}>Show less</button> : null}
    </div>
  );
}
