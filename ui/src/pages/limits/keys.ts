// The keys of a tree in a table, as screen readers and their users know them: up and down between rows, right opens, left folds.

const rows = (table: HTMLElement): HTMLElement[] => [...table.querySelectorAll<HTMLElement>("tr[aria-level]")];
const level = (row: Element | undefined): number => Number(row?.getAttribute("aria-level") ?? 0);

function turn(row: HTMLElement, to: boolean): boolean {
  if (row.getAttribute("aria-expanded") !== String(!to)) return false;
  row.querySelector<HTMLElement>(".twist")?.click();
  return true;
}

/** The row that a key leads to, if it leads to another one. */
function target(key: string, row: HTMLElement, all: readonly HTMLElement[]): HTMLElement | undefined {
  const at = all.indexOf(row);
  switch (key) {
    case "ArrowDown":
      return all[at + 1];
    case "ArrowUp":
      return all[at - 1];
    case "Home":
      return all[0];
    case "End":
      return all[all.length - 1];
    case "ArrowRight":
      return turn(row, true) || level(all[at + 1]) <= level(row) ? undefined : all[at + 1];
    case "ArrowLeft":
      return turn(row, false) ? undefined : all.slice(0, at).reverse().find((one) => level(one) < level(row));
    default:
      return undefined;
  }
}

export function arrows(event: KeyboardEvent & { readonly currentTarget: HTMLElement }): void {
  if (event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
  const row = (event.target as HTMLElement).closest<HTMLElement>("tr[aria-level]");
  if (row && event.target === row && event.key === "Enter") {
    event.preventDefault();
    return row.querySelector<HTMLElement>("th a")?.click();
  }
  if (!row || !["ArrowDown", "ArrowUp", "ArrowLeft", "ArrowRight", "Home", "End"].includes(event.key)) return;
  event.preventDefault();
  target(event.key, row, rows(event.currentTarget))?.focus();
}
