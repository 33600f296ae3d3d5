// One job: what it got, what it left, what went wrong, what it says, why it waits, and what can be done.
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { mayAct, path, ApiError, text, withQuery, type Call } from "../../api";
import { limitWords, type AttemptError, type Job, type LogPage } from "../../model";
import { Action } from "../../parts/action";
import { Icon } from "../../parts/icon";
import { field, Json } from "../../parts/json";
import { Problem } from "../../parts/toasts";
import { State } from "../../parts/state";
import { Loading } from "../../parts/table";
import { Ago, RelativeTime, clock, Duration, Time } from "../../parts/time";
import { cut, Name, plain, Text } from "../../parts/text";
import { usePoll } from "../../poll";
import { href, setQuery } from "../../router";
import { JobLink, stateOf } from "./jobs";

interface Raw {
  readonly job: Job;
  readonly text: string;
}

const over = (job: Job): boolean => ["succeeded", "failed", "cancelled", "skipped"].includes(job.state);

/** The text in the place of an output that is null. */
const noOutput = (state: string): string => (state === "succeeded" ? "It returned nothing" : ["failed", "cancelled", "skipped"].includes(state) ? "None" : "None yet");

export interface JobPanelProps {
  readonly id: string;
  readonly name: string;
  /** Grows when the workflow has changed. */
  readonly changes: number;
  readonly changed: () => void;
}

export function JobPanel({ id, name, changes, changed }: JobPanelProps) {
  const own = path(`v1/workflows/${id}/jobs`, [name]);
  const { data, error, again } = usePoll<Raw>(own, 3000, (text) => ({ job: JSON.parse(text) as Job, text }));
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => heading.current?.focus({ preventScroll: innerWidth > 1100 }), [name]);
  useEffect(() => {
    if (changes > 0) again();
  }, [changes]);
  const close = (): void => setQuery({ job: null });
  const done = (): void => {
    again();
    changed();
  };
  return (
    <>
      <div class="scrim" onClick={close} />
      <aside class="drawer" aria-label="Job">{/* plain: HTML */}
        <header>
          <h2 ref={heading} tabIndex={-1}><Name text={name} max={200} /></h2>
          <button class="small bare square" onClick={close} aria-label="Close the job"><Icon name="cross" /></button>
        </header>
        <Problem error={error} />
        {data ? <Shown id={id} raw={data} own={own} done={done} /> : error ? null : <p><Loading /></p>}
      </aside>{/* plain: HTML */}
    </>
  );
}

function Shown({ id, raw: { job, text }, own, done }: { id: string; raw: Raw; own: string; done: () => void }) {
  const state = stateOf(job);
  return (
    <>
      <p><State state={state} /> {job.progress && job.state === "running" ? <Progress of={job.progress} /> : null}</p>
      {job.why_not_running ? <WhyNot job={job} id={id} /> : null}
      <Actions id={id} job={job} own={own} done={done} />
      <dl class="facts">
        <dt>Handler</dt><dd><Name text={job.handler} max={200} /></dd>
        <dt>Queue</dt><dd><Name text={job.queue} max={200} />{job.priority ? `, priority ${job.priority}` : ""}</dd>
        <dt>Attempts</dt><dd>{job.attempt} of {job.retries + 1}{job.lost > 0 ? `, ${job.lost} lost` : ""}</dd>
        {job.worker ? <><dt>Worker</dt><dd><Name text={job.worker} max={200} /></dd></> : null}
        <dt>Ready</dt><dd><Time at={job.ready_at} /></dd>
        <dt>Started</dt><dd><Time at={job.started_at} /></dd>
        <dt>Finished</dt><dd><Time at={job.finished_at} /></dd>
        {job.due_at ? <><dt>Due</dt><dd><Time at={job.due_at} /> (<RelativeTime at={job.due_at} />)</dd></> : null}
        {job.lease_expires_at ? <><dt>Lease ends</dt><dd><RelativeTime at={job.lease_expires_at} /></dd></> : null}
        {job.timeout_ms === null ? null : <><dt>Timeout</dt><dd><Duration ms={job.timeout_ms} /></dd></>}
        {job.wait_ms ? <><dt>Waits first</dt><dd><Duration ms={job.wait_ms} /></dd></> : null}
        {job.limits?.length ? <><dt>Limits</dt><dd>{job.limits.map((limit, at) => <div key={at}><Name text={limitWords(limit)} max={200} /></div>)}</dd></> : null}
        <dt>After</dt><dd><Names id={id} names={job.after} />{job.after.length > 0 ? <span class="dim"> rule {job.rule}</span> : null}</dd>
        <dt>Before</dt><dd><Names id={id} names={job.before} /></dd>
      </dl>
      {job.errors?.length ? <Errors errors={job.errors} /> : null}
      <Section title="Output"><Value text={field(text, "output")} none={noOutput(job.state)} label="output" /></Section>
      <Section title="Params"><Value text={field(text, "params")} none="None" label="params" /></Section>
      {job.after.length > 0 ? <Section title="Inputs"><Inputs key={job.name} id={id} names={job.after} /></Section> : null}
      <Section title="Log"><Log key={job.name} own={own} live={!over(job)} /></Section>
    </>
  );
}

function Section({ title, children }: { title: string; children: ComponentChildren }) {
  return <section><h3>{title}</h3>{children}</section>;
}

function Value({ text, none, label }: { text: string | null; none: string; label: string }) {
  return text === null || text === "null" || text === "{}" ? <p class="dim">{none}</p> : <Json text={text} label={label} />;
}

function Progress({ of }: { of: NonNullable<Job["progress"]> }) {
  return (
    <>
      <progress max={100} value={of.percent} aria-label="progress" /> {of.percent} % <bdi>{cut(plain(of.text), 300)}</bdi> <span class="dim"><Ago at={of.at} /></span>
    </>
  );
}

function WhyNot({ job, id }: { job: Job; id: string }) {
  const why = job.why_not_running;
  if (!why) return null;
  return (
    <div class="warning">
      <bdi>{cut(plain(why.text), 1000)}</bdi> <span class="dim mono">{why.reason}</span>
      {why.until ? <> (<RelativeTime at={why.until} />)</> : null}
      {why.jobs?.length ? <div>Jobs: <Names id={id} names={why.jobs} /></div> : null}
      {why.holders?.length ? (
        <div>Held by: {why.holders.slice(0, 10).map((holder, at) => (
          <span key={at}>{at > 0 ? ", " : ""}<a href={href(["workflows", holder.workflow], { job: holder.job })}><Name text={holder.job ?? `job ${holder.index}`} max={40} /></a></span>
        ))}</div>
      ) : null}
    </div>
  );
}

/** Ten at a time: a job can come after a hundred thousand others. */
function Names({ id, names }: { id: string; names: readonly string[] }) {
  const [shownCount, setShownCount] = useState(10);
  if (names.length === 0) return <span class="dim">–</span>;
  return (
    <>
      {names.slice(0, shownCount).map((name, at) => <span key={name}>{at > 0 ? ", " : ""}<JobLink id={id} name={name} max={40} /></span>)}
      {names.length > shownCount ? <> <button class="small" onClick={() => setShownCount(shownCount + 100)}>{(names.length - shownCount).toLocaleString("en")} more</button></> : null}
    </>
  );
}

function Errors({ errors }: { errors: readonly AttemptError[] }) {
  return (
    <Section title={errors.length > 1 ? `Errors (${errors.length})` : "Error"}>
      {[...errors].reverse().map((error, at) => (
        <details key={`${error.attempt} ${error.at}`} open={at === 0} class="error">
          <summary><span class="bad">Attempt {error.attempt}</span> <b><Name text={error.kind} max={80} /></b> <span class="dim"><Time at={error.at} />{error.worker ? <> at <Name text={error.worker} max={40} /></> : null}</span></summary>
          <Text text={error.message} lines={6} label={`message of attempt ${error.attempt}`} />
          {error.trace ? <Text text={error.trace} lines={12} label={`trace of attempt ${error.attempt}`} /> : null}
        </details>
      ))}
    </Section>
  );
}

/** The outputs of the jobs before, each on request: one can be a megabyte. */
function Inputs({ id, names }: { id: string; names: readonly string[] }) {
  const [shownCount, setShownCount] = useState(10);
  return (
    <>
      {names.slice(0, shownCount).map((name) => <Input key={name} id={id} name={name} />)}
      {names.length > shownCount ? <button class="small" onClick={() => setShownCount(shownCount + 50)}>{(names.length - shownCount).toLocaleString("en")} more</button> : null}
    </>
  );
}

function Input({ id, name }: { id: string; name: string }) {
  const [got, put] = useState<string | ApiError | null>(null);
  const [wanted, want] = useState(false);
  useEffect(() => {
    if (!wanted) return;
    text({ method: "GET", path: path(`v1/workflows/${id}/jobs`, [name]) }).then(put, put);
  }, [wanted]);
  return (
    <details onToggle={(event) => event.currentTarget.open && want(true)}>
      <summary><Name text={name} max={80} /></summary>
      {got === null ? <Loading /> : got instanceof Error ? <Problem error={got} /> : <Value text={field(got, "output")} none={noOutput(JSON.parse(field(got, "state") ?? '""') as string)} label={`output of ${cut(name, 40)}`} />}
    </details>
  );
}

interface Lines {
  readonly items: LogPage["items"];
  readonly next: string | null;
  readonly dropped: number;
}

/** Lines in the page: the server keeps 64 KiB. */
const MAX_LOG_LINES = 2000;

/** Followed from where it was read last. */
function Log({ own, live }: { own: string; live: boolean }) {
  const [log, put] = useState<Lines>({ items: [], next: null, dropped: 0 });
  const page = usePoll<LogPage>(withQuery(`${own}/log`, { limit: 1000, after: log.next }), live ? 1000 : 5000);
  const end = useRef<HTMLPreElement>(null);
  useEffect(() => {
    const got = page.data;
    if (!got || (got.items.length === 0 && log.next !== null)) return;
    put((was) => ({ items: [...was.items, ...got.items].slice(-MAX_LOG_LINES), next: got.next, dropped: Math.max(was.dropped, got.dropped) }));
  }, [page.data]);
  useEffect(() => {
    const box = end.current;
    // Follows the end, unless the reader has scrolled up.
    if (box && box.scrollHeight - box.scrollTop - box.clientHeight < 200) box.scrollTop = box.scrollHeight;
  }, [log.items]);
  if (page.error) return <Problem error={page.error} />;
  if (log.items.length === 0) return <p class="dim">No lines</p>;
  return (
    <div class="text">
      {log.dropped > 0 ? <p class="dim">{log.dropped} older lines dropped</p> : null}
      <pre ref={end} class="log" tabIndex={0} role="log" aria-label="log" aria-live="off">
        {log.items.map((line, at) => (
          <div key={at}><span class="faint">{clock(Date.parse(line.at))} #{line.attempt}</span> <bdi dir="auto">{cut(plain(line.text), 4000)}</bdi></div>
        ))}
      </pre>
    </div>
  );
}

function Actions({ id, job, own, done }: { id: string; job: Job; own: string; done: () => void }) {
  const { state } = job;
  const post = (word: string, body?: unknown): Call => ({ method: "POST", path: `${own}:${word}`, ...(body === undefined ? {} : { body }) });
  // Sent twice, it does nothing the second time: a job that ran again meanwhile has ended later.
  const seen = job.finished_at ? { as_of: job.finished_at } : {};
  const restart = (cascade: boolean): Call => ({
    method: "POST",
    path: `v1/workflows/${id}:restart`,
    body: { jobs: [job.name], cascade, ...seen },
  });
  const ended = over(job);
  if (!mayAct()) return null;
  return (
    <div class="buttons" role="group" aria-label="Actions on the job">
      {state === "failed" || state === "cancelled" ? <Action label="Retry" toast="The job runs again." call={post("retry", seen)} done={done} /> : null}
      {ended ? <Action label="Restart" verb="Restart the job" toast="The job runs again." call={restart(false)} done={done} confirm="The job runs again; jobs after it keep what they have." /> : null}
      {ended && job.before.length > 0 ? <Action label="Restart with downstream jobs" verb="Restart all these jobs" toast="They run again." call={restart(true)} done={done} confirm="The job and all jobs after it run again. Their outputs are lost." danger /> : null}
      {!ended || state === "failed" || state === "cancelled" ? (
        state === "running" ? null : <Action label="Skip" verb="Skip the job" toast="Skipped." call={post("skip")} done={done} confirm="The rules of the jobs after it decide whether they run." danger />
      ) : null}
      {ended ? null : <Action label="Cancel" verb="Cancel the job" toast="Cancelled." call={post("cancel")} done={done} confirm={state === "running" ? "Its worker is asked to stop, and its result is not taken." : "It will not run."} danger />}
      {state === "succeeded" ? null : <MarkSucceeded path={`${own}:mark_succeeded`} done={done} />}
    </div>
  );
}

function MarkSucceeded({ path: to, done }: { path: string; done: () => void }) {
  const [output, put] = useState("null");
  let wrong = "";
  try {
    JSON.parse(output);
  } catch (error) {
    wrong = `Not JSON: ${(error as Error).message}`;
  }
  // As it was typed: scripts would round numbers.
  const call: Call = { method: "POST", path: to, raw: `{"output": ${output.trim()}}` };
  return (
    <details class="mark-succeeded">
      <summary>Mark succeeded…</summary>
      <label>Output, as JSON <textarea dir="auto" value={output} spellcheck={false} onInput={(event) => put(event.currentTarget.value)} /></label>
      {wrong ? <p class="problem" role="alert">{wrong}</p> : null}
      <Action label="Mark succeeded" verb="Mark succeeded" toast="Marked as succeeded." call={call} disabled={wrong !== ""} done={done} confirm="Jobs after it get this output." />
    </details>
  );
}
