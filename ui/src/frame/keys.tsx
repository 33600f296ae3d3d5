// The keys of all pages. A single letter does nothing while a field has the keyboard.
import { show } from "../parts/dialog";
import { navigate, place, setQuery } from "../router";
import { PAGES } from "./pages";
import { stepRange } from "./range";

/** Milliseconds in which the second letter follows `g`. */
const SEQUENCE_TIMEOUT = 1500;
let goBy = 0;

const SHORTCUTS: readonly (readonly [keys: readonly string[], what: string])[] = [
  [["/"], "Filter of the page"],
  [["["], "Shorter range of time"],
  [["]"], "Longer range of time"],
  [["Esc"], "Close what is open"],
  [["?"], "This list"],
  ...PAGES.map(({ key, label }) => [["g", key], label] as const),
];

const GRAPH: typeof SHORTCUTS = [
  [["←", "→", "↑", "↓"], "Next job of the graph"],
  [["Enter"], "Open the job, or a stack of jobs"],
  [["Shift", "arrow"], "Move the graph"],
  [["+", "−", "0"], "Larger, smaller, all of it"],
  [["r"], "To Retry, which Enter presses"],
  [["p"], "To Pause or Resume"],
  [["Shift", "J"], "Next job in the drawer"],
  [["Shift", "K"], "Job before"],
];

const TREE: typeof SHORTCUTS = [
  [["↑", "↓"], "Next row of the tree"],
  [["→", "←"], "Open or fold the row"],
  [["Enter"], "Open the limit"],
  [["m"], "Actions of the limit"],
];

const CHARTS: typeof SHORTCUTS = [
  [["←", "→"], "Move the crosshair of the charts"],
  [["Esc"], "All of the range, after a part was selected"],
];

/** Those of the page that is shown. */
function ofPage([page = "overview", name]: readonly string[]): typeof SHORTCUTS {
  if (page === "overview") return CHARTS;
  if (page === "limits" && !name) return TREE;
  return page === "workflows" && name ? GRAPH : [];
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
  const filter = document.querySelector<HTMLElement>("[data-filter]");
  filter?.focus();
  return filter !== null;
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
  else if (key === "Escape" && place.value.query["job"]) setQuery({ job: null });
  else return false;
  return true;
}

const FIELDS = "input:not([type=checkbox], [type=radio]), textarea, select, dialog, [contenteditable]";
/** Escape empties or closes these themselves. */
const ESCAPES = "[type=search], select, dialog";

export function onKey(event: KeyboardEvent): void {
  // Some keyboards write brackets with AltGr.
  const command = (event.ctrlKey || event.metaKey || event.altKey) && !event.getModifierState("AltGraph");
  const fields = event.key === "Escape" ? ESCAPES : FIELDS;
  if (event.defaultPrevented || command || (event.target as Element).closest?.(fields)) return;
  if (act(event.key)) event.preventDefault();
}
