// The list of workflows: filters stand in the address, pages go by cursor, and a new workflow is there within a second.
import { useEffect, useRef, useState } from "preact/hooks";
import { mayAct, withQuery } from "../api";
import { TopBar } from "../frame/top";
import type { Page, Workflow } from "../model";
import { Empty } from "../parts/empty";
import { Menu } from "../parts/menu";
import { Ago, Duration, now } from "../parts/time";
import { Problem } from "../parts/toasts";
import { State, STATUSES } from "../parts/state";
import { Table, type Column } from "../parts/table";
import { cut, many, Name, plain } from "../parts/text";
import { usePoll, type Polled } from "../poll";
import { href, place, setQuery } from "../router";
import { verbsOf } from "./workflow/verbs";
import { Bulk } from "./workflows/bulk";
import { Selection } from "./workflows/selection";

/** Names of filters, as the API has them. */
const FILTERS = ["q", "name", "tag", "id_prefix", "created_after", "created_before"] as const;
/** Milliseconds between two searches, for each of which the server reads up to 10,000 workflows. */
const SEARCH_INTERVAL = 30_000;
/** Longer lists have no errors in their rows. */
const SIZES = ["20", "50", "100"];

/** With a text, the answer has the number of workflows that the server looked at, and whether there are older ones. */
interface Searched extends Page<Workflow> {
  readonly searched?: number;
  readonly older?: boolean;
}

type Filter = Readonly<Record<string, string | undefined>>;

/** Where pages begin that were seen: a cursor leads forward only. By the filter and the number of the page. */
const seen = new Map<string, string>();

export function Workflows() {
  const query = place.value.query;
  const filter: Filter = Object.fromEntries(["status", ...FILTERS, "order"].map((name) => [name, query[name]]));
  const size = query["limit"] ?? "50";
  const number = Math.max(1, Number(query["page"]) || 1);
  const cursor = query["cursor"];
  const [selected, select] = useState<ReadonlySet<string>>(new Set());
  const list = withQuery("v1/workflows", { ...filter, limit: size, cursor });
  // The first page is where new ones come.
  const { data, error, again } = usePoll<Searched>(list, query["q"] ? SEARCH_INTERVAL : cursor ? 3000 : 700);
  const counts = useCounts(filter);
  const counted = counts.data;
  const changed = (): void => (again(), counts.again());
  const key = (page: number): string => JSON.stringify([filter, size, page]);
  if (cursor) seen.set(key(number), cursor);
  const before = seen.get(key(number - 1));
  const next = data?.next_cursor;
  const hold = !cursor && !filter["order"] && (selected.size > 0 || scrollY > 0);
  const { rows, fresh, show } = useHeld(data, list, hold);
  const any = Object.entries(filter).some(([name, value]) => name !== "order" && value);
  const pages = Boolean(cursor || next);
  return (
    <>
      <TopBar title="Workflows" />
      <Problem error={error} />
      {data?.incomplete ? <p class="warning">Some are missing: <Name text={data.incomplete.reason} max={300} /></p> : null}
      <section class="panel part" aria-label="List of workflows">
        <Filters filter={filter} counted={counted} />
        {fresh > 0 ? <button class="small fresh" onClick={show}>{fresh} new</button> : null}
        <Table label="Workflows" link columns={columns(rows ?? [], selected, select, again)} rows={rows} rowKey={(row) => row.id} failed={error !== null} selected={(row) => selected.has(row.id)}
          empty={any ? <span>No workflow matches{query["q"] ? <> '<Name text={query["q"]} max={60} />'</> : null}{data?.older ? ` in the ${cursor ? "next" : "newest"} ${data.searched?.toLocaleString("en")}` : ""}. <a href={href(["workflows"])}>Clear filters</a></span> : <Empty icon="workflows" title="No workflows yet" text="Create one of two jobs, then start a worker:" command="tidegate workflow run report.yaml" />} />
        <footer role="group" aria-label="Pages">
          {pages ? <>
            <button class="small" disabled={!cursor} onClick={() => setQuery({ cursor: null, page: null }, "keep")}>First</button>
            <button class="small" disabled={number < 3 ? number < 2 : !before} onClick={() => setQuery({ cursor: number > 2 ? before : null, page: number > 2 ? String(number - 1) : null }, "keep")}>Previous</button>
            <span>Page {number}</span>
            <button class="small" disabled={!next} onClick={() => setQuery({ cursor: next, page: String(number + 1) }, "keep")}>{data?.older ? `Search ${filter["order"] ? "newer" : "older"}` : "Next"}</button>
          </> : <span>{rows ? many(rows.length, "workflow") : ""}</span>}
          <label class="push">Rows
            <select value={size} onChange={(event) => setQuery({ limit: event.currentTarget.value, cursor: null, page: null })}>
              {[...new Set([...SIZES, size])].map((one) => <option key={one}>{one}</option>)}
            </select>
          </label>
        </footer>
      </section>
      {any ? <Bulk filter={filter} counts={counted && !counted.older ? counted.by_status : null} done={changed} /> : null}
      <Selection rows={(rows ?? []).filter((row) => selected.has(row.id))} all={rows ?? []} select={select} done={changed} />
    </>
  );
}

/** While `hold` is true, new workflows are only counted, until `show` is called. Ids grow with time. */
function useHeld(page: Page<Workflow> | null, list: string, hold: boolean) {
  const shown = useRef<{ list: string; rows: readonly Workflow[] }>({ list: "", rows: [] });
  const [, draw] = useState({});
  const items = page?.items ?? null;
  let [rows, fresh] = [items, 0];
  const newest = shown.current.rows[0]?.id;
  if (items && newest && hold && shown.current.list === list) {
    const oldest = items.at(-1)?.id ?? "";
    // New ones push others off a full page.
    const pushed = page?.next_cursor ? shown.current.rows.filter(({ id }) => id < oldest) : [];
    const held = items.filter(({ id }) => id <= newest);
    rows = [...held, ...pushed];
    fresh = items.length - held.length;
  }
  if (rows) shown.current = { list, rows };
  const show = (): void => {
    shown.current.list = "";
    scrollTo(0, 0);
    draw({});
  };
  return { rows, fresh, show };
}

function took(row: Workflow): number | null {
  if (!row.started_at) return null;
  return (row.finished_at ? Date.parse(row.finished_at) : Math.max(now.value, Date.parse(row.started_at))) - Date.parse(row.started_at);
}

type Select = (change: (was: ReadonlySet<string>) => ReadonlySet<string>) => void;

function columns(rows: readonly Workflow[], selected: ReadonlySet<string>, select: Select, done: () => void): readonly Column<Workflow>[] {
  const every = rows.length > 0 && rows.every((row) => selected.has(row.id));
  const toggle = (id: string): void => select((was) => new Set(was.has(id) ? [...was].filter((one) => one !== id) : [...was, id]));
  const checks: Column<Workflow> = {
    head: <input type="checkbox" aria-label="Select all of this page" checked={every} onChange={() => select(() => new Set(every ? [] : rows.map((row) => row.id)))} />,
    cell: (row) => <label class="check"><input type="checkbox" data-key="x" aria-label={`Select ${cut(plain(row.name), 60)}`} checked={selected.has(row.id)} onChange={() => toggle(row.id)} /></label>,
  };
  return [
    ...(mayAct() ? [checks] : []),
    { head: "Status", cell: (row) => <State state={row.status} /> },
    { head: "Workflow", names: true, cell: (row) => <><a href={href(["workflows", row.id])}><Name text={row.name} max={60} /></a> <span class="mono faint" title={row.id}>{row.id.slice(0, 10)}</span></> },
    { head: "Jobs done", cell: (row) => <Progress row={row} /> },
    { head: "Error or running jobs", kind: "wide", cell: (row) => <Trouble row={row} /> },
    { head: "Tags", kind: "narrow", cell: (row) => row.tags.map((tag) => (
      <a key={tag} class="tag" href={href(["workflows"], { tag })}><Name text={tag} max={40} /></a>
    )) },
    { head: "Created", kind: "number", cell: (row) => <span class="dim"><Ago at={row.created_at} /></span> },
    { head: "Took", kind: "number", cell: (row) => <Took row={row} /> },
    { head: "", cell: (row) => <Menu small label={`Actions on ${cut(plain(row.name), 60)}`} verbs={verbsOf(row, done)} /> },
  ];
}

/** The job that failed first, or those that run. */
function Trouble({ row }: { row: Workflow }) {
  const { error, running } = row;
  if (error && row.status !== "succeeded") return <bdi class="bad">{cut(plain(`${error.job}: ${error.kind === null ? "its error is lost" : `${error.kind}, ${error.message}`}`), 160)}</bdi>;
  if (!running || running.length === 0) return null;
  const more = count(row, "running") - running.length;
  return <span class="dim"><Name text={running.join(", ")} max={120} />{more > 0 ? ` and ${more.toLocaleString("en")} more` : ""}</span>;
}

function Took({ row }: { row: Workflow }) {
  return <Duration ms={took(row)} />;
}

const count = (row: Workflow, state: string): number => row.job_counts[state] ?? 0;

/** A bar for the eye, and the numbers as text. */
function Progress({ row }: { row: Workflow }) {
  const { total } = row.job_counts;
  const ended = count(row, "succeeded") + count(row, "skipped");
  return (
    <span class="use">
      <Bar counts={row.job_counts} />
      <span><b>{ended.toLocaleString("en")}</b> of {total.toLocaleString("en")}</span>
    </span>
  );
}

const PARTS = ["succeeded", "skipped", "failed", "cancelled", "running"] as const;

export function Bar({ counts }: { counts: Workflow["job_counts"] }) {
  return (
    <span class="bar" aria-hidden="true">
      {PARTS.map((state) => {
        const share = (counts[state] ?? 0) / counts.total;
        return share > 0 ? <span key={state} class={`fill ${state}`} style={{ width: `${100 * share}%` }} /> : null;
      })}
    </span>
  );
}

interface Counts {
  readonly older?: boolean;
  readonly by_status: Readonly<Record<string, number>>;
}

function useCounts({ status: _, order: __, ...rest }: Filter): Polled<Counts> {
  // With a tag and a name each workflow would have to be read.
  return usePoll<Counts>(rest["tag"] && rest["name"] ? null : withQuery("v1/workflows:count", rest), rest["q"] ? SEARCH_INTERVAL : 3000);
}

function Filters({ filter, counted }: { filter: Filter; counted: Counts | null }) {
  const chosen = new Set((filter["status"] ?? "").split(",").filter(Boolean));
  const { status: _, order, ...rest } = filter;
  const counts = counted?.by_status;
  const amount = (count: number): string => `${count.toLocaleString("en")}${counted?.older ? "+" : ""}`;
  const toggle = (status: string): void => {
    if (!chosen.delete(status)) chosen.add(status);
    setQuery({ status: [...chosen].join(","), cursor: null, page: null });
  };
  const set = (name: string, value: string): void => setQuery({ [name]: value, cursor: null, page: null });
  const any = chosen.size > 0 || order || Object.values(rest).some(Boolean);
  const total = counts && Object.values(counts).reduce((sum, count) => sum + count, 0);
  return (
    <form class="filters list-head" role="search" aria-label="Filter of workflows" onSubmit={(event) => event.preventDefault()}>
      <Field name="q" label="Filter" value={filter["q"]} set={set} first />
      <fieldset>
        <legend class="hide">status</legend>
        <label class={chosen.size === 0 ? "chip on" : "chip"}>
          <input type="checkbox" checked={chosen.size === 0} onChange={() => setQuery({ status: null, cursor: null, page: null })} />All{total === undefined ? null : <b>{amount(total)}</b>}
        </label>
        {STATUSES.filter((status) => status !== "pending" || chosen.has(status) || (counts?.[status] ?? 0) > 0).map((status) => (
          <label key={status} class={chosen.has(status) ? "chip on" : "chip"}>
            <input type="checkbox" checked={chosen.has(status)} onChange={() => toggle(status)} />
            <State state={status} {...(counts ? { count: amount(counts[status] ?? 0) } : {})} />
          </label>
        ))}
      </fieldset>
      <Field name="tag" label="Tag" value={filter["tag"]} set={set} />
      <details open={Boolean(rest["name"] || rest["id_prefix"] || rest["created_after"] || rest["created_before"])}>
        <summary>More filters</summary>
        <div class="filters">
          <Field name="name" label="Name" value={filter["name"]} set={set} />
          <Field name="id_prefix" label="ID begins with" value={filter["id_prefix"]} set={set} least={4} />
          <Moment name="created_after" label="Created after" value={filter["created_after"]} set={set} />
          <Moment name="created_before" label="Created before" value={filter["created_before"]} set={set} />
        </div>
      </details>
      <span class="push">
        <select aria-label="Order" value={order ?? "newest"} onChange={(event) => set("order", event.currentTarget.value === "oldest" ? "oldest" : "")}>
          <option value="newest">Newest first</option>
          <option value="oldest">Oldest first</option>
        </select>
      </span>
      {any ? <a href={href(["workflows"])}>Clear filters</a> : null}
    </form>
  );
}

interface FieldProps {
  readonly name: string;
  readonly label: string;
  readonly value: string | undefined;
  readonly set: (name: string, value: string) => void;
}

/** Set when the reader pauses: the list follows while they type. */
function Field({ name, label, value = "", set, first = false, least = 0 }: FieldProps & { first?: boolean; least?: number }) {
  const [typed, type] = useState(value);
  useEffect(() => type(value), [value]);
  useEffect(() => {
    if (typed === value || (typed.length > 0 && typed.length < least)) return;
    const timer = setTimeout(() => set(name, typed.trim()), 350);
    return () => clearTimeout(timer);
  }, [typed]);
  return (
    <label>{label}
      <input type="search" dir="auto" size={first ? 24 : 12} placeholder={first ? "Name, tag, id, key or error" : least ? "" : "Exact"} value={typed} spellcheck={false} maxLength={200} {...(first ? { "data-filter": true } : {})}
        onInput={(event) => type(event.currentTarget.value)} onKeyDown={(event) => event.key === "Enter" && set(name, typed.trim())} />
    </label>
  );
}

/** In the zone of the reader; the API takes any zone. */
function Moment({ name, label, value, set }: FieldProps) {
  const at = value ? new Date(value) : null;
  const local = at && !Number.isNaN(at.getTime()) ? new Date(at.getTime() - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 16) : "";
  const changed = (text: string): void => {
    const moment = new Date(text);
    set(name, Number.isNaN(moment.getTime()) ? "" : moment.toISOString());
  };
  return <label>{label} <input type="datetime-local" value={local} onChange={(event) => changed(event.currentTarget.value)} /></label>;
}
