// The limits of the configuration as a list, their states, and the addresses of their pages.
import { href } from "../../router";
import type { ConfiguredLimit, Descriptor, Level, Override } from "./model";
import { pairs, type Pairs } from "./subject";

export interface KnownLimit {
  readonly domain: string;
  readonly entries: Pairs;
  readonly one: Descriptor;
  readonly limit: ConfiguredLimit;
}

export const entryOf = (one: Descriptor): readonly string[] => (one.value === "" ? [one.key] : [one.key, one.value]);

function collect(domain: string, before: Pairs, of: readonly Descriptor[], into: KnownLimit[]): void {
  for (const one of of) {
    const entries = [...before, entryOf(one)];
    if (one.limit && !one.cut) into.push({ domain, entries, one, limit: one.limit });
    if (one.descriptors) collect(domain, entries, one.descriptors, into);
  }
}

/** Those limits that came with this answer. */
export function knownLimits(level: Level | null): readonly KnownLimit[] {
  const all: KnownLimit[] = [];
  for (const domain of level?.domains ?? []) collect(domain.name, [], domain.descriptors ?? [], all);
  return all;
}

/** Whether a descriptor is about a value; `*` at its end stands for any rest. */
const matches = ([key, value = ""]: readonly string[], [ofKey, ofValue = ""]: readonly string[]): boolean =>
  key === ofKey && (value === "" || value === ofValue || (value.endsWith("*") && ofValue.startsWith(value.slice(0, -1))));

/** The limit of a key: the one that names most of its values. */
export function limitOf(all: readonly KnownLimit[], domain: string, key: Pairs): KnownLimit | null {
  const named = (of: KnownLimit): number => of.entries.filter(([, value]) => value).length;
  const found = all.filter((of) => of.domain === domain && of.entries.length === key.length && of.entries.every((entry, at) => matches(entry, key[at] ?? [])));
  return found.sort((one, other) => named(other) - named(one))[0] ?? null;
}

/** The address of a limit's page, or of one of its keys there. */
export function limitHref(domain: string, entries: Pairs, key?: Pairs): string {
  const plain = entries.every(([name = ""]) => !name.includes("=") && !name.startsWith("["));
  const parts = plain ? entries.map((entry) => entry.filter(Boolean).join("=")) : [JSON.stringify(entries)];
  return href(["limits", domain, ...parts], { key: key ? JSON.stringify(key) : null });
}

export function entriesOf(parts: readonly string[]): Pairs {
  if (parts[0]?.startsWith("[")) return pairs(parts[0]).map(([key = "", value = ""]) => (value === "" ? [key] : [key, value]));
  return parts.map((part) => {
    const at = part.indexOf("=");
    return at < 0 ? [part] : [part.slice(0, at), part.slice(at + 1)];
  });
}

/** `user=*`, `plan=free, api_key=*`. */
export const entriesText = (entries: Pairs): string => entries.map(([key, value]) => `${key}=${value || "*"}`).join(", ");

export const STATES_OF_LIMITS = ["refusing", "near", "paused"] as const;

export const pausesOf = (limit: ConfiguredLimit): Override[] => (limit.overrides ?? []).filter((one) => one.effect !== "scaled");

/** Whether a chip of the filter is about it. */
export function isIn(state: string, limit: ConfiguredLimit): boolean {
  if (state === "refusing") return !limit.shadow_mode && (limit.now?.refused_per_second ?? 0) > 0;
  if (state === "near") return (limit.usage?.near ?? 0) + (limit.usage?.full ?? 0) > 0;
  return pausesOf(limit).length > 0;
}
