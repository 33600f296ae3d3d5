// Queues: what waits in them and for how long, whether they hand out jobs, and what runs.
import { path, withQuery, type Call } from "../api";
import { limitWords, type Limit, type Page } from "../model";
import { Empty } from "../parts/empty";
import { State } from "../parts/state";
import { Table } from "../parts/table";
import { Name } from "../parts/text";
import { Duration, now } from "../parts/time";
import { usePoll } from "../poll";
import type { WaitingKey } from "./limits/waiting";
import { Listing } from "./listing";
import { RunningJobs, type Worker } from "./workers";

export interface Queue {
  readonly name: string;
  readonly ready: number;
  readonly oldest_ready_at: string | null;
  readonly paused: boolean;
  readonly waiting_workers: number;
}

export function Queues() {
  return (
    <Listing<Queue> title="Queues" noun="queue" words={(row) => row.name} verb={verb}
      empty={<Empty icon="queues" title="No queues yet" text="The first job that names one makes it." command="tidegate workflow run report.yaml" />}
      state={(row) => (row.paused ? <State state="paused" /> : <span class="dim">Active</span>)}
      columns={[
        { head: "Ready jobs", kind: "number", cell: (row) => row.ready.toLocaleString("en") },
        { head: "Oldest job", kind: "number", cell: (row) => <Waits at={row.oldest_ready_at} /> },
        { head: "Idle workers", kind: "number", cell: (row) => row.waiting_workers },
      ]}
      body={(row) => <Jobs name={row.name} />} />
  );
}

/** Pausing stops jobs on all servers, and is taken back with one click. */
export function verb({ name, paused }: Queue) {
  const call = (verb: string): Call => ({ method: "POST", path: path("v1/queues", [name], verb) });
  return paused
    ? { label: "Resume", icon: "play", call: call(":resume"), toast: `Queue ${name} resumed.`, undo: call(":pause") } as const
    : { label: "Pause", icon: "bars", call: call(":pause"), toast: `Queue ${name} paused. Running jobs finish.`, undo: call(":resume") } as const;
}

function Waits({ at }: { at: string | null }) {
  return <Duration ms={at ? Math.max(now.value - Date.parse(at), 0) : null} />;
}

interface Policies {
  readonly limits?: readonly Limit[];
  readonly weights?: readonly { readonly entries: Limit["entries"]; readonly weight: number }[];
}

/** Running jobs are known from the workers, and waiting ones from their limits. */
function Jobs({ name }: { name: string }) {
  const workers = usePoll<Page<Worker>>("v1/workers", 2000).data;
  const part = workers && (workers.next_cursor || workers.items.some((one) => one.running > one.jobs.length));
  const running = workers?.items.flatMap((worker) => worker.jobs.filter((job) => job.queue === name).map((job) => ({ ...job, worker: worker.name })));
  const waiting = usePoll<Page<WaitingKey>>(withQuery("v1/limits", { queue: name }), 3000).data?.items ?? [];
  const { limits = [] } = usePoll<Policies>(path("v1/queues", [name], "/limits"), 10_000).data ?? {};
  const { weights = [] } = usePoll<Policies>(path("v1/queues", [name], "/weights"), 10_000).data ?? {};
  return (
    <>
      <RunningJobs jobs={running ?? null} empty={part ? "None of the running jobs that are known" : undefined} />
      {part ? <p class="note">Of the first 100 workers, ten jobs of each</p> : null}
      {waiting.length > 0 ? <Table label="Jobs waiting for a limit" rows={waiting} rowKey={(row) => JSON.stringify([row.handler, row.limits])} columns={[
        { head: "Waiting", kind: "number", cell: (row) => row.waiting.toLocaleString("en") },
        { head: "Handler", names: true, cell: (row) => <Name text={row.handler} max={40} /> },
        { head: "Limit", kind: "wide", cell: (row) => <Name text={row.limits.map(limitWords).join(", ")} max={100} /> },
      ]} /> : null}
      <dl class="facts">
        <dt>Limits</dt><dd>{limits.length > 0 ? limits.map((limit, at) => <div key={at}><Name text={limitWords(limit)} max={200} /></div>) : "None"}</dd>
        <dt>Weights</dt><dd>{weights.length > 0 ? weights.slice(0, 50).map(({ entries, weight }, at) => <div key={at}>{weight} for <Name text={entries.map((pair) => pair.join("=")).join(" ")} max={200} /></div>) : "None"}</dd>
      </dl>
    </>
  );
}
