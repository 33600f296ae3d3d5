// A field that leaves those rows of a table that have a text in them. It searches the rows that are shown, without a call to the server.
import { useState } from "preact/hooks";
import { place } from "../router";

export interface Find<Row> {
  readonly typed: string;
  readonly set: (typed: string) => void;
  readonly rows: readonly Row[] | null;
  /** The text of a table without a matching row; undefined if the table had no rows. */
  readonly empty: string | undefined;
}

export function useFind<Row>(rows: readonly Row[] | null | undefined, words: (row: Row) => string): Find<Row> {
  const [typed, set] = useState(place.value.query["q"] ?? "");
  const wanted = typed.trim().toLowerCase();
  const found = wanted === "" ? rows : rows?.filter((row) => words(row).toLowerCase().includes(wanted));
  return { typed, set, rows: found ?? null, empty: rows?.length && found?.length === 0 ? "No row has this text in it" : undefined };
}

/** `part`: the server has more rows than those that are shown. */
export function FindField<Row>({ find, part = false }: { find: Find<Row>; part?: boolean }) {
  return (
    <p class="filters">
      <label>{part ? "Filter this page" : "Filter"} <input type="search" data-filter size={20} dir="auto" spellcheck={false} value={find.typed} onInput={(event) => find.set(event.currentTarget.value)} /></label>
    </p>
  );
}
