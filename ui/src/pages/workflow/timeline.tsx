// When jobs waited and ran: a row for each job, or for each step of a large workflow.
import { useState } from "preact/hooks";
import type { Graph, Job } from "../../model";
import { known, word } from "../../parts/state";
import { Loading } from "../../parts/table";
import { Name } from "../../parts/text";
import { now, span } from "../../parts/time";
import { stem, stepKey } from "./arrange";
import { began, ended, JobLink, readied, stateOf } from "./jobs";
import { Panel } from "./panel";

/** Beyond this number of jobs there is a row for each step. */
const MAX_ROWS = 40;
/** Pieces that are shorter than this part of the whole are not drawn. */
const MIN_SHARE = 0.002;
const TICKS = [0, 0.25, 0.5, 0.75, 1];

const WAITS: readonly string[] = ["waiting", "limited", "scheduled"];
interface Piece {
  readonly kind: string;
  readonly from: number;
  readonly to: number;
}

interface TimelineRow {
  readonly key: string;
  readonly jobs: readonly Job[];
  readonly pieces: readonly Piece[];
}

/** The latest attempt with its wait, and of those before it what is known: their ends, once the drawer has read the job. */
function pieces(job: Job, at: number): Piece[] {
  const [ready, start, end] = [readied(job), began(job), ended(job)];
  const found: Piece[] = [];
  let from = ready;
  let to = end;
  for (const error of job.errors ?? []) {
    const moment = Date.parse(error.at);
    if (error.attempt === job.attempt) to ??= moment;
    else {
      found.push({ kind: "failed", from: moment, to: moment });
      from = moment;
    }
  }
  if (from !== null) {
    const until = start !== null && start >= from ? start : (end ?? at);
    if (until >= from) found.push({ kind: stateOf(job) === "limited" ? "limited" : "waiting", from, to: until });
  }
  const over = to !== null && end === null;
  if (start !== null && (to !== null || job.state === "running")) found.push({ kind: over ? "failed" : job.state, from: start, to: Math.max(to ?? at, start) });
  const due = job.due_at ? Date.parse(job.due_at) : null;
  if (due !== null && due > at) found.push({ kind: "scheduled", from: at, to: due });
  return found;
}

/** The chain of jobs that ended last: from the last end back to the job that each one waited for longest. */
function criticalPath(jobs: readonly Job[]): Set<string> {
  const byName = new Map(jobs.map((job) => [job.name, job]));
  const endOf = (job: Job): number => (job.state === "running" ? Infinity : (ended(job) ?? -Infinity));
  const latest = (among: readonly Job[]): Job | undefined =>
    among.reduce<Job | undefined>((last, job) => (began(job) !== null && endOf(job) > (last ? endOf(last) : -Infinity) ? job : last), undefined);
  const path = new Set<string>();
  for (let job = latest(jobs); job && !path.has(job.name); job = latest(job.after.flatMap((name) => byName.get(name) ?? []))) path.add(job.name);
  return path;
}

const utc = (ms: number): string => new Date(ms).toISOString().replace("T", " ").slice(0, 23);

/** From the first that was ready to the first start; from there to the last end. */
function stepPieces(jobs: readonly Job[], at: number): Piece[] {
  const all = jobs.flatMap((job) => pieces(job, at));
  const waits = all.filter(({ kind }) => kind === "waiting" || kind === "limited");
  const runs = all.filter(({ kind }) => !WAITS.includes(kind));
  const ready = Math.min(...waits.map(({ from }) => from));
  const start = Math.min(...runs.map(({ from }) => from));
  const found: Piece[] = [];
  if (waits.length > 0) {
    const to = runs.length > 0 ? start : Math.max(...waits.map((one) => one.to));
    if (to > ready) found.push({ kind: waits.some(({ kind }) => kind === "limited") && runs.length === 0 ? "limited" : "waiting", from: ready, to });
  }
  const state = ["failed", "running", "succeeded"].find((one) => runs.some(({ kind }) => kind === one)) ?? runs[0]?.kind;
  if (state) found.push({ kind: state, from: start, to: Math.max(...runs.map((one) => one.to)) });
  return found;
}

export interface TimelineProps {
  readonly id: string;
  readonly graph: Graph | null;
  readonly jobs: readonly Job[] | null;
  readonly open: string | null;
  /** Whether jobs can still run. */
  readonly live: boolean;
}

export function Timeline({ id, graph, jobs, open, live }: TimelineProps) {
  const [opened, setOpened] = useState<ReadonlySet<string>>(new Set());
  // The clock of the page ticks each second, and may be behind that of the server.
  const at = (jobs ?? []).reduce((latest, job) => Math.max(latest, ended(job) ?? began(job) ?? 0), live ? now.value : now.peek());
  const order = [...(jobs ?? [])].sort((one, other) => one.index - other.index);
  const bySteps = order.length > MAX_ROWS && graph !== null;
  const rows: TimelineRow[] = [];
  if (bySteps) {
    const groups = new Map<string, Job[]>();
    for (const job of order) {
      const node = graph.nodes[job.index];
      const key = node ? stepKey(node) : String(job.index);
      groups.set(key, [...(groups.get(key) ?? []), job]);
    }
    for (const [key, members] of groups) {
      rows.push({ key, jobs: members, pieces: stepPieces(members, at) });
      if (opened.has(key) && members.length > 1) rows.push(...members.map((job) => ({ key: String(job.index), jobs: [job], pieces: pieces(job, at) })));
    }
  } else rows.push(...order.map((job) => ({ key: String(job.index), jobs: [job], pieces: pieces(job, at) })));
  const drawn = rows.filter((row) => row.pieces.length > 0);
  const all = drawn.flatMap((row) => row.pieces);
  const from = all.reduce((least, piece) => Math.min(least, piece.from), Infinity);
  const last = all.reduce((latest, piece) => Math.max(latest, piece.to), -Infinity);
  // Room behind the line of now.
  const whole = Math.max(last - from, 1) * (live ? 1.1 : 1);
  const share = (ms: number): string => `${(100 * ms) / whole}%`;
  const kinds = new Set(all.filter((piece) => piece.to - piece.from > MIN_SHARE * whole).map(({ kind }) => kind));
  // Of some of the jobs alone, another path could look critical.
  const critical = criticalPath(order.length === graph?.nodes.length ? order : []);
  const toggle = (key: string): void => setOpened((was) => new Set(was.has(key) ? [...was].filter((one) => one !== key) : [...was, key]));
  return (
    <Panel name="Timeline" className="timeline" note={bySteps ? "by step" : undefined}
      tools={<span class="legend">{critical.size > 1 ? <b>Critical path</b> : null}{WAITS.filter((kind) => kinds.has(kind)).map((kind) => <span key={kind}><i class={`piece ${kind}`} aria-hidden="true" /> {word(kind)}</span>)}{from === Infinity ? null : <span>{span(last - from)}</span>}</span>}>
      {jobs === null ? <p class="quiet"><Loading /></p> : from === Infinity ? <p class="quiet dim">None of these jobs has been ready yet</p> : (
        <ul>
          <li class="axis" aria-hidden="true">
            <span /><span class="track">{TICKS.map((tick) => <span key={tick} style={{ left: `${100 * tick}%` }}>{tick === 0 ? "0" : span(tick * whole)}</span>)}{live ? <b style={{ left: share(at - from) }}>now</b> : null}</span><span />
          </li>
          {drawn.map((row) => {
            const job = row.jobs[0] as Job;
            const many = row.jobs.length > 1;
            const runs = row.pieces.filter(({ kind }) => !WAITS.includes(kind));
            return (
              <li key={row.key} class={`${!many && job.name === open ? "on" : ""} ${row.jobs.some(({ name }) => critical.has(name)) ? "critical" : ""}`}>
                <span class="cut">{many ? <button class="link" aria-expanded={opened.has(row.key)} onClick={() => toggle(row.key)}><Name text={stem(job.name)} max={28} /> × {row.jobs.length}</button> : <JobLink id={id} name={job.name} max={32} />}</span>
                <span class="track">
                  {row.pieces.filter(({ kind, from, to }) => !WAITS.includes(kind) || to - from > MIN_SHARE * whole).map((piece, place) => (
                    <i key={place} class={`piece ${known(piece.kind)}`} style={{ left: share(piece.from - from), width: share(piece.to - piece.from) }}
                      title={`${word(piece.kind)} ${span(piece.to - piece.from)}, ${utc(piece.from)} to ${utc(piece.to).slice(11)} UTC`} />
                  ))}
                  {live ? <i class="now" style={{ left: share(at - from) }} /> : null}
                  <span class="hide">{row.pieces.map((piece) => `${word(piece.kind)} ${span(piece.to - piece.from)}`).join(", ")}</span>
                </span>
                <span class="num dim">{runs.length > 0 ? span(Math.max(...runs.map((one) => one.to)) - Math.min(...runs.map((one) => one.from))) : ""}</span>
              </li>
            );
          })}
        </ul>
      )}
    </Panel>
  );
}
