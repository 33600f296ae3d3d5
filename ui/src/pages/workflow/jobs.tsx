// The jobs of a workflow as a table, which is also the graph for who cannot see it.
import { useEffect, useState } from "preact/hooks";
import type { Job, Page } from "../../model";
import { WorkerLink } from "../../parts/drawer";
import { Duration, now } from "../../parts/time";
import { State } from "../../parts/state";
import { Table, type Column } from "../../parts/table";
import { cut, Name, plain } from "../../parts/text";
import { href, place, setQuery } from "../../router";
import { stem } from "./arrange";
import { Panel } from "./panel";

/** The state as the page says it: waiting jobs that cannot run any more, ready jobs without room, and attempts to come have own words. */
export function stateOf(job: Job): string {
  if (job.blocked && job.state === "waiting") return "blocked";
  if (job.state === "ready" && (job.why_not_running?.limit !== undefined || job.why_not_running?.reason === "limit")) return "limited";
  return job.state === "scheduled" && job.attempt > 0 ? "retrying" : job.state;
}

const ms = (at: string | null): number | null => (at ? Date.parse(at) : null);
export const readied = (job: Job): number | null => ms(job.ready_at);
export const began = (job: Job): number | null => ms(job.started_at);
export const ended = (job: Job): number | null => ms(job.finished_at);

/** A link that opens the panel of a job, and keeps the rest of the address. */
export function JobLink({ id, name, max = 60 }: { id: string; name: string; max?: number }) {
  const { job: _, ...query } = place.value.query;
  return <a href={href(["workflows", id], { ...query, job: name })}><Name text={name} max={max} /></a>;
}

/** How long the latest attempt ran, in milliseconds. */
export function ranFor(job: Job): number | null {
  const from = began(job);
  if (from === null) return null;
  const to = ended(job) ?? (job.state === "running" ? Math.max(now.value, from) : null);
  return to === null ? null : to - from;
}

export function waitedFor(job: Job): number | null {
  const ready = readied(job);
  if (ready === null) return null;
  const to = began(job) ?? (job.state === "ready" ? Math.max(now.value, ready) : null);
  return to === null || to < ready ? null : to - ready;
}

const Span = ({ ms }: { ms: number | null }) => (ms === null ? null : <Duration ms={ms} />);
const Runs = ({ job }: { job: Job }) => <Span ms={ranFor(job)} />;
const Waited = ({ job }: { job: Job }) => <Span ms={waitedFor(job)} />;

/** Equal neighbours beyond this number are one row. */
const MAX_EQUAL_ROWS = 8;

interface JobRow {
  readonly job: Job;
  /** Rows that stand behind this one. */
  readonly more: number;
}

/** Only those that need no look one by one. */
const alike = (one: Job, other: Job): boolean =>
  one.handler === other.handler && stem(one.name) === stem(other.name) && stateOf(one) === stateOf(other) && !["failed", "running", "retrying"].includes(stateOf(one));

function folded(jobs: readonly Job[], opened: ReadonlySet<number>, open: string | null): JobRow[] {
  const rows: JobRow[] = [];
  for (let from = 0; from < jobs.length; ) {
    const first = jobs[from] as Job;
    let to = from + 1;
    while (to < jobs.length && alike(first, jobs[to] as Job)) to++;
    const equal = jobs.slice(from, to);
    if (equal.length <= MAX_EQUAL_ROWS || opened.has(first.index) || equal.some((job) => job.name === open)) rows.push(...equal.map((job) => ({ job, more: 0 })));
    else rows.push({ job: first, more: equal.length - 1 });
    from = to;
  }
  return rows;
}

const columns = (id: string, show: (row: JobRow) => void): readonly Column<JobRow>[] => [
  { head: "State", cell: ({ job }) => <State state={stateOf(job)} /> },
  { head: "Job", names: true, cell: (row) => (
    <><JobLink id={id} name={row.job.name} max={48} />{row.more > 0 ? <> <button class="link above" onClick={() => show(row)}>and {row.more.toLocaleString("en")} more</button></> : null}</>
  ) },
  { head: "Handler", kind: "narrow", cell: ({ job }) => <span class="dim"><Name text={job.handler} max={40} /></span> },
  { head: "Attempt", kind: "number", cell: ({ job }) => <span class="dim">{job.attempt}/{job.retries + 1}</span> },
  { head: "Waited", kind: "number", cell: ({ job, more }) => (more > 0 ? null : <Waited job={job} />) },
  { head: "Ran", kind: "number", cell: ({ job, more }) => (more > 0 ? null : <Runs job={job} />) },
  { head: "Error or reason", kind: "wide", cell: ({ job }) => <Why job={job} /> },
];

const capital = (text: string): string => text.slice(0, 1).toUpperCase() + text.slice(1);

/** Why a job does not run, in the words of the page. */
export function reason(job: Job): string {
  const why = job.why_not_running;
  if (!why) return "";
  const names = why.jobs ?? [];
  if (names.length > 0 && ["doomed", "blocked_by"].includes(why.reason)) return `Blocked by ${names.slice(0, 2).join(", ")}${names.length > 2 ? ` and ${names.length - 2} more` : ""}`;
  return capital(cut(plain(why.text), 200));
}

function Why({ job }: { job: Job }) {
  const { error } = job;
  if (error && (job.state === "failed" || stateOf(job) === "retrying")) return <bdi class="bad">{cut(plain(`${error.kind}: ${error.message}`), 200)}</bdi>;
  const why = reason(job);
  if (why) return <bdi class="dim">{why}</bdi>;
  return job.worker && job.state === "running" ? <span class="dim">On <WorkerLink name={job.worker} max={40} /></span> : null;
}

const CHIPS = ["failed", "running", "retrying", "limited", "ready", "scheduled", "waiting", "blocked", "succeeded", "cancelled", "skipped"];

export interface JobsProps {
  readonly id: string;
  readonly page: Page<Job> | null;
  /** Of all jobs of the workflow, by state. */
  readonly counts: Readonly<Record<string, number>>;
  readonly open: string | null;
  /** The page could not be had. */
  readonly failed: boolean;
}

export function Jobs({ id, page, counts, open, failed }: JobsProps) {
  const [opened, setOpened] = useState<ReadonlySet<number>>(new Set());
  const { state = "", cursor, q } = place.value.query;
  const chosen = new Set(state.split(",").filter(Boolean));
  const toggle = (word: string): void => {
    if (!chosen.delete(word)) chosen.add(word);
    setQuery({ state: [...chosen].join(","), cursor: null });
  };
  const chips = (
    <form class="chips" role="search" aria-label="Filter of jobs" onSubmit={(event) => event.preventDefault()}>
      <fieldset>
        <legend class="hide">State</legend>
        <label class={chosen.size === 0 ? "chip on" : "chip"}>
          <input type="checkbox" checked={chosen.size === 0} onChange={() => setQuery({ state: null, cursor: null })} />All <b>{(counts["total"] ?? 0).toLocaleString("en")}</b>
        </label>
        {CHIPS.filter((word) => (counts[word] ?? 0) > 0 || chosen.has(word)).map((word) => (
          <label key={word} class={chosen.has(word) ? "chip on" : "chip"}>
            <input type="checkbox" checked={chosen.has(word)} onChange={() => toggle(word)} />
            <State state={word} count={counts[word] ?? 0} />
          </label>
        ))}
      </fieldset>
    </form>
  );
  return (
    <Panel name="Jobs" note={chips} tools={<>
      {cursor ? <button type="button" class="small" onClick={() => setQuery({ cursor: null }, "keep")}>First jobs</button> : null}
      {page?.next_cursor ? <button type="button" class="small" onClick={() => setQuery({ cursor: page.next_cursor }, "keep")}>Next jobs</button> : null}
      <Search value={q ?? ""} />
    </>}>
      <Table label="Jobs" link columns={columns(id, ({ job }) => setOpened((was) => new Set([...was, job.index])))} rows={page ? folded(page.items, opened, open) : null}
        rowKey={({ job }) => String(job.index)} failed={failed} empty={q ? `No job matches ${cut(plain(q), 60)}` : "No job has this state"} selected={({ job }) => job.name === open} />
    </Panel>
  );
}

function Search({ value }: { value: string }) {
  const [typed, type] = useState(value);
  useEffect(() => type(value), [value]);
  useEffect(() => {
    if (typed.trim() === value) return;
    const timer = setTimeout(() => setQuery({ q: typed.trim(), cursor: null }), 300);
    return () => clearTimeout(timer);
  }, [typed]);
  return <input type="search" data-filter size={14} dir="auto" spellcheck={false} maxLength={200} aria-label="Filter jobs by name" placeholder="Filter" value={typed} onInput={(event) => type(event.currentTarget.value)} />;
}
