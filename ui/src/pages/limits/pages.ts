// One level of the configuration, asked for again and again, a page at a time.
import { useState } from "preact/hooks";
import { withQuery, type Refused } from "../../api";
import { usePoll } from "../../poll";
import type { Level } from "./model";
import { useRates, type RatesOf } from "./rates";

/** Rows of a page: more are no easier to look through. */
const MOST = 100;

export interface Pages {
  readonly level: Level | null;
  readonly error: Refused | null;
  readonly rates: RatesOf;
  /** 1 is the first. */
  readonly number: number;
  readonly next: (() => void) | null;
  readonly back: (() => void) | null;
}

/** `path` is a domain, and pairs of a key and a value below it; empty: all domains. */
export function usePages(path: readonly (string | readonly string[])[], every: number): Pages {
  // The cursors of this page and of those before it.
  const [cursors, turn] = useState<readonly string[]>([]);
  const [domain, ...entries] = path;
  const asked = withQuery("v1/limits/configuration", {
    domain: domain === undefined ? null : String(domain),
    entries: entries.length > 0 ? JSON.stringify(entries) : null,
    limit: MOST,
    cursor: cursors[cursors.length - 1],
  });
  const { data, error } = usePoll<Level>(asked, every);
  const next = data?.next_cursor;
  return {
    level: data,
    error,
    rates: useRates(data),
    number: cursors.length + 1,
    next: next ? () => turn([...cursors, next]) : null,
    back: cursors.length > 0 ? () => turn(cursors.slice(0, -1)) : null,
  };
}
