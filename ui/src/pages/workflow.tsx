// One workflow, as it happens: its graph, its jobs over time and as a table, and the drawer of one job.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { get, path, ApiError, withQuery } from "../api";
import { TopBar } from "../frame/top";
import { watch } from "../live";
import type { Graph, Job, Page, Workflow } from "../model";
import { Icon } from "../parts/icon";
import { field, Json } from "../parts/json";
import { Copy, VerbButton, Menu } from "../parts/menu";
import { Problem } from "../parts/toasts";
import { State, word } from "../parts/state";
import { Loading } from "../parts/table";
import { Ago, Duration, now, Time } from "../parts/time";
import { cut, Name, plain } from "../parts/text";
import { NEVER, usePoll } from "../poll";
import { navigate, href, place, setQuery } from "../router";
import { useFailures } from "./failures";
import { verbsOf, MAIN } from "./workflow/verbs";
import { GraphView } from "./workflow/graph";
import { JobPanel } from "./workflow/job-panel";
import { Jobs, JobLink, stateOf } from "./workflow/jobs";
import { States } from "./workflow/scene";
import { Timeline } from "./workflow/timeline";
import { Bar } from "./workflows";

/** Jobs of one page of the table, and those whose times the graph and the timeline show. */
const PAGE_ROWS = 200;
/** Least time between two reads of the rows after changes of states, in milliseconds. */
const ROWS_INTERVAL = 400;
/** Milliseconds after which a graph that was refused is requested again. */
const GRAPH_RETRY_DELAY = 5000;

interface JobEvent {
  readonly index: number;
  readonly state: string;
}

/** The newest of the workflow, the graph, and a number that grows with every change. */
function useLive(id: string) {
  const [workflow, setWorkflow] = useState<Workflow | null>(null);
  const [graph, setGraph] = useState<Graph | null>(null);
  const [error, setError] = useState<ApiError | null>(null);
  const [removed, setRemoved] = useState(false);
  const [changes, setChanges] = useState(0);
  const states = useRef<States | null>(null);
  const redraw = useRef<() => void>(() => {});
  /** States that came while the graph was on its way: its own are older. */
  const early = useRef(new Map<number, string>());
  const failed = useRef(-1);

  useEffect(() => {
    const ended = new AbortController();
    let timer = 0;
    const later = (ms: number): void => {
      again ||= window.setTimeout(() => ((again = 0), void read()), ms);
    };
    const read = async (): Promise<void> => {
      if (reading) return later(pause);
      const began = performance.now();
      reading = true;
      early.current.clear();
      try {
        const got = await get<Graph>(`v1/workflows/${id}/graph.json`, ended.signal);
        const first = states.current === null;
        const own = (states.current ??= new States(got.nodes.length));
        own.read(got);
        for (const [job, state] of early.current) put(own, job, state);
        early.current.clear();
        if (first) setGraph(got);
        redraw.current();
        setChanges((count) => count + 1);
        setError(null);
      } catch (refused) {
        if (ended.signal.aborted || !(refused instanceof ApiError)) return;
        setError(refused);
        // The server may be busy with other pictures. What is not there stays away.
        if (refused.status !== 404) later(GRAPH_RETRY_DELAY);
      } finally {
        reading = false;
      }
      pause = Math.max(2000, 20 * (performance.now() - began));
    };
    let [reading, again, pause] = [false, 0, 2000];
    void read();
    let last = 0;
    const change = (): void => {
      timer ||= window.setTimeout(() => {
        timer = 0;
        last = performance.now();
        setChanges((count) => count + 1);
      }, Math.max(0, last + ROWS_INTERVAL - performance.now()));
    };
    const stop = watch(`workflow:${id}`, (events) => {
      for (const { event, data } of events) {
        if (event === "job") {
          const { index, state } = data as JobEvent;
          if (states.current) put(states.current, index, state);
          if (reading || !states.current) early.current.set(index, state);
        } else if (event === "workflow") {
          const shown = data as Workflow;
          setWorkflow(shown);
          // Which jobs cannot run any more is not in the events.
          const broken = (shown.job_counts["failed"] ?? 0) + (shown.job_counts["cancelled"] ?? 0);
          if (failed.current >= 0 && broken !== failed.current) later(pause);
          failed.current = broken;
        } else if (event === "removed") setRemoved(true);
      }
      redraw.current();
      change();
    });
    return () => {
      ended.abort();
      stop();
      clearTimeout(timer);
      clearTimeout(again);
    };
  }, [id]);
  const live = (job: Job): string | undefined => states.current?.get(job.index);
  return { workflow, graph, states: states.current, redraw, error, removed, changes, live, changed: () => setChanges((count) => count + 1) };
}

/** The rows with the states of now: those of the table were asked for a moment ago. */
function asOfNow(page: Page<Job> | null, live: (job: Job) => string | undefined): Page<Job> | null {
  if (!page) return null;
  const items = page.items.map((job) => {
    const state = live(job);
    if (state === undefined || state === job.state || state === "blocked") return job;
    return { ...job, state, blocked: false, why_not_running: null };
  });
  return { ...page, items };
}

function put(states: States, job: number, state: string): void {
  // A blocked job waits, too: the events know no other word for it.
  if (state === "waiting" && states.get(job) === "blocked") return;
  states.set(job, state);
}

/** As the API has them (docs/http-api.md). */
const ID = /^[0-7][0-9A-HJKMNP-TV-Z]{25}$/i;

/** The stream of events takes no other ids: one would end it for all tabs. */
export const WorkflowPage = ({ id }: { id: string }) => (ID.test(id) ? <Known id={id} /> : <Unknown id={id} />);

function Unknown({ id }: { id: string }) {
  const { data, error } = usePoll<unknown>(path("v1/workflows", [id]), NEVER);
  return (
    <>
      <TopBar title={`Workflow ${id}`} />
      <Problem error={error} />
      <p>{data === null && error === null ? <Loading /> : <a href={href(["workflows"])}>All workflows</a>}</p>
    </>
  );
}

const Removed = () => (
  <>
    <TopBar title="Workflow not found"><Crumb /></TopBar>
    <div class="panel empty"><Icon name="workflows" /><p>Not found. It may have been removed.</p><p><a href={href(["workflows"])}>All workflows</a></p></div>
  </>
);

function Known({ id }: { id: string }) {
  const { workflow, graph, states, redraw, error, removed, changes, live, changed } = useLive(id);
  const { job: open = null, state, q, cursor } = place.value.query;
  const list = (more: Readonly<Record<string, string | undefined>>): string => withQuery(`v1/workflows/${id}/jobs`, { order: "attention", limit: PAGE_ROWS, ...more });
  const first = usePoll<Page<Job>>(removed ? null : list({}), 3000);
  const filtered = state || q || cursor;
  const own = usePoll<Page<Job>>(removed || !filtered ? null : list({ state, q, cursor }), 3000);
  useEffect(() => {
    if (changes === 0) return;
    first.again();
    if (filtered) own.again();
  }, [changes]);
  // The job of the drawer is known best: its attempts and its progress.
  const [detail, setDetail] = useState<Job | null>(null);
  const known = useMemo(() => {
    const page = asOfNow(first.data, live);
    return page && { ...page, items: page.items.map((job) => (job.name === detail?.name ? { ...detail, ...job } : job)) };
  }, [first.data, changes, detail]);
  const jobs = useMemo(() => new Map((known?.items ?? []).map((job) => [job.index, job])), [known]);
  if (removed) return <Removed />;
  const table = filtered ? own : first;
  const page = filtered ? asOfNow(own.data, live) : known;
  const running = workflow !== null && ["running", "paused"].includes(workflow.status);
  return (
    <>
      {workflow ? <Head workflow={workflow} changed={changed} /> : <TopBar title="Workflow"><Crumb /></TopBar>}
      <Problem error={table.error ?? (graph ? null : error)} />
      {workflow && known ? <Failed id={id} workflow={workflow} jobs={known.items} /> : null}
      {graph && states ? <GraphView graph={graph} states={states} onRedraw={(made) => (redraw.current = made)} changes={changes} jobs={jobs} open={open} onOpen={(job) => setQuery({ job })} />
      : error ? null : <div class="panel part"><p class="quiet"><Loading /></p></div>}
      <Timeline id={id} graph={graph} jobs={known?.items ?? null} open={open} live={running} />
      <Jobs id={id} page={page} counts={chipCounts(workflow, known)} open={open} failed={table.error !== null} />
      <Globals id={id} />
      {open === null ? null : <JobPanel id={id} name={open} names={page?.items.map((job) => job.name) ?? []} changes={changes} changed={changed} onJob={setDetail} />}
    </>
  );
}

/** The numbers of the server, and those of the states that it does not count: they are among the first rows. */
function chipCounts(workflow: Workflow | null, page: Page<Job> | null): Record<string, number> {
  const counts: Record<string, number> = { ...(workflow?.job_counts ?? {}) };
  const move = (from: string, to: string): void => {
    const count = page?.items.filter((job) => stateOf(job) === to).length ?? 0;
    if (count === 0) return;
    counts[from] = Math.max((counts[from] ?? 0) - count, 0);
    counts[to] = count;
  };
  counts["waiting"] = (counts["waiting"] ?? 0) - (counts["blocked"] ?? 0);
  move("ready", "limited");
  move("scheduled", "retrying");
  return counts;
}

const Crumb = () => <span class="crumb"><a href={href(["workflows"])}>Workflows</a> /</span>;

/** Letters that lead to the main button; Enter presses it. */
const LETTERS: Readonly<Record<string, string>> = { "Retry failed": "r", Pause: "p", Resume: "p" };

function Head({ workflow, changed }: { workflow: Workflow; changed: () => void }) {
  const { id, name, status, tags, started_at, finished_at, job_counts } = workflow;
  const ran = started_at === null ? null : (finished_at ? Date.parse(finished_at) : Math.max(now.value, Date.parse(started_at))) - Date.parse(started_at);
  const verbs = verbsOf(workflow, changed, () => navigate(["workflows"]));
  const [main, ...rest] = verbs;
  // Nothing to do now but what is rare: that stays in the menu.
  const button = main && MAIN.includes(main.label) ? main : null;
  return (
    <>
      <TopBar title={`${cut(name, 60)} ${word(status).toLowerCase()}`}><Crumb /> <Name text={name} max={200} /></TopBar>
      <div class="head">
        <State state={status} />
        <span class="tag mono" title={id}>{id.slice(0, 8)}…{id.slice(-4)}</span><Copy text={id} label="Copy the id" />
        {tags.map((tag) => <a key={tag} class="tag" href={href(["workflows"], { tag })}><Name text={tag} max={60} /></a>)}
        <a class="small" href={href(["workflows"], { name })}>All runs of <Name text={name} max={40} /></a>
        {verbs.length > 0 ? (
          <span class="acts" role="group" aria-label="Actions on the workflow">
            {button ? <VerbButton verb={button} main={button.label !== "Pause"} letter={LETTERS[button.label]} /> : null}
            <Menu label="Other actions" verbs={button ? [button, ...rest] : verbs} />
          </span>
        ) : null}
      </div>
      <dl class="facts line">
        {started_at ? <div><dt>Started</dt><dd><Time at={started_at} /> (<Ago at={started_at} />)</dd></div> : <div><dt>Created</dt><dd><Time at={workflow.created_at} /> (<Ago at={workflow.created_at} />)</dd></div>}
        {started_at ? <div><dt>{finished_at ? "Took" : "Runs for"}</dt><dd><Duration ms={ran} /></dd></div> : null}
        <div><dt>Jobs</dt><dd><span class="use">{finished_at ? null : <Bar counts={job_counts} />}<span><b>{(job_counts["succeeded"] ?? 0).toLocaleString("en")}</b> of {job_counts.total.toLocaleString("en")} done{others(job_counts)}</span></span></dd></div>
        {workflow.expires_at ? <div><dt>Kept until</dt><dd><Time at={workflow.expires_at} /></dd></div> : null}
      </dl>
    </>
  );
}

const others = (counts: Workflow["job_counts"]): string =>
  ["failed", "running", "ready", "scheduled", "waiting", "blocked", "cancelled", "skipped"]
    .map((state) => [state, (counts[state] ?? 0) - (state === "waiting" ? (counts["blocked"] ?? 0) : 0)] as const)
    .filter(([, count]) => count > 0).map(([state, count]) => `, ${count.toLocaleString("en")} ${state}`).join("");

/** The first failure in words; jobs that fail alike are counted. */
function Failed({ id, workflow, jobs }: { id: string; workflow: Workflow; jobs: readonly Job[] }) {
  const failed = jobs.filter((job) => job.state === "failed");
  const [job] = failed;
  const like = useFailures(NEVER, !!job?.error).data;
  if (!job) return null;
  const { error } = job;
  const alike = (like?.items.find((one) => one.handler === job.handler && one.kind === error?.kind)?.workflows ?? 1) - 1;
  const blocked = workflow.job_counts["blocked"] ?? 0;
  const final = job.attempt < job.retries + 1;
  return (
    <div class="banner bad" role="status">
      <Icon name="warning" />
      <p>
        <b><JobLink id={id} name={job.name} max={60} /> failed:</b> <bdi>{error ? cut(plain(`${error.kind}, ${error.message}`), 300) : "its error is not known"}</bdi>
        <span class="more dim">
          Attempt {job.attempt} of {job.retries + 1}{final ? ", and final" : ""}.
          {blocked > 0 ? ` ${blocked.toLocaleString("en")} ${blocked === 1 ? "job is" : "jobs are"} blocked until it is retried or skipped.` : ""}
          {failed.length > 1 ? ` ${(workflow.job_counts["failed"] ?? failed.length) - 1} more failed.` : ""}
        </span>
      </p>
      {alike > 0 ? <span class="buttons"><a class="button small" href={href(["failures"])}>{alike} more like it</a></span> : null}
    </div>
  );
}

/** A link of its own: the call has the jobs, too. */
function Globals({ id }: { id: string }) {
  const [wanted, want] = useState(false);
  const { data, error } = usePoll<string>(wanted ? `v1/workflows/${id}?view=jobs` : null, NEVER, (text) => field(text, "globals") ?? "null");
  return (
    <details class="globals" onToggle={(event) => event.currentTarget.open && want(true)}>
      <summary>Globals</summary>
      <Problem error={error} />
      {data === null ? (error ? null : <Loading />) : data === "null" || data === "{}" ? <p class="dim">None</p> : <Json text={data} label="globals" />}
    </details>
  );
}
