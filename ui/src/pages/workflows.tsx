// The list of workflows: filters stand in the address, pages go by cursor, and a new workflow is there within a second.
import { useEffect, useState } from "preact/hooks";
import { withQuery } from "../api";
import { TopBar } from "../frame/top";
import type { Page, Workflow } from "../model";
import { Icon } from "../parts/icon";
import { Ago, Duration, now } from "../parts/time";
import { Problem } from "../parts/toasts";
import { State, STATUSES } from "../parts/state";
import { Table, type Column } from "../parts/table";
import { Name } from "../parts/text";
import { usePoll } from "../poll";
import { href, place, setQuery } from "../router";
import { Bulk } from "./workflows/bulk";

/** Names of filters, as the API has them. */
const FILTERS = ["name", "tag", "id_prefix", "created_after", "created_before"] as const;
const SIZES = ["20", "50", "100", "200"];

type Filter = Readonly<Record<string, string | undefined>>;

/** Where pages begin that were seen: a cursor leads forward only. By the filter and the number of the page. */
const seen = new Map<string, string>();

export function Workflows() {
  const query = place.value.query;
  const filter: Filter = Object.fromEntries(["status", ...FILTERS, "order"].map((name) => [name, query[name]]));
  const size = query["limit"] ?? "50";
  const number = Math.max(1, Number(query["page"]) || 1);
  const cursor = query["cursor"];
  const list = withQuery("v1/workflows", { ...filter, limit: size, cursor });
  // The first page is where new ones come.
  const { data, error, again } = usePoll<Page<Workflow>>(list, cursor ? 3000 : 700);
  const key = (page: number): string => JSON.stringify([filter, size, page]);
  if (cursor) seen.set(key(number), cursor);
  const before = seen.get(key(number - 1));
  const next = data?.next_cursor;
  return (
    <>
      <TopBar title="Workflows" />
      <Filters filter={filter} />
      <Bulk filter={filter} done={again} />
      <Problem error={error} />
      {data?.incomplete ? <p class="warning">Some are missing: <Name text={data.incomplete.reason} max={300} /></p> : null}
      <Table label="Workflows" columns={COLUMNS} rows={data?.items ?? null} rowKey={(row) => row.id} failed={error !== null} empty="No workflow matches" />
      <div class="buttons" role="group" aria-label="Pages">
        <button disabled={!cursor} onClick={() => setQuery({ cursor: null, page: null }, "keep")}>First</button>
        <button disabled={number < 3 ? number < 2 : !before} onClick={() => setQuery({ cursor: number > 2 ? before : null, page: number > 2 ? String(number - 1) : null }, "keep")}>Previous</button>
        <span>Page {number}</span>
        <button disabled={!next} onClick={() => setQuery({ cursor: next, page: String(number + 1) }, "keep")}>Next</button>
        <label>Rows
          <select value={size} onChange={(event) => setQuery({ limit: event.currentTarget.value, cursor: null, page: null })}>
            {[...new Set([...SIZES, size])].map((one) => <option key={one}>{one}</option>)}
          </select>
        </label>
      </div>
    </>
  );
}

function took(row: Workflow): number | null {
  if (!row.started_at) return null;
  return (row.finished_at ? Date.parse(row.finished_at) : Math.max(now.value, Date.parse(row.started_at))) - Date.parse(row.started_at);
}

const COLUMNS: readonly Column<Workflow>[] = [
  { head: "Status", cell: (row) => <State state={row.status} /> },
  { head: "Workflow", names: true, cell: (row) => <a href={href(["workflows", row.id])}><Name text={row.name} max={60} /></a> },
  { head: "ID", kind: "narrow", cell: (row) => <span class="mono faint">{row.id}</span> },
  { head: "Jobs done", cell: (row) => <Progress row={row} /> },
  { head: "Created", cell: (row) => <Ago at={row.created_at} /> },
  { head: "Took", kind: "number", cell: (row) => <Took row={row} /> },
  { head: "Tags", kind: "wide", cell: (row) => row.tags.map((tag) => (
    <a key={tag} class="tag" href={href(["workflows"], { tag })}><Name text={tag} max={40} /></a>
  )) },
];

function Took({ row }: { row: Workflow }) {
  return <Duration ms={took(row)} />;
}

const count = (row: Workflow, state: string): number => row.job_counts[state] ?? 0;

/** A bar for the eye, and the numbers as text. */
function Progress({ row }: { row: Workflow }) {
  const { total } = row.job_counts;
  const ended = count(row, "succeeded") + count(row, "skipped") + count(row, "failed") + count(row, "cancelled");
  const failed = count(row, "failed");
  const running = count(row, "running");
  return (
    <span class="use">
      <Bar counts={row.job_counts} />
      <span><b>{ended.toLocaleString("en")}</b> of {total.toLocaleString("en")}</span>
      {running > 0 ? <span class="run"><Icon name="play" small /> {running}<span class="hide"> running</span></span> : null}
      {failed > 0 ? <span class="bad"><Icon name="cross" small /> {failed}<span class="hide"> failed</span></span> : null}
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
  readonly by_status: Readonly<Record<string, number>>;
}

function Filters({ filter }: { filter: Filter }) {
  const chosen = new Set((filter["status"] ?? "").split(",").filter(Boolean));
  const { status: _, order, ...rest } = filter;
  // With a tag and a name each workflow would have to be read.
  const countPath = rest["tag"] && rest["name"] ? null : withQuery("v1/workflows:count", rest);
  const counts = usePoll<Counts>(countPath, 3000).data?.by_status;
  const toggle = (status: string): void => {
    if (!chosen.delete(status)) chosen.add(status);
    setQuery({ status: [...chosen].join(","), cursor: null, page: null });
  };
  const set = (name: string, value: string): void => setQuery({ [name]: value, cursor: null, page: null });
  const any = chosen.size > 0 || order || Object.values(rest).some(Boolean);
  return (
    <form class="filters" role="search" aria-label="Filter of workflows" onSubmit={(event) => event.preventDefault()}>
      <fieldset>
        <legend class="hide">status</legend>
        {STATUSES.map((status) => (
          <label key={status} class={chosen.has(status) ? "chip on" : "chip"}>
            <input type="checkbox" checked={chosen.has(status)} onChange={() => toggle(status)} />
            <State state={status} {...(counts ? { count: counts[status] ?? 0 } : {})} />
          </label>
        ))}
      </fieldset>
      <Field name="name" label="Name" value={filter["name"]} set={set} first />
      <Field name="tag" label="Tag" value={filter["tag"]} set={set} />
      <details open={Boolean(rest["id_prefix"] || rest["created_after"] || rest["created_before"])}>
        <summary>More filters</summary>
        <div class="filters">
          <Field name="id_prefix" label="ID begins with" value={filter["id_prefix"]} set={set} least={4} />
          <Moment name="created_after" label="Created after" value={filter["created_after"]} set={set} />
          <Moment name="created_before" label="Created before" value={filter["created_before"]} set={set} />
        </div>
      </details>
      <label>Order
        <select value={order ?? "newest"} onChange={(event) => set("order", event.currentTarget.value === "oldest" ? "oldest" : "")}>
          <option value="newest">Newest first</option>
          <option value="oldest">Oldest first</option>
        </select>
      </label>
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
      <input type="search" dir="auto" size={12} value={typed} spellcheck={false} maxLength={200} {...(first ? { "data-filter": true } : {})}
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
