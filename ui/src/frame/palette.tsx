// Goes anywhere by a few letters: pages, what can be done on this one, and what the server finds.
import { useEffect, useRef, useState } from "preact/hooks";
import { withQuery } from "../api";
import { limitHref } from "../pages/limits/known";
import type { Pairs } from "../pages/limits/subject";
import { closeDialog, show } from "../parts/dialog";
import { Icon, type IconName } from "../parts/icon";
import { word } from "../parts/state";
import { store, stored } from "../parts/stored";
import { UNKNOWN } from "../parts/table";
import { Name } from "../parts/text";
import { Problem } from "../parts/toasts";
import { usePoll } from "../poll";
import { href } from "../router";
import { shownGroups } from "./pages";

interface Choice {
  readonly label: string;
  readonly note: string;
  readonly icon: IconName;
  /** An address, or what is done. */
  readonly go: string | (() => void);
}

interface FoundName {
  readonly kind: string;
  readonly name: string;
  readonly id?: string;
  readonly status?: string;
  /** Of a limit. */
  readonly domain?: string;
  readonly entries?: Pairs;
}

/** Milliseconds without a letter before the server is searched. */
const SEARCH_DELAY = 100;
const MAX_RECENT = 8;

/** Other programs can write there, too. */
function recent(): Choice[] {
  try {
    return (JSON.parse(stored("recent")) as Choice[]).filter((one) => [one.label, one.note, one.icon, one.go].every((text) => typeof text === "string"));
  } catch {
    return [];
  }
}

const remember = (entry: Choice): void => store("recent", JSON.stringify([entry, ...recent().filter(({ go }) => go !== entry.go)].slice(0, MAX_RECENT)));

function choiceOf({ kind, name, id = "", status, domain = "", entries = [] }: FoundName): Choice {
  const to = (icon: IconName, go: string, note = kind): Choice => ({ label: name, note, icon, go });
  switch (kind) {
    case "workflow":
      return to("workflows", href(["workflows", id]), `${word(status ?? "")} ${id.slice(0, 10)}`);
    case "limit":
      return to("limits", limitHref(domain, entries));
    case "queue":
    case "worker":
      return to(`${kind}s`, href([`${kind}s`, name]));
    case "handler":
      return to("warning", href(["failures"], { q: name }));
    default:
      return to("workflows", href(["workflows"], { [kind]: name }));
  }
}

/** The buttons of the page that stand alone: those of rows are theirs. */
const BUTTONS = "main .head button, main section > header button, .drawer > footer button, .selection button, .foot button";

const actions = (): Choice[] => [...document.querySelectorAll<HTMLButtonElement>(BUTTONS)].filter((one) => !one.disabled && one.offsetParent).map((one) => ({
  label: one.ariaLabel || one.title || one.innerText.trim(), note: "action", icon: "play", go: () => (one.focus(), one.click()),
}));

function Palette({ own }: { own: readonly Choice[] }) {
  const [typed, type] = useState("");
  const [sent, send] = useState("");
  const [marked, mark] = useState(0);
  const before = useRef<readonly FoundName[]>([]);
  useEffect(() => {
    const timer = setTimeout(() => send(typed.trim()), SEARCH_DELAY);
    return () => clearTimeout(timer);
  }, [typed]);
  const { data, error } = usePoll<{ readonly items: readonly FoundName[] }>(sent ? withQuery("v1/search", { q: sent }) : null, 60_000);
  // Until there is a newer answer, so that nothing jumps.
  if (data) before.current = data.items;
  const wanted = typed.trim().toLowerCase();
  const found = wanted && typed.trim() === sent && data !== null;
  const all: Choice[] = wanted ? [...own.filter(({ label }) => label.toLowerCase().includes(wanted)), ...before.current.map(choiceOf)] : [...recent(), ...own];
  const at = Math.min(marked, all.length - 1);
  useEffect(() => document.getElementById(`found-${at}`)?.scrollIntoView({ block: "nearest" }), [at]);
  const run = (entry: Choice | undefined): void => {
    // A hit of the text before is not what was typed.
    if (!entry || (wanted && !found && !own.includes(entry))) return;
    closeDialog();
    if (typeof entry.go !== "string") return entry.go();
    remember(entry);
    location.hash = entry.go;
  };
  const keys = (event: KeyboardEvent): void => {
    if (event.key === "ArrowDown") mark((at + 1) % all.length);
    else if (event.key === "ArrowUp") mark((at + all.length - 1) % all.length);
    else if (event.key === "Enter") run(all[at]);
    else return;
    event.preventDefault();
  };
  return (
    <>
      <input dir="auto" maxLength={200} spellcheck={false} role="combobox" aria-label="Search" aria-expanded={at >= 0} aria-controls="found" aria-activedescendant={at < 0 ? undefined : `found-${at}`}
        value={typed} onInput={(event) => (type(event.currentTarget.value), mark(0))} onKeyDown={keys} />
      <Problem error={error} />
      {wanted && !found ? <p role="status">{error ? UNKNOWN : "Searching…"}</p> : at < 0 ? <p>Nothing found</p> : null}
      {at < 0 ? null : <ul id="found" class="menu" role="listbox" aria-label="Found">
        {all.map((entry, row) => (
          <li key={`${entry.note} ${entry.label} ${row}`} id={`found-${row}`} role="option" aria-selected={row === at} class={row === at ? "on" : undefined} onPointerMove={() => mark(row)} onClick={() => run(entry)}>
            <Icon name={entry.icon} /><Name text={entry.label} /><span class="dim push">{entry.note}</span>
          </li>
        ))}
      </ul>}
    </>
  );
}

export const PALETTE = "Search or jump to";

export function openPalette(): void {
  const pages = shownGroups().flatMap(([, some]) => some).map(({ name, label, icon }): Choice => ({ label, note: "page", icon, go: href([name]) }));
  show(PALETTE, <Palette own={[...pages, ...actions()]} />);
}
