// Rows. A table that is wider than its place scrolls by itself, and can be reached with the keyboard.
import type { ComponentChildren } from "preact";

export interface Column<Row> {
  readonly head: ComponentChildren;
  readonly cell: (row: Row) => ComponentChildren;
  /** Numbers stand at the right. `wide` takes the room that is left. `narrow` is left out where the rail is narrow. */
  readonly kind?: "number" | "wide" | "narrow";
  /** The cell that names the row. */
  readonly names?: boolean;
}

export interface TableProps<Row> {
  /** The content of the table, for screen readers. */
  readonly label: string;
  readonly columns: readonly Column<Row>[];
  readonly rows: readonly Row[] | null;
  readonly rowKey: (row: Row) => string;
  /** The text of a table without rows. */
  readonly empty?: ComponentChildren;
  readonly selected?: (row: Row) => boolean;
  /** There was no answer; the error is above the table. */
  readonly failed?: boolean;
  /** All of a row leads where its name leads. */
  readonly link?: boolean;
}

/** The text in the place of an answer that did not come. */
export const UNKNOWN = "Not known: the server did not answer";

const CLASSES = { number: "num", wide: "wide", narrow: "lo" } as const;

export function Table<Row>({ label, columns, rows, rowKey, empty = "None", selected, failed = false, link = false }: TableProps<Row>) {
  const classOf = ({ kind }: Column<Row>): string | undefined => kind && CLASSES[kind];
  const headOf = ({ head }: Column<Row>): string | undefined => (typeof head === "string" && head !== "" ? head : undefined);
  return (
    <div class="panel scroll" role="region" aria-label={label} tabIndex={0}>
      <table class={link ? "cards linked" : "cards"}>
        <thead>
          <tr>{columns.map((column, at) => <th key={at} scope="col" class={classOf(column)}>{column.head}</th>)}</tr>
        </thead>
        <tbody>
          {rows?.map((row) => (
            <tr key={rowKey(row)} class={selected?.(row) ? "on" : undefined}>
              {columns.map((column, at) =>
                column.names ? <th key={at} scope="row" class={classOf(column)}>{column.cell(row)}</th>
                : <td key={at} class={classOf(column)} data-head={headOf(column)}>{column.cell(row)}</td>,
              )}
            </tr>
          ))}
          {rows && rows.length > 0 ? null : (
            <tr class="none"><td colSpan={columns.length}>{rows ? <div class="empty">{empty}</div> : failed ? <div class="empty">{UNKNOWN}</div> : <Loading />}</td></tr>
          )}
        </tbody>
      </table>
    </div>
  );
}

/** A grey bar at the place of what is on its way. */
export const Loading = () => <span class="skeleton"><span class="hide">Loading…</span></span>;
