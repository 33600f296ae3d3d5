// One workflow, as it happens: its graph, its jobs over time and as a table, and the drawer of one job.
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { get, mayAct, mayStart, path, ApiError, withQuery, type Call } from "../api";
import { TopBar } from "../frame/top";
import { watch } from "../live";
import type { Graph, Job, Page, Workflow } from "../model";
import { Action } from "../parts/action";
import { keepWords, SPANS } from "../parts/keep";
import { field, Json } from "../parts/json";
import { Problem } from "../parts/toasts";
import { sign, State, word } from "../parts/state";
import { Loading } from "../parts/table";
import { Ago, Duration, now, Time } from "../parts/time";
import { cut, Name } from "../parts/text";
import { usePoll } from "../poll";
import { navigate, href, place, setQuery } from "../router";
import { GraphView } from "./workflow/graph";
import { JobPanel } from "./workflow/job-panel";
import { Jobs, JobsFilter, Timeline } from "./workflow/jobs";
import type { Scene } from "./workflow/scene";

/** Jobs of one page of the table and of the bars. */
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
  const scene = useRef<{ scene: Scene; redraw: () => void } | null>(null);
  /** States that came while the graph was on its way: its own are older. */
  const early = useRef(new Map<number, string>());
  const failed = useRef(-1);

  const onScene = useCallback((made: Scene, redraw: () => void) => {
    scene.current = { scene: made, redraw };
    for (const [job, state] of early.current) put(made, job, state);
    early.current.clear();
  }, []);
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
        const own = scene.current?.scene;
        if (own) {
          got.nodes.forEach((node, at) => own.states.set(at, node.blocked && node.state === "waiting" ? "blocked" : node.state));
          for (const [job, state] of early.current) put(own, job, state);
          scene.current?.redraw();
        } else setGraph(got);
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
          if (scene.current) put(scene.current.scene, index, state);
          if (reading || !scene.current) early.current.set(index, state);
        } else if (event === "workflow") {
          const shown = data as Workflow;
          setWorkflow(shown);
          // Which jobs cannot run any more is not in the events.
          const broken = (shown.job_counts["failed"] ?? 0) + (shown.job_counts["cancelled"] ?? 0);
          if (failed.current >= 0 && broken !== failed.current) later(pause);
          failed.current = broken;
        } else if (event === "removed") setRemoved(true);
      }
      scene.current?.redraw();
      change();
    });
    return () => {
      ended.abort();
      stop();
      clearTimeout(timer);
      clearTimeout(again);
    };
  }, [id]);
  const live = (job: Job): string | undefined => scene.current?.scene.states.get(job.index);
  return { workflow, graph, error, removed, changes, onScene, live, changed: () => setChanges((count) => count + 1) };
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

function put(scene: Scene, job: number, state: string): void {
  // A blocked job waits, too: the events know no other word for it.
  if (state === "waiting" && scene.states.get(job) === "blocked") return;
  scene.states.set(job, state);
}

/** As the API has them (docs/http-api.md). */
const ID = /^[0-7][0-9A-HJKMNP-TV-Z]{25}$/i;

/** The stream of events takes no other ids: one would end it for all tabs. */
export const WorkflowPage = ({ id }: { id: string }) => (ID.test(id) ? <Known id={id} /> : <Unknown id={id} />);

function Unknown({ id }: { id: string }) {
  const { data, error } = usePoll<unknown>(path("v1/workflows", [id]), 3_600_000);
  return (
    <>
      <TopBar title={`Workflow ${id}`} />
      <Problem error={error} />
      <p>{data === null && error === null ? <Loading /> : <a href={href(["workflows"])}>All workflows</a>}</p>
    </>
  );
}

function Known({ id }: { id: string }) {
  const { workflow, graph, error, removed, changes, onScene, live, changed } = useLive(id);
  const query = place.value.query;
  const open = query["job"] ?? null;
  const view = query["view"] === "timeline" ? "timeline" : "graph";
  const list = withQuery(`v1/workflows/${id}/jobs`, { limit: PAGE_ROWS, state: query["state"], cursor: query["cursor"] });
  const jobs = usePoll<Page<Job>>(removed ? null : list, 3000);
  useEffect(() => {
    if (changes > 0) jobs.again();
  }, [changes]);
  if (removed) return <><TopBar title="Workflow not found" /><p class="warning">Not found. It may have been removed.</p><p><a href={href(["workflows"])}>All workflows</a></p></>;
  const table = { id, page: asOfNow(jobs.data, live), counts: workflow?.job_counts ?? {}, open, failed: jobs.error !== null };
  return (
    <>
      {workflow ? <Head workflow={workflow} changed={changed} /> : <TopBar title="Workflow"><Crumb /></TopBar>}
      <Problem error={jobs.error ?? (graph ? null : error)} />
      <div class="tabs" role="group" aria-label="View">
        {VIEWS.map(([one, label]) => (
          <button key={one} aria-pressed={view === one} onClick={() => setQuery({ view: one === "graph" ? null : one })}>{label}</button>
        ))}
      </div>
      <div class={view === "graph" ? undefined : "gone"}>
        {graph ? <GraphView graph={graph} onScene={onScene} open={open} onOpen={(job) => setQuery({ job })} /> : error ? null : <p><Loading /></p>}
      </div>
      <JobsFilter {...table} />
      {view === "graph" ? <Jobs {...table} /> : <Timeline {...table} />}
      {open === null ? null : <JobPanel key={open} id={id} name={open} changes={changes} changed={changed} />}
    </>
  );
}

const VIEWS = [["graph", "Graph"], ["timeline", "Timeline"]] as const;

const Crumb = () => <span class="crumb"><a href={href(["workflows"])}>Workflows</a> /</span>;

function Head({ workflow, changed }: { workflow: Workflow; changed: () => void }) {
  const { id, name, status, tags, started_at, finished_at } = workflow;
  const ran = started_at === null ? null : (finished_at ? Date.parse(finished_at) : Math.max(now.value, Date.parse(started_at))) - Date.parse(started_at);
  return (
    <>
      <TopBar title={`${sign(status)} ${cut(name, 60)} ${word(status).toLowerCase()}`}><Crumb /> <Name text={name} max={200} /> <State state={status} /></TopBar>
      <p class="filters facts">
        <span class="mono faint">{id}</span>
        <span><span class="dim">Created</span> <Time at={workflow.created_at} /> (<Ago at={workflow.created_at} />)</span>
        {started_at ? <span><span class="dim">Took</span> <Duration ms={ran} /></span> : null}
        {finished_at ? <span><span class="dim">Finished</span> <Time at={finished_at} /></span> : null}
        {workflow.expires_at ? <span><span class="dim">Kept until</span> <Time at={workflow.expires_at} /></span> : null}
        {tags.map((tag) => <a key={tag} class="tag" href={href(["workflows"], { tag })}><Name text={tag} max={60} /></a>)}
        <a href={href(["workflows"], { name })}>All runs of <Name text={name} max={40} /></a>
      </p>
      <Actions workflow={workflow} changed={changed} />
      <Globals id={id} />
    </>
  );
}

/** A link of its own: the call has the jobs, too. */
function Globals({ id }: { id: string }) {
  const [wanted, want] = useState(false);
  const { data, error } = usePoll<string>(wanted ? `v1/workflows/${id}?view=jobs` : null, 86_400_000, (text) => field(text, "globals") ?? "null");
  return (
    <details onToggle={(event) => event.currentTarget.open && want(true)}>
      <summary>Globals</summary>
      <Problem error={error} />
      {data === null ? (error ? null : <Loading />) : data === "null" || data === "{}" ? <p class="dim">None</p> : <Json text={data} label="globals" />}
    </details>
  );
}

function Actions({ workflow, changed }: { workflow: Workflow; changed: () => void }) {
  const { id, status, finished_at } = workflow;
  const [after, setAfter] = useState("30d");
  const post = (verb: string, body?: unknown): Call => ({ method: "POST", path: `v1/workflows/${id}:${verb}`, ...(body === undefined ? {} : { body }) });
  const is = (...words: string[]): boolean => words.includes(status);
  return (
    <div class="buttons" role="group" aria-label="Actions on the workflow">
      {is("pending") ? <Action label="Start" toast="Started." call={post("start")} may={mayStart} done={changed} /> : null}
      {is("running") ? <Action label="Pause" toast="Paused." call={post("pause")} done={changed} /> : null}
      {is("paused") ? <Action label="Resume" toast="Resumed." call={post("resume")} done={changed} /> : null}
      {is("failed", "cancelled") ? <Action label="Retry" toast="Failed and cancelled jobs run again." call={post("retry", finished_at ? { as_of: finished_at } : undefined)} done={changed} /> : null}
      {is("pending", "running", "paused") ? <Action label="Cancel" verb="Cancel the workflow" toast="Cancelled." call={post("cancel")} confirm="Running jobs are asked to stop, and no others start." danger done={changed} /> : null}
      <Action label="Keep for" toast={`It is kept ${keepWords(after)} after its end.`} call={post("expire", { after })} done={changed} />
      {mayAct() ? <Expire after={after} set={setAfter} /> : null}
      {is("pending", "succeeded", "failed", "cancelled") ? (
        <Action label="Remove" verb="Remove the workflow" toast="Removed." call={{ method: "DELETE", path: `v1/workflows/${id}` }} confirm="Its jobs, outputs and logs are deleted. This cannot be undone." danger done={() => navigate(["workflows"])} />
      ) : null}
    </div>
  );
}

function Expire({ after, set }: { after: string; set: (after: string) => void }) {
  return (
    <select aria-label="How long it is kept" value={after} onChange={(event) => set(event.currentTarget.value)}>
      {SPANS.map((one) => <option key={one} value={one}>{keepWords(one).replace(/^for /, "")}</option>)}
    </select>
  );
}
