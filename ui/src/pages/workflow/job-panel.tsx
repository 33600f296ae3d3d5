// One job: what went wrong, what it says, what it got and left, why it waits, and what can be done now.
import { useEffect, useState } from "preact/hooks";
import { mayAct, path, ApiError, text, type Call } from "../../api";
import { limitWords, type AttemptError, type Job } from "../../model";
import { Action } from "../../parts/action";
import { Drawer, QueueLink, WorkerLink } from "../../parts/drawer";
import { Icon } from "../../parts/icon";
import { field, Json } from "../../parts/json";
import { Copy, VerbButton, Menu, type Verb } from "../../parts/menu";
import { Problem } from "../../parts/toasts";
import { State } from "../../parts/state";
import { Loading } from "../../parts/table";
import { Ago, Duration, RelativeTime, Time } from "../../parts/time";
import { cut, Name, plain, Text } from "../../parts/text";
import { usePoll } from "../../poll";
import { href, setQuery } from "../../router";
import { JobLink, ranFor, reason, stateOf, waitedFor } from "./jobs";
import { Log, LogTail, useLog } from "./log";

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
  /** Names of the jobs in the order of the table, for the next and the one before. */
  readonly names: readonly string[];
  /** Grows when the workflow has changed. */
  readonly changes: number;
  readonly changed: () => void;
  /** Called with the job as it was read. */
  readonly onJob: (job: Job) => void;
}

export function JobPanel({ id, name, names, changes, changed, onJob }: JobPanelProps) {
  const own = path(`v1/workflows/${id}/jobs`, [name]);
  const { data, error, again } = usePoll<Raw>(own, 3000, (text) => ({ job: JSON.parse(text) as Job, text }));
  const [tab, setTab] = useState<Tab | null>(null);
  useEffect(() => {
    if (changes > 0) again();
  }, [changes]);
  useEffect(() => {
    if (data) onJob(data.job);
  }, [data]);
  const done = (): void => {
    again();
    changed();
  };
  return (
    <Drawer noun="job" name={name} names={names} open={(job) => setQuery({ job })} state={data ? <State state={stateOf(data.job)} /> : null} facts={data ? <Facts id={id} job={data.job} /> : null}>
      {error ? <Problem error={error} /> : null}
      {data ? <Shown key={name} id={id} raw={data} own={own} done={done} tab={tab} setTab={setTab} /> : error ? null : <p class="body"><Loading /></p>}
    </Drawer>
  );
}

function Facts({ id, job }: { id: string; job: Job }) {
  const [ran, waited] = [ranFor(job), waitedFor(job)];
  return (
    <>
      <dl class="facts line">
        <div><dt>Handler</dt><dd><Name text={job.handler} max={80} /></dd></div>
        <div><dt>Queue</dt><dd><QueueLink name={job.queue} /></dd></div>
        {job.worker ? <div><dt>Worker</dt><dd><WorkerLink name={job.worker} /></dd></div> : null}
        <div><dt>Attempt</dt><dd>{job.attempt} of {job.retries + 1}{job.lost > 0 ? `, ${job.lost} lost` : ""}</dd></div>
        {ran === null ? null : <div><dt>{job.state === "running" ? "Running" : "Ran"}</dt><dd><Duration ms={ran} /></dd></div>}
        {waited === null ? null : <div><dt>Waited</dt><dd><Duration ms={waited} /></dd></div>}
        {job.due_at ? <div><dt>Due</dt><dd><RelativeTime at={job.due_at} /></dd></div> : null}
        {job.lease_expires_at ? <div><dt>Lease ends</dt><dd><RelativeTime at={job.lease_expires_at} /></dd></div> : null}
        {job.finished_at ? <div><dt>Ended</dt><dd><Time at={job.finished_at} /> (<Ago at={job.finished_at} />)</dd></div> : null}
      </dl>
      {job.progress && job.state === "running" ? <Progress of={job.progress} /> : null}
      {job.why_not_running ? <WhyNot job={job} id={id} /> : null}
    </>
  );
}

/** The letters of tabs. */
const LETTERS: Readonly<Record<string, string>> = { Error: "e", Log: "l", Output: "o", Inputs: "i" };

type Tab = "Error" | "Log" | "Output" | "Params" | "Inputs" | "Attempts" | "Definition";

interface ShownProps {
  readonly id: string;
  readonly raw: Raw;
  readonly own: string;
  readonly done: () => void;
  readonly tab: Tab | null;
  readonly setTab: (tab: Tab) => void;
}

/** The tabs of a job and the number on each; the first is the one that is asked for most. */
function tabsOf(job: Job, lines: number): [tab: Tab, count?: number][] {
  const errors = job.errors?.length ?? 0;
  const found: [Tab, number?][] = [["Output"], ["Params"]];
  if (job.after.length > 0) found.push(["Inputs", job.after.length]);
  if (errors > 1 || job.lost > 0) found.push(["Attempts", errors]);
  found.push(["Definition"]);
  const log: [Tab, number?] = lines > 0 ? ["Log", lines] : ["Log"];
  if (job.state === "running" || (lines > 0 && !over(job))) found.unshift(log);
  else found.splice(1, 0, log);
  if (job.state === "failed" || (errors > 0 && !over(job))) {
    found.splice(found.indexOf(log), 1);
    found.unshift(["Error", errors], log);
  }
  return found;
}

function Shown({ id, raw: { job, text }, own, done, tab, setTab }: ShownProps) {
  const log = useLog(own, !over(job));
  const [marking, setMarking] = useState(false);
  const tabs = tabsOf(job, log.items.length);
  const first = job.state === "running" || over(job) || job.errors?.length ? tabs[0]?.[0] : "Definition";
  const at = tabs.find(([name]) => name === tab)?.[0] ?? first ?? "Output";
  const keys = (event: KeyboardEvent): void => {
    const by = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (by === 0) return;
    const to = tabs[(tabs.findIndex(([name]) => name === at) + by + tabs.length) % tabs.length];
    if (to) setTab(to[0]);
    const list = event.currentTarget as HTMLElement;
    requestAnimationFrame(() => list.querySelector<HTMLElement>("[aria-selected=true]")?.focus());
    event.preventDefault();
  };
  return (
    <>
      <div class="tabs" role="tablist" aria-label="Of the job" onKeyDown={keys}>
        {tabs.map(([name, count]) => (
          <button key={name} role="tab" data-key={LETTERS[name]} id={`tab-${name}`} aria-selected={name === at} aria-controls="tab-body" tabIndex={name === at ? 0 : -1} onClick={() => setTab(name)}>
            {name}{count ? <span class={name === "Error" ? "n bad" : "n"}>{count.toLocaleString("en")}</span> : null}
          </button>
        ))}
      </div>
      <div class="body" role="tabpanel" id="tab-body" aria-labelledby={`tab-${at}`}>
        {marking ? <MarkSucceeded path={`${own}:mark_succeeded`} done={() => (setMarking(false), done())} close={() => setMarking(false)} /> : null}
        {at === "Error" ? <Failure id={id} job={job} /> : null}
        {at === "Error" ? <LogTail log={log} open={() => setTab("Log")} /> : null}
        {at === "Log" ? <Log log={log} /> : null}
        {at === "Output" ? <Value text={field(text, "output")} none={noOutput(job.state)} label="output" /> : null}
        {at === "Params" ? <Value text={field(text, "params")} none="None" label="params" /> : null}
        {at === "Inputs" ? <Inputs id={id} names={job.after} /> : null}
        {at === "Attempts" ? <Attempts errors={job.errors ?? []} lost={job.lost} /> : null}
        {at === "Definition" ? <Definition id={id} job={job} /> : null}
      </div>
      <Foot id={id} job={job} own={own} done={done} mark={() => setMarking(true)} />
    </>
  );
}

function Definition({ id, job }: { id: string; job: Job }) {
  return (
    <dl class="facts">
      <dt>Handler</dt><dd><Name text={job.handler} max={200} /></dd>
      <dt>Queue</dt><dd><QueueLink name={job.queue} max={200} />{job.priority ? `, priority ${job.priority}` : ""}</dd>
      <dt>Attempts</dt><dd>{job.retries + 1}</dd>
      {job.timeout_ms === null ? null : <><dt>Timeout</dt><dd><Duration ms={job.timeout_ms} /></dd></>}
      {job.wait_ms ? <><dt>Waits first</dt><dd><Duration ms={job.wait_ms} /></dd></> : null}
      {job.limits?.length ? <><dt>Limits</dt><dd>{job.limits.map((limit, at) => <div key={at}><Name text={limitWords(limit)} max={200} /></div>)}</dd></> : null}
      <dt>After</dt><dd><Names id={id} names={job.after} />{job.after.length > 0 ? <span class="dim"> rule {job.rule}</span> : null}</dd>
      <dt>Before</dt><dd><Names id={id} names={job.before} /></dd>
      <dt>Ready</dt><dd><Time at={job.ready_at} /></dd>
      <dt>Started</dt><dd><Time at={job.started_at} /></dd>
      <dt>Finished</dt><dd><Time at={job.finished_at} /></dd>
    </dl>
  );
}

function Value({ text, none, label }: { text: string | null; none: string; label: string }) {
  return text === null || text === "null" || text === "{}" ? <p class="dim">{none}</p> : <Json text={text} label={label} />;
}

function Progress({ of }: { of: NonNullable<Job["progress"]> }) {
  return (
    <div class="progress">
      <progress max={100} value={of.percent} aria-label="progress" /> <span class="small"><b>{of.percent}%</b> <bdi>{cut(plain(of.text), 300)}</bdi></span>
    </div>
  );
}

function WhyNot({ job, id }: { job: Job; id: string }) {
  const why = job.why_not_running;
  if (!why) return null;
  return (
    <div class="warning">
      <bdi>{reason(job)}</bdi>
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

/** The last error: what, what follows from it, and where it came from. */
function Failure({ id, job }: { id: string; job: Job }) {
  const error = job.errors?.at(-1);
  if (!error) return <p class="dim">Its error is not known</p>;
  const left = job.retries + 1 - job.attempt;
  const final = job.state === "failed" && left > 0;
  return (
    <>
      <div class="err"><b><Name text={error.kind} max={200} /></b><Text text={error.message} lines={6} label="message" /></div>
      <p class="small dim">
        {final ? `The worker reported this error as final, so ${left === 1 ? "the last attempt was" : `${left} more attempts were`} not made.` : job.state === "failed" ? `All ${job.retries + 1 === 1 ? "" : `${job.retries + 1} `}attempts failed.` : `Attempt ${error.attempt} failed, and the job is tried again.`}
        {job.state === "failed" && job.before.length > 0 ? <> Jobs after it: <Names id={id} names={job.before} />.</> : null}
      </p>
      {error.trace ? <Trace text={error.trace} label={`trace of attempt ${error.attempt}`} /> : null}
    </>
  );
}

function Trace({ text, label }: { text: string; label: string }) {
  const [wrap, setWrap] = useState(true);
  return (
    <div class={wrap ? "block" : "block no-wrap"}>
      <header>Trace<span class="push row-buttons">
        <button class="small bare square" title="Wrap" aria-label="Wrap" aria-pressed={wrap} onClick={() => setWrap(!wrap)}><Icon name="wrap" /></button>
        <Copy label="Copy the trace" text={text} />
      </span></header>
      <Text text={text} lines={30} label={label} />
    </div>
  );
}

function Attempts({ errors, lost }: { errors: readonly AttemptError[]; lost: number }) {
  return (
    <>
      {lost > 0 ? <p class="dim">{lost} {lost === 1 ? "lease" : "leases"} in a row ended without a report.</p> : null}
      {[...errors].reverse().map((error, at) => (
        <details key={`${error.attempt} ${error.at}`} open={at === 0} class="error">
          <summary><span class="bad">Attempt {error.attempt}</span> <b><Name text={error.kind} max={80} /></b> <span class="dim"><Time at={error.at} /></span></summary>
          {error.worker ? <p class="small dim">On <WorkerLink name={error.worker} max={40} /></p> : null}
          <Text text={error.message} lines={6} label={`message of attempt ${error.attempt}`} />
          {error.trace ? <Text text={error.trace} lines={12} label={`trace of attempt ${error.attempt}`} /> : null}
        </details>
      ))}
    </>
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

/** Those that are possible now, the likeliest first. */
function verbsOf(id: string, job: Job, own: string, done: () => void, mark: () => void): Verb[] {
  const { state } = job;
  const post = (word: string, body?: unknown): Call => ({ method: "POST", path: `${own}:${word}`, ...(body === undefined ? {} : { body }) });
  // Sent twice, it does nothing the second time: a job that ran again meanwhile has ended later.
  const seen = job.finished_at ? { as_of: job.finished_at } : {};
  const restart = (cascade: boolean): Call => ({ method: "POST", path: `v1/workflows/${id}:restart`, body: { jobs: [job.name], cascade, ...seen } });
  const ended = over(job);
  const broken = state === "failed" || state === "cancelled";
  const found: Verb[] = [];
  if (broken) found.push({ label: "Retry job", icon: "retry", call: post("retry", seen), toast: "The job runs again.", done });
  if (broken || (!ended && state !== "running")) found.push({ label: "Skip", icon: "skip", call: post("skip"), toast: "Skipped.", title: "Skip the job", confirm: "The rules of the jobs after it decide whether they run.", done });
  if (!ended) found.push({ label: "Cancel job", icon: "struck", call: post("cancel"), toast: "Cancelled.", title: "Cancel the job", confirm: state === "running" ? "Its worker is asked to stop, and its result is not taken." : "It will not run.", danger: true, done });
  if (state !== "succeeded") found.push({ label: "Mark succeeded", icon: "check", call: { ...post("mark_succeeded"), raw: '{"output": null}' }, toast: "", open: mark });
  if (ended) found.push({ label: "Restart", icon: "retry", call: restart(false), toast: "The job runs again.", title: "Restart the job", confirm: "The job runs again; jobs after it keep what they have.", done });
  if (ended && job.before.length > 0) found.push({ label: "Restart with downstream jobs", icon: "retry", call: restart(true), toast: "They run again.", title: "Restart all these jobs", confirm: "The job and all jobs after it run again. Their outputs are lost.", danger: true, done });
  return found;
}

/** Buttons in the foot; the menu has all of them, with their curl lines. */
const MAX_BUTTONS = 3;

function Foot({ id, job, own, done, mark }: { id: string; job: Job; own: string; done: () => void; mark: () => void }) {
  if (!mayAct()) return null;
  const verbs = verbsOf(id, job, own, done, mark);
  return (
    <footer role="group" aria-label="Actions on the job">
      {verbs.slice(0, MAX_BUTTONS).filter((verb) => verb.label.length < 20).map((verb, at) => <VerbButton key={verb.label} verb={verb} main={at === 0 && verb.label === "Retry job"} />)}
      <span class="push"><Menu label="More, and the curl line" verbs={verbs} /></span>
    </footer>
  );
}

function MarkSucceeded({ path: to, done, close }: { path: string; done: () => void; close: () => void }) {
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
    <div class="mark-succeeded">
      <label>Output, as JSON <textarea dir="auto" value={output} spellcheck={false} onInput={(event) => put(event.currentTarget.value)} /></label>
      {wrong ? <p class="problem" role="alert">{wrong}</p> : null}
      <p class="small dim">Jobs after it get this output.</p>
      <span class="buttons"><button type="button" onClick={close}>Cancel</button><Action label="Mark as succeeded" toast="Marked as succeeded." call={call} disabled={wrong !== ""} done={done} /></span>
    </div>
  );
}
