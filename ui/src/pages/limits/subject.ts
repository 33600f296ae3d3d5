// What the form of a test is about: a domain, and entries as people type them. The tree of the configuration fills it.
import { signal } from "@preact/signals";

export interface Subject {
  readonly domain: string;
  readonly entries: string;
}

export type Pairs = readonly (readonly string[])[];

/** The id of the form. */
export const CHECK_FORM = "check-request";

export const checking = signal<Subject>({ domain: "", entries: "" });

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
export const isKey = (entries: Pairs): boolean => entries.length > 0 && entries.every(([, value]) => value !== undefined && value !== "" && !value.includes("*"));

export function check(domain: string, entries: Pairs): void {
  checking.value = { domain, entries: pairsText(entries.map(([key = "", value = ""]) => [key, value])) };
  // The form has its new texts after the next drawing.
  requestAnimationFrame(() => {
    const form = document.getElementById(CHECK_FORM);
    form?.scrollIntoView({ block: "center" });
    form?.querySelector<HTMLInputElement>('input[name="entries"]')?.focus();
  });
}
