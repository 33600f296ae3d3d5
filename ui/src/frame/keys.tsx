// The keys of all pages. A single letter does nothing while a field has the keyboard.
import { show } from "../parts/dialog";
import { closeDrawer, drawerOpen } from "../parts/drawer";
import { navigate, place } from "../router";
import { PAGES } from "./pages";
import { openPalette, PALETTE } from "./palette";
import { stepRange } from "./range";

/** Milliseconds in which the second letter follows `g`. */
const SEQUENCE_TIMEOUT = 1500;
let goBy = 0;

type Shortcuts = readonly (readonly [keys: readonly string[], what: string])[];

const SHORTCUTS: Shortcuts = [
  [["Ctrl", "K"], PALETTE],
  [["/"], "Filter of the page"],
  [["["], "Shorter range of time"],
  [["]"], "Longer range of time"],
  [["Esc"], "Close what is open"],
  [["?"], "This list"],
  ...PAGES.map(({ key, label }) => [["g", key], label] as const),
];

const LISTS: Shortcuts = [
  [["j", "k", "↓", "↑"], "Next row, row before"],
  [["Enter"], "Open the row"],
  [["m"], "Actions of the row"],
];

const STEPS: Shortcuts = [
  [["Shift", "J"], "Next one in the drawer"],
  [["Shift", "K"], "The one before"],
];

const SELECTION: Shortcuts = [
  [["x"], "Select the row"],
  [["Shift", "X"], "Select rows up to this one"],
];

const GRAPH: Shortcuts = [
  [["←", "→", "↑", "↓"], "Next job of the graph"],
  [["Enter"], "Open the job, or a stack of jobs"],
  [["Shift", "arrow"], "Move the graph"],
  [["+", "−", "0"], "Larger, smaller, all of it"],
  [["r"], "To Retry, which Enter presses"],
  [["p"], "To Pause or Resume"],
  [["e", "l", "o", "i"], "Error, log, output, inputs of the job"],
  [["n", "N"], "Next hit in the log, hit before"],
  [["f"], "Follow the log"],
];

const TREE: Shortcuts = [
  [["→", "←"], "Open or fold the row"],
  [["p", "s", "t"], "Pause, scale or test the limit"],
];

const CHARTS: Shortcuts = [
  [["←", "→"], "Move the crosshair of the charts"],
  [["Esc"], "All of the range, after a part was selected"],
];

/** Those of the page that is shown. */
function ofPage([page = "overview", name]: readonly string[]): Shortcuts {
  switch (page) {
    case "overview":
      return CHARTS;
    case "limits":
      return name ? TREE.slice(1) : [...LISTS, ...TREE];
    case "workflows":
      return name ? [...LISTS, ...STEPS, ...GRAPH] : [...LISTS, ...SELECTION];
    case "failures":
      return LISTS;
    default:
      return [...LISTS, ...STEPS];
  }
}

export function showHelp(): void {
  const all = [...SHORTCUTS, ...ofPage(place.value.parts)];
  show("Keyboard shortcuts", (
    <dl class="shortcuts">
      {all.map(([keys, what]) => <><dt>{keys.map((key) => <><kbd>{key}</kbd> </>)}</dt><dd>{what}</dd></>)}
    </dl>
  ));
}

function focusFilter(): boolean {
  const filter = document.querySelector<HTMLElement>(".drawer [data-filter]") ?? document.querySelector<HTMLElement>("[data-filter]");
  filter?.focus();
  return filter !== null;
}

/** The row that has the keyboard. Rows behind an open drawer have no keys: they are not what is shown. */
function focusedRow(): HTMLElement | null {
  const row = document.activeElement?.closest("tr") ?? null;
  return drawerOpen() && !row?.closest(".drawer") ? null : row;
}

/** To the row after or before the one that has the keyboard, at first to the first row. */
function toRow(by: -1 | 1): boolean {
  const at = focusedRow();
  const table = at?.closest("table") ?? document.querySelector(drawerOpen() ? ".drawer .linked" : "main .linked, main .tree");
  const rows = [...(table?.querySelectorAll<HTMLElement>("tbody tr") ?? [])].filter((row) => row.ariaLevel || row.querySelector("th a"));
  const to = rows[at ? rows.indexOf(at) + by : 0];
  (to?.ariaLevel ? to : to?.querySelector<HTMLElement>("th a"))?.focus();
  return rows.length > 0;
}

/** The element that has this key. One of a row counts while the row has the keyboard; the drawer stands last in the page. */
function keyed(key: string): HTMLElement | undefined {
  const all = [...document.querySelectorAll<HTMLElement>("[data-key]")].filter((one) => one.dataset["key"] === key);
  const row = focusedRow();
  return all.find((one) => row?.contains(one)) ?? all.filter((one) => !one.closest("tr")).at(-1);
}

let selectedLast: HTMLElement | undefined;

/** Selects the row, or all rows from the last that was selected to this one. */
function select(key: string): boolean {
  const box = keyed("x");
  if (!box) return false;
  const all = [...document.querySelectorAll<HTMLInputElement>("[data-key=x]")];
  const [from = 0, to = 0] = [box, selectedLast?.isConnected ? selectedLast : box].map((one) => all.indexOf(one as HTMLInputElement)).sort((one, other) => one - other);
  if (key === "x") box.click();
  else for (const one of all.slice(Math.max(from, 0), to + 1)) if (!one.checked) one.click();
  selectedLast = box;
  return true;
}

function press(key: string): boolean {
  const button = keyed(key);
  button?.focus();
  // Some only get the keyboard, so that Enter does it.
  if (button?.dataset["hold"] === undefined) button?.click();
  return button !== undefined;
}

/** Whether the key did something. */
function act(key: string): boolean {
  const second = performance.now() < goBy;
  goBy = 0;
  const page = second ? PAGES.find((one) => one.key === key) : undefined;
  if (page) navigate([page.name]);
  else if (key === "g") goBy = performance.now() + SEQUENCE_TIMEOUT;
  else if (key === "/") return focusFilter();
  else if (key === "?") showHelp();
  else if (key === "[") stepRange(-1);
  else if (key === "]") stepRange(1);
  else if (key === "Escape" && drawerOpen()) closeDrawer();
  else if (key === "j" || (key === "ArrowDown" && focusedRow())) return toRow(1);
  else if (key === "k" || (key === "ArrowUp" && focusedRow())) return toRow(-1);
  else if (key.toLowerCase() === "x") return select(key);
  else return press(key);
  return true;
}

/** A filter is emptied, and then left for the list, where keys work again. */
function leaveFilter(field: HTMLInputElement, key: string): boolean {
  if (document.activeElement !== field || !["Escape", "Enter", "ArrowDown"].includes(key)) return false;
  if (key === "Escape" && field.value) {
    field.value = "";
    return field.dispatchEvent(new Event("input"));
  }
  field.blur();
  toRow(1);
  return true;
}

const FIELDS = "input:not([type=checkbox], [type=radio]), textarea, select, dialog, [contenteditable], [role=menu]";
/** Escape closes these themselves. */
const ESCAPES = "select, dialog";

export function onKey(event: KeyboardEvent): void {
  if ((event.ctrlKey || event.metaKey) && event.key === "k" && !(event.target as Element).closest?.("dialog")) {
    event.preventDefault();
    return openPalette();
  }
  // Some keyboards write brackets with AltGr.
  const command = (event.ctrlKey || event.metaKey || event.altKey) && !event.getModifierState("AltGraph");
  const field = (event.target as Element).closest?.<HTMLInputElement>("main [type=search]");
  if (field && !event.defaultPrevented && !command && leaveFilter(field, event.key)) return event.preventDefault();
  const fields = event.key === "Escape" ? ESCAPES : FIELDS;
  if (event.defaultPrevented || command || (event.target as Element).closest?.(fields)) return;
  if (act(event.key)) event.preventDefault();
}
