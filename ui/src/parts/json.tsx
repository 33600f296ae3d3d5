// JSON as it was sent: numbers keep their digits, keys their order. The text is read once and never made into objects.
import { useMemo } from "preact/hooks";
import { Text } from "./text";

/** Texts beyond this are shown without new lines: that work would be felt. */
const MAX_FORMATTED = 2_000_000;
/** Deeper levels stay in one line. */
const MAX_DEPTH = 24;

/** Where the JSON value at `from` ends. It must be well-formed: servers send no other. */
function end(text: string, from: number): number {
  let depth = 0;
  let inText = false;
  for (let at = from; at < text.length; at++) {
    const sign = text[at];
    if (inText) {
      if (sign === "\\") at++;
      else if (sign === '"') {
        inText = false;
        if (depth === 0) return at + 1;
      }
    } else if (sign === '"') inText = true;
    else if (sign === "{" || sign === "[") depth++;
    else if (sign === "}" || sign === "]") {
      if (depth === 0) return at;
      if (--depth === 0) return at + 1;
    } else if (depth === 0 && (sign === "," || sign === "\n" || sign === " ")) return at;
  }
  return text.length;
}

/** The text of a field of the object that `text` is; null when it has none. */
export function field(text: string, name: string): string | null {
  let at = text.indexOf("{") + 1;
  const skip = (): void => {
    while (at < text.length && /[\s,:]/.test(text[at] ?? "")) at++;
  };
  for (;;) {
    skip();
    if (text[at] !== '"') return null;
    const key = text.slice(at, (at = end(text, at)));
    skip();
    const value = text.slice(at, (at = end(text, at)));
    if (key === JSON.stringify(name)) return value;
  }
}

/** With new lines and two spaces a level. */
export function pretty(text: string): string {
  if (text.length > MAX_FORMATTED) return text;
  const out: string[] = [];
  let depth = 0;
  const line = (): void => {
    if (depth <= MAX_DEPTH) out.push("\n", "  ".repeat(depth));
  };
  for (let at = 0; at < text.length; at++) {
    const sign = text[at] ?? "";
    if (sign === '"') {
      const to = end(text, at);
      // At depth 0 for `end`: it stops behind the text.
      out.push(text.slice(at, to));
      at = to - 1;
    } else if (sign === "{" || sign === "[") {
      const rest = /\S/.exec(text.slice(at + 1, at + 64))?.[0];
      out.push(sign);
      depth++;
      if (rest !== "}" && rest !== "]") line();
    } else if (sign === "}" || sign === "]") {
      depth--;
      const last = out[out.length - 1];
      if (last !== "{" && last !== "[") line();
      out.push(sign);
    } else if (sign === ",") {
      out.push(depth <= MAX_DEPTH ? "," : ", ");
      line();
    } else if (sign === ":") out.push(": ");
    else if (!/\s/.test(sign)) out.push(sign);
  }
  return out.join("");
}

export function Json({ text, label }: { text: string; label: string }) {
  const shown = useMemo(() => pretty(text), [text]);
  return <Text text={shown} lines={16} label={label} />;
}
