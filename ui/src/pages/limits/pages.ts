// One level of the configuration, asked for again and again, a page at a time.
import { useEffect, useState } from "preact/hooks";
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

export interface Asked {
  readonly domain?: string;
  readonly entries?: readonly (readonly string[])[];
  readonly find?: string;
}

/** All domains, what is below a domain or a descriptor, or what was searched for. */
export function usePages({ domain, entries = [], find }: Asked, every = 2000): Pages {
  // The cursors of this page and of those before it.
  const [cursors, turn] = useState<readonly string[]>([]);
  const asked = withQuery("v1/limits/configuration", {
    find,
    domain,
    entries: entries.length > 0 ? JSON.stringify(entries) : null,
    limit: MOST,
    cursor: cursors[cursors.length - 1],
  });
  const { data, error } = usePoll<Level>(asked, every);
  const next = data?.next_cursor;
  // The server looks at a part of the tree in each call: what has nothing is passed over.
  const skipped = data?.found?.length === 0 && next ? next : null;
  useEffect(() => {
    if (skipped !== null) turn((before) => [...before.slice(0, -1), skipped]);
  }, [skipped]);
  return {
    level: skipped === null ? data : null,
    error,
    rates: useRates(data),
    number: cursors.length + 1,
    next: next ? () => turn([...cursors, next]) : null,
    back: cursors.length > 0 ? () => turn(cursors.slice(0, -1)) : null,
  };
}
