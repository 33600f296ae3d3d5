// A field that leaves those rows of a table that have a text in them. It searches the rows that are shown, without a call to the server.
// Its text stands in the address.
import { place, setQuery } from "../router";

export interface Find<Row> {
  readonly typed: string;
  readonly rows: readonly Row[] | null;
  /** The text of a table without a matching row; undefined if the table had no rows. */
  readonly empty: string | undefined;
}

export function useFind<Row>(rows: readonly Row[] | null | undefined, words: (row: Row) => string): Find<Row> {
  const { q: typed = "" } = place.value.query;
  const wanted = typed.trim().toLowerCase();
  const found = wanted === "" ? rows : rows?.filter((row) => words(row).toLowerCase().includes(wanted));
  return { typed, rows: found ?? null, empty: rows?.length && found?.length === 0 ? "No row has this text in it" : undefined };
}

/** `of` says what is searched. `part`: the server has more rows than those that are shown. */
export function FindField<Row>({ find, of, part = false }: { find: Find<Row>; of: string; part?: boolean }) {
  return (
    <p class="filters">
      <label>{part ? "Filter this page" : "Filter"} <input type="search" data-filter size={20} placeholder={of} dir="auto" spellcheck={false} value={find.typed} onInput={(event) => setQuery({ q: event.currentTarget.value })} /></label>
    </p>
  );
}
