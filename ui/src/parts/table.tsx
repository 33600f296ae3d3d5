// Rows. A table that is wider than its place scrolls by itself, and can be reached with the keyboard.
import type { ComponentChildren } from "preact";

export interface Column<Row> {
  readonly head: ComponentChildren;
  readonly cell: (row: Row) => ComponentChildren;
  /** Numbers stand at the right. `wide` takes the room that is left. `narrow` is left out on narrow screens. */
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
}

/** The text in the place of an answer that did not come. */
export const UNKNOWN = "not known: the server did not answer";

export function Table<Row>({ label, columns, rows, rowKey, empty = "none", selected, failed = false }: TableProps<Row>) {
  return (
    <div class="scroll" role="region" aria-label={label} tabIndex={0}>
      <table>
        <thead>
          <tr>{columns.map((column, at) => <th key={at} scope="col" class={column.kind}>{column.head}</th>)}</tr>
        </thead>
        <tbody>
          {rows?.map((row) => (
            <tr key={rowKey(row)} class={selected?.(row) ? "selected" : undefined}>
              {columns.map((column, at) =>
                column.names ? <th key={at} scope="row" class={column.kind}>{column.cell(row)}</th>
                : <td key={at} class={column.kind}>{column.cell(row)}</td>,
              )}
            </tr>
          ))}
          {rows && rows.length > 0 ? null : (
            <tr><td class="empty" colSpan={columns.length}>{rows ? empty : failed ? UNKNOWN : "loading…"}</td></tr>
          )}
        </tbody>
      </table>
    </div>
  );
}
