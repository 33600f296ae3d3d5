// The tree of the configuration: rows with a level, of which those with others below them open and close.
import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { curl, mayAct } from "../../api";
import { Problem } from "../../parts/toasts";
import { Loading, UNKNOWN } from "../../parts/table";
import { cut, many, Name, plain } from "../../parts/text";
import { closeDialog, show } from "../../parts/dialog";
import { Icon, type IconName } from "../../parts/icon";
import { LimitCells, NoLimit } from "./cells";
import { arrows } from "./keys";
import { placeOf, type Descriptor, type Domain, type Mistake } from "./model";
import { usePages, type Pages } from "./pages";
import { entryOf, isIn, knownLimits, limitHref, entriesText } from "./known";
import { override, OverrideLine, Resume } from "./override";
import { useTrends } from "./series";
import { check, isKey, pairsText, type Pairs } from "./subject";

const COLUMNS = 11;
/** Levels of indent: a wider one would leave no room for names. */
const MAX_INDENT = 8;

/** Rows that the user opened or closed, by their path from the domain. They stay so when the page is left. */
const toggled = signal<ReadonlyMap<string, boolean>>(new Map());

type TreePath = readonly [domain: string, ...entries: (readonly string[])[]];

interface Shared {
  readonly large: boolean;
  readonly mistakes: readonly Mistake[];
}

const isOpen = (path: TreePath, large: boolean): boolean => toggled.value.get(JSON.stringify(path)) ?? !large;

function toggle(path: TreePath, large: boolean): void {
  toggled.value = new Map(toggled.value).set(JSON.stringify(path), !isOpen(path, large));
}

function Frame({ label, children }: { label: string; children: ComponentChildren }) {
  useTrends();
  return (
    <div class="scroll">
      <table class="tree" role="treegrid" aria-label={label} aria-readonly="true" onKeyDown={arrows}>
        <thead>
          <tr>
            <th scope="col">Limit</th><th scope="col">Rate</th><th scope="col">Used now</th><th scope="col">Busiest value</th>
            <th scope="col" class="num">Hits/s</th><th scope="col" class="num">Refused/s</th><th scope="col" class="num">Refused %</th>
            <th scope="col" class="trend">15 min</th><th scope="col">State</th><th scope="col" class="lo">Defined in</th><th scope="col"><span class="hide">Actions</span></th>
          </tr>
        </thead>
        <tbody>{children}</tbody>
      </table>
    </div>
  );
}

function Empty({ of, pages, text }: { of: readonly unknown[] | undefined; pages: Pages; text: string }) {
  return of && of.length > 0 ? null : <tr class="dim"><td colSpan={COLUMNS}>{of ? <div class="empty">{text}</div> : pages.error ? <div class="empty">{UNKNOWN}</div> : <Loading />}</td></tr>;
}

export function Tree({ pages, ...shared }: { pages: Pages } & Shared) {
  const domains = pages.level?.domains;
  return (
    <Frame label="Configuration">
      {domains?.map((domain) => <DomainRows key={domain.name} domain={domain} shared={shared} />)}
      <Empty of={domains} pages={pages} text="No domain is configured: nothing is limited" />
      <PageButtons pages={pages} depth={1} all={pages.level?.load?.domains ?? 0} />
    </Frame>
  );
}

const NOTHING: Shared = { large: true, mistakes: [] };

/** The descriptors that have a text in them, each with the path to it. */
export function Searched({ find }: { find: string }) {
  const pages = usePages({ find });
  const found = pages.level?.found;
  return (
    <>
      <Problem error={pages.error} />
      <Frame label="Found in the configuration">
        {found?.map(({ domain, entries, way_cut, descriptor }) => {
          const one = { ...descriptor, cut: way_cut ?? descriptor.cut ?? false, children: 0 };
          const path: TreePath = [domain, ...entries];
          return <One key={JSON.stringify(path)} path={path} depth={1} one={one} text={`${domain} ${entriesText(entries)}`} shared={NOTHING} />;
        })}
        <Empty of={found} pages={pages} text="No key and no value has this text in it" />
        <PageButtons pages={pages} depth={1} />
      </Frame>
    </>
  );
}

interface RowProps {
  readonly path: TreePath;
  readonly depth: number;
  readonly children: number;
  readonly cut: boolean;
  readonly shared: Shared;
  readonly name: ComponentChildren;
  /** The name of the row for its button. */
  readonly label: string;
  readonly cells: ComponentChildren;
  readonly limit?: LimitRef | null;
}

function Row({ path, depth, children, cut: isCut, shared, name, label, cells, limit }: RowProps) {
  const opens = children > 0 && !isCut;
  const open = opens && isOpen(path, shared.large);
  const turn = (): void => toggle(path, shared.large);
  const keys = (event: KeyboardEvent): void => {
    const found = limit && !event.ctrlKey && !event.metaKey && !event.altKey && actionsOf(limit).find(({ key }) => key === event.key);
    if (!found) return;
    event.preventDefault();
    found.act();
  };
  return (
    <tr aria-level={depth} aria-expanded={opens ? open : undefined} tabIndex={-1} onKeyDown={keys}>
      <th scope="row" class="branch">
        <div class={`step step-${Math.min(depth, MAX_INDENT)}`}>
          {opens ? <button class="twist bare" tabIndex={0} aria-expanded={open} aria-label={`${open ? "fold" : "open"} ${cut(plain(label), 100)}`} onClick={turn}>{open ? "▾" : "▸"}</button> : <span class="twist" />}
          <span>{name}</span>
        </div>
      </th>
      {cells}
    </tr>
  );
}

function DomainRows({ domain, shared }: { domain: Domain; shared: Shared }) {
  const path: TreePath = [domain.name];
  const wrong = shared.mistakes.filter((one) => domain.files.includes(one.file));
  const first = wrong[0];
  const name = (
    <>
      <b><Name text={domain.name} max={60} /></b>{" "}
      <span class="dim">{many(domain.limits, "limit")}</span>
    </>
  );
  const cells = (
    <>
      <td colSpan={8} class="wide">
        {first ? (
          <span class="bad">
            ✕ Not loaded: <span class="mono"><Name text={placeOf(first)} max={60} /></span> <Name text={first.text} max={70} />
            {wrong.length > 1 ? ` and ${wrong.length - 1} more` : ""}
          </span>
        ) : null}
      </td>
      <td class="lo mono"><Name text={domain.files.join(", ")} max={40} /></td>
      <td />
    </>
  );
  return (
    <>
      <Row path={path} depth={1} children={domain.children} cut={domain.cut ?? false} shared={shared} name={name} label={domain.name} cells={cells} />
      <Below path={path} depth={2} of={domain} shared={shared} />
    </>
  );
}

interface BelowProps {
  readonly path: TreePath;
  readonly depth: number;
  readonly of: Pick<Domain, "children" | "cut" | "descriptors">;
  readonly shared: Shared;
}

/** The rows below an open row: they came with the row, or are fetched now. */
function Below({ path, depth, of, shared }: BelowProps) {
  if (of.children === 0 || of.cut || !isOpen(path, shared.large)) return null;
  return of.descriptors
    ? <Descriptors path={path} depth={depth} of={of.descriptors} shared={shared} />
    : <FetchedRows path={path} depth={depth} all={of.children} shared={shared} />;
}

function FetchedRows({ path, depth, all, shared }: { path: TreePath; depth: number; all: number; shared: Shared }) {
  const [domain, ...entries] = path;
  const pages = usePages({ domain, entries });
  const of = pages.level?.descriptors;
  return (
    <>
      {pages.error ? <tr><td colSpan={COLUMNS}><Problem error={pages.error} /></td></tr> : null}
      {of ? <Descriptors path={path} depth={depth} of={of} shared={shared} /> : pages.error ? null : <tr><td colSpan={COLUMNS}><Loading /></td></tr>}
      <PageButtons pages={pages} depth={depth} all={all} />
    </>
  );
}

function PageButtons({ pages, depth, all }: { pages: Pages; depth: number; all?: number }) {
  if (!pages.next && !pages.back) return null;
  return (
    <tr>
      <td colSpan={COLUMNS}>
        <div class={`step step-${Math.min(depth, MAX_INDENT)}`}>
          <span class="twist" />
          <button class="small" disabled={!pages.back} onClick={() => pages.back?.()}>Previous</button>
          <button class="small" disabled={!pages.next} onClick={() => pages.next?.()}>Next</button>
          <span class="dim">page {pages.number}{all === undefined ? "" : `, ${all.toLocaleString("en")} at this level`}</span>
        </div>
      </td>
    </tr>
  );
}

function Descriptors({ path, depth, of, shared }: Omit<BelowProps, "of"> & { of: readonly Descriptor[] }) {
  return (
    <>
      {of.map((one) => {
        const entry = entryOf(one);
        const to: TreePath = [...path, entry];
        const key = JSON.stringify(entry);
        return [
          <One key={key} path={to} depth={depth} one={one} shared={shared} />,
          <Below key={`${key} below`} path={to} depth={depth + 1} of={one} shared={shared} />,
        ];
      })}
    </>
  );
}

interface OneProps {
  readonly path: TreePath;
  readonly depth: number;
  readonly one: Descriptor;
  /** The name of the row; its key and value when left out. */
  readonly text?: string;
  readonly shared: Shared;
}

function One({ path, depth, one, text, shared }: OneProps) {
  const [domain, ...entries] = path;
  // A descriptor of any value has many keys.
  const any = entries.some(([, value]) => !value || value.includes("*")) && !one.share_threshold;
  const limit = one.limit && !one.cut ? { domain, entries, rule: one.limit.rule } : null;
  const words = text ?? `${one.key}=${one.value || "*"}`;
  const shown = <><Name text={words} max={120} mono />{one.cut ? <span class="dim"> (cut)</span> : null}</>;
  const name = (
    <>
      {limit ? <a href={limitHref(domain, entries)}>{shown}</a> : shown}
      {one.share_threshold ? <span class="tag" title="all values that match share one counter">shared</span> : null}
    </>
  );
  const cells = (
    <>
      {one.limit ? <LimitCells limit={one.limit} any={any} /> : <NoLimit below={one.limits_below} />}
      <td class="lo mono"><Name text={[one.file, one.line].filter(Boolean).join(":")} max={40} /></td>
      <td>{limit ? <Buttons limit={limit} of={words} /> : null}</td>
    </>
  );
  return (
    <>
      <Row path={path} depth={depth} children={one.children} cut={one.cut ?? false} shared={shared} name={name} label={words} cells={cells} limit={limit} />
      {one.limit?.overrides?.map((override) => (
        <tr key={JSON.stringify([override.effect, override.rule, override.entries])} class="why">
          <td colSpan={9}>
            <div class={`step step-${Math.min(depth, MAX_INDENT)}`}>
              <span class="twist" />
              <span>{any && override.entries ? <><Name text={entriesText(override.entries)} max={80} mono />: </> : null}<OverrideLine one={override} /> <Resume one={override} /></span>
            </div>
          </td>
          <td class="lo" />
          <td />
        </tr>
      ))}
    </>
  );
}

/** The limits that came with the configuration and that a chip is about. */
export function Chosen({ pages, state }: { pages: Pages; state: string }) {
  const found = knownLimits(pages.level).filter(({ limit }) => isIn(state, limit));
  return (
    <Frame label="Chosen of the configuration">
      {found.map(({ domain, entries, one }) => {
        const path: TreePath = [domain, ...entries];
        return <One key={JSON.stringify(path)} path={path} depth={1} one={{ ...one, children: 0 }} text={`${domain} ${entriesText(entries)}`} shared={NOTHING} />;
      })}
      <Empty of={found} pages={pages} text="No limit is so now" />
    </Frame>
  );
}

interface LimitRef {
  readonly domain: string;
  readonly entries: Pairs;
  readonly rule: string;
}

/** The actions on a limit, each with its letter. */
const actionsOf = ({ domain, entries, rule }: LimitRef): readonly { readonly key: string; readonly icon: IconName; readonly label: string; readonly act: () => void }[] => [
  ...(mayAct() ? [
    { key: "p", icon: "bars", label: "Pause…", act: () => void override("pause", domain, entries, rule) },
    { key: "s", icon: "scale", label: "Scale…", act: () => void override("scale", domain, entries, rule) },
  ] as const : []),
  { key: "t", icon: "help", label: "Test a request", act: () => check(domain, entries) },
];

function Buttons({ limit, of }: { limit: LimitRef; of: string }) {
  const title = cut(plain(of), 100);
  return <button class="small bare square" aria-haspopup="dialog" data-key="m" aria-label={`Actions of ${title}`} onClick={() => show(title, <Menu {...limit} />)}><Icon name="more" /></button>;
}

function Menu(limit: LimitRef) {
  const { domain, entries, rule } = limit;
  const subject = isKey(entries) ? { domain, entries } : { rule };
  return (
    <>
      <ul class="menu">
        {actionsOf(limit).map(({ icon, label, act }) => <li key={label}><button type="button" onClick={() => (closeDialog(), act())}><Icon name={icon} />{label}</button></li>)}
        <li><a href={limitHref(domain, entries)}><Icon name="limits" />Open the limit</a></li>
        {"clipboard" in navigator ? <li><button type="button" onClick={() => (closeDialog(), void navigator.clipboard.writeText(pairsText(entries)))}><Icon name="queues" />Copy the key</button></li> : null}
      </ul>
      {mayAct() ? <><p>Pause, as a command</p><pre class="curl" tabIndex={0} role="region" aria-label="curl line">{curl({ method: "PUT", path: "v1/limits/overrides", body: { ...subject, pause: true, for: "10m" } })}</pre></> : null}
    </>
  );
}
