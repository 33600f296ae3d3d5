// One level of the configuration, polled a page at a time.
import { useEffect, useState } from "preact/hooks";
import { withQuery, type ApiError } from "../../api";
import { usePoll } from "../../poll";
import type { Level } from "./model";

/** Rows of a page: more are no easier to read. */
const PAGE_ROWS = 100;

export interface Pages {
  readonly level: Level | null;
  readonly error: ApiError | null;
  /** 1 is the first. */
  readonly number: number;
  readonly next: (() => void) | null;
  readonly back: (() => void) | null;
}

export interface LevelQuery {
  readonly domain?: string;
  readonly entries?: readonly (readonly string[])[];
  readonly find?: string;
}

/** All domains, the children of a domain or a descriptor, or the results of a search. */
export function usePages({ domain, entries = [], find }: LevelQuery, every = 2000): Pages {
  // The cursors of this page and of those before it.
  const [cursors, setCursors] = useState<readonly string[]>([]);
  const path = withQuery("v1/limits/configuration", {
    find,
    domain,
    entries: entries.length > 0 ? JSON.stringify(entries) : null,
    limit: PAGE_ROWS,
    cursor: cursors[cursors.length - 1],
  });
  const { data, error } = usePoll<Level>(path, every);
  const next = data?.next_cursor;
  // The server searches a part of the tree in each call. Pages without a result are skipped.
  const skipped = data?.found?.length === 0 && next ? next : null;
  useEffect(() => {
    if (skipped !== null) setCursors((before) => [...before.slice(0, -1), skipped]);
  }, [skipped]);
  return {
    level: skipped === null ? data : null,
    error,
    number: cursors.length + 1,
    next: next ? () => setCursors([...cursors, next]) : null,
    back: cursors.length > 0 ? () => setCursors(cursors.slice(0, -1)) : null,
  };
}
