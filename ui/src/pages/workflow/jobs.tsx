// The jobs of a workflow: as a table, which is also the graph for who cannot see it, and as bars over time.
import type { Job, Page } from "../../model";
import { Duration, now, span } from "../../parts/time";
import { known, State, STATES, word } from "../../parts/state";
import { Loading, Table, UNKNOWN, type Column } from "../../parts/table";
import { cut, Name, plain } from "../../parts/text";
import { href, place, setQuery } from "../../router";

/** The state as the page says it: waiting jobs that cannot run any more, ready jobs without room, and attempts to come have own words. */
export function stateOf(job: Job): string {
  if (job.blocked && job.state === "waiting") return "blocked";
  if (job.state === "ready" && (job.why_not_running?.limit !== undefined || job.why_not_running?.reason === "limit")) return "limited";
  return job.state === "scheduled" && job.attempt > 0 ? "retrying" : job.state;
}

const ms = (at: string | null): number | null => (at ? Date.parse(at) : null);

/** A link that opens the panel of a job, and keeps the rest of the address. */
export function JobLink({ id, name, max = 60 }: { id: string; name: string; max?: number }) {
  const { job: _, ...query } = place.value.query;
  return <a href={href(["workflows", id], { ...query, job: name })}><Name text={name} max={max} /></a>;
}

function Runs({ job }: { job: Job }) {
  const began = ms(job.started_at);
  if (began === null) return <Duration ms={null} />;
  const end = ms(job.finished_at) ?? (job.state === "running" ? Math.max(now.value, began) : null);
  return <Duration ms={end === null ? null : end - began} />;
}

function Waited({ job }: { job: Job }) {
  const ready = ms(job.ready_at);
  if (ready === null) return <Duration ms={null} />;
  const end = ms(job.started_at) ?? (job.state === "ready" ? Math.max(now.value, ready) : null);
  return <Duration ms={end === null || end < ready ? null : end - ready} />;
}

function columns(id: string): readonly Column<Job>[] {
  return [
    { head: "State", cell: (job) => <State state={stateOf(job)} /> },
    { head: "Job", names: true, cell: (job) => <JobLink id={id} name={job.name} max={48} /> },
    { head: "Handler", kind: "narrow", cell: (job) => <Name text={job.handler} max={40} /> },
    { head: "Attempt", kind: "number", cell: (job) => `${job.attempt} of ${job.retries + 1}` },
    { head: "Waited", kind: "number", cell: (job) => <Waited job={job} /> },
    { head: "Ran", kind: "number", cell: (job) => <Runs job={job} /> },
    { head: "After", kind: "narrow", cell: (job) => <After id={id} job={job} /> },
    { head: "Error or reason", kind: "wide", cell: (job) => <Why job={job} /> },
  ];
}

function After({ id, job }: { id: string; job: Job }) {
  const [first, ...more] = job.after;
  if (first === undefined) return <span class="dim">–</span>;
  return <><JobLink id={id} name={first} max={24} />{more.length > 0 ? <span class="dim"> and {more.length} more</span> : null}</>;
}

function Why({ job }: { job: Job }) {
  const why = job.why_not_running;
  return why ? <bdi class="dim">{cut(plain(why.text), 200)}</bdi> : job.worker && job.state === "running" ? <span class="dim">Runs at <Name text={job.worker} max={40} /></span> : null;
}

export interface JobsProps {
  readonly id: string;
  readonly page: Page<Job> | null;
  readonly counts: Readonly<Record<string, number>>;
  readonly open: string | null;
  /** The page could not be had. */
  readonly failed: boolean;
}

/** The filter by state and the pages, which table and bars share. */
export function JobsFilter({ page, counts }: Omit<JobsProps, "id" | "open" | "failed">) {
  const { state = "", cursor } = place.value.query;
  const chosen = new Set(state.split(",").filter(Boolean));
  const toggle = (state: string): void => {
    if (!chosen.delete(state)) chosen.add(state);
    setQuery({ state: [...chosen].join(","), cursor: null });
  };
  return (
    <form class="filters" role="search" aria-label="Filter of jobs" onSubmit={(event) => event.preventDefault()}>
      <fieldset>
        <legend class="hide">state</legend>
        {STATES.filter((word) => (counts[word] ?? 0) > 0 || chosen.has(word)).map((word, at) => (
          <label key={word} class={chosen.has(word) ? "chip on" : "chip"}>
            <input type="checkbox" checked={chosen.has(word)} onChange={() => toggle(word)} {...(at === 0 ? { "data-filter": true } : {})} />
            <State state={word} count={counts[word] ?? 0} />
          </label>
        ))}
      </fieldset>
      {cursor ? <button type="button" class="small" onClick={() => setQuery({ cursor: null }, "keep")}>First jobs</button> : null}
      {page?.next_cursor ? <button type="button" class="small" onClick={() => setQuery({ cursor: page.next_cursor }, "keep")}>Next jobs</button> : null}
    </form>
  );
}

export function Jobs({ id, page, open, failed }: JobsProps) {
  return <Table label="Jobs" columns={columns(id)} rows={page?.items ?? null} rowKey={(job) => String(job.index)} failed={failed} empty="No job has this state" selected={(job) => job.name === open} />;
}

interface Piece {
  readonly kind: string;
  readonly from: number;
  readonly to: number;
}

/** The phases of a job's latest attempt. */
export function pieces(job: Job, at: number): Piece[] {
  const [ready, began, ended] = [ms(job.ready_at), ms(job.started_at), ms(job.finished_at)];
  const found: Piece[] = [];
  const throttled = job.why_not_running?.limit !== undefined || job.why_not_running?.reason === "limit";
  if (ready !== null) {
    const to = began !== null && began >= ready ? began : (ended ?? at);
    if (to >= ready) found.push({ kind: throttled ? "limited" : "waiting", from: ready, to });
  }
  if (began !== null && (ended !== null || job.state === "running")) {
    found.push({ kind: job.state === "running" ? "running" : job.state, from: began, to: Math.max(ended ?? at, began) });
  }
  const due = ms(job.due_at);
  if (due !== null && due > at) found.push({ kind: "scheduled", from: at, to: due });
  return found;
}

export function Timeline({ id, page, open, failed }: JobsProps) {
  if (!page) return failed ? <p class="dim">{UNKNOWN}</p> : <p><Loading /></p>;
  const at = page.items.some((job) => job.finished_at === null) ? now.value : now.peek();
  const all = page.items.map((job) => pieces(job, at));
  const ends = all.flat();
  const from = ends.reduce((least, piece) => Math.min(least, piece.from), Infinity);
  const to = ends.reduce((latest, piece) => Math.max(latest, piece.to), -Infinity);
  if (from === Infinity) return <p class="dim">None of these jobs has been ready yet.</p>;
  const whole = Math.max(to - from, 1);
  return (
    <div class="panel scroll timeline" role="region" aria-label="Timeline" tabIndex={0}>
      <p class="legend">
        {["waiting", "limited", "running", "succeeded", "failed", "scheduled"].map((kind) => (
          <span key={kind}><i class={`piece ${kind}`} aria-hidden="true" /> {word(kind)}</span>
        ))}
        <span class="dim num">0 to {span(whole)}</span>
      </p>
      <table>
        <thead><tr><th scope="col">Job</th><th scope="col" class="wide">Time</th><th scope="col" class="num">Ran</th></tr></thead>
        <tbody>
          {page.items.map((job, row) => (
            <tr key={job.index} class={job.name === open ? "on" : undefined}>
              <th scope="row"><JobLink id={id} name={job.name} max={32} /></th>
              <td class="wide">
                <span class="track">
                  {all[row]?.map((piece) => (
                    <i key={piece.kind} class={`piece ${known(piece.kind)}`}
                      style={{ left: `${(100 * (piece.from - from)) / whole}%`, width: `${(100 * (piece.to - piece.from)) / whole}%` }}
                      title={`${word(piece.kind)} ${span(piece.to - piece.from)}, ${span(piece.from - from)} after the first`} />
                  ))}
                  <span class="hide">{all[row]?.map((piece) => `${word(piece.kind)} ${span(piece.to - piece.from)}`).join(", ")}</span>
                </span>
              </td>
              <td class="num"><Runs job={job} /></td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
