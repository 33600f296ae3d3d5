// What the forms of this page are about: a domain, and entries as people type them. The tree of the configuration fills them.
import { signal } from "@preact/signals";

export interface Subject {
  readonly domain: string;
  readonly entries: string;
}

export type Pairs = readonly (readonly string[])[];

/** The ids of the forms. */
export const CHECK_FORM = "check-request";
export const PAUSE_FORM = "pause-or-scale";

const EMPTY: Subject = { domain: "", entries: "" };
export const checking = signal<Subject>(EMPTY);
/** With a rule it is about all keys of that limit, and not about one key. */
export const overriding = signal<Subject & { readonly rule: string }>({ ...EMPTY, rule: "" });

const texts = (value: unknown): value is string[] => Array.isArray(value) && value.every((part) => typeof part === "string");

/** `tenant=acme, path=/a` as pairs; also as JSON, which can have commas in its texts: `[["tenant","a,b"]]`. */
export function pairs(text: string): string[][] {
  if (text.trimStart().startsWith("[")) {
    try {
      const read: unknown = JSON.parse(text);
      if (Array.isArray(read) && read.every(texts)) return read.map(([key = "", value = ""]) => [key, value]);
    } catch {
      // It is read as it stands.
    }
  }
  return text.split(",").map((pair) => pair.trim()).filter(Boolean).map((pair) => {
    const at = pair.indexOf("=");
    return at < 0 ? [pair, ""] : [pair.slice(0, at).trim(), pair.slice(at + 1).trim()];
  });
}

/** The first of them that is no pair; null when all are. */
export function noPair(text: string): string | null {
  if (text.trimStart().startsWith("[") && pairs(text)[0]?.[0]?.startsWith("[") !== true) return null;
  return text.split(",").map((pair) => pair.trim()).find((pair) => pair !== "" && pair.indexOf("=") < 1) ?? null;
}

/** A text that `pairs` reads as these. */
export function pairsText(entries: Pairs): string {
  const whole = entries.map(([key = "", value = ""]) => [key, value]);
  const short = whole.map((pair) => pair.join("=")).join(", ");
  return JSON.stringify(pairs(short)) === JSON.stringify(whole) ? short : JSON.stringify(whole);
}

/** Whether these name one key, and not all that match. */
const isKey = (entries: Pairs): boolean => entries.every(([, value]) => value !== undefined && value !== "" && !value.includes("*"));

function lead(id: string, field: string): void {
  // The form has its new texts after the next drawing.
  requestAnimationFrame(() => {
    const form = document.getElementById(id);
    const around = form?.closest("details");
    if (around) around.open = true;
    form?.scrollIntoView({ block: "center" });
    form?.querySelector<HTMLInputElement>(`input[name="${field}"]`)?.focus();
  });
}

export function check(domain: string, entries: Pairs): void {
  checking.value = { domain, entries: pairsText(entries) };
  lead(CHECK_FORM, "entries");
}

export function pause(domain: string, entries: Pairs, rule: string): void {
  overriding.value = { domain, entries: pairsText(entries), rule: isKey(entries) ? "" : rule };
  lead(PAUSE_FORM, isKey(entries) ? "entries" : "rule");
}

/** The subject of an override, as the API takes it. */
export const withRule = ({ domain, entries, rule }: Subject & { readonly rule: string }): object =>
  rule ? { rule } : { domain, entries: pairs(entries) };
