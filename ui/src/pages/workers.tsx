// Workers of all servers: what they run, and whether they take more.
import { path, type Call } from "../api";
import type { Job } from "../model";
import { QueueLink, WorkerLink } from "../parts/drawer";
import { Empty } from "../parts/empty";
import { State } from "../parts/state";
import { Table } from "../parts/table";
import { Name } from "../parts/text";
import { Ago } from "../parts/time";
import { usePoll } from "../poll";
import { href } from "../router";
import { Listing } from "./listing";

interface RunningJob {
  readonly workflow_id: string;
  readonly job: string;
  readonly handler: string;
  readonly queue: string;
  readonly since: string;
  readonly worker?: string;
}

export interface Worker {
  readonly name: string;
  readonly queues: readonly string[];
  readonly handlers: readonly string[] | null;
  readonly running: number;
  readonly jobs: readonly RunningJob[];
  readonly seen_at: string | null;
  readonly draining_since: string | null;
  readonly draining_by: string | null;
}

const JobLink = ({ job }: { job: RunningJob }) => <a href={href(["workflows", job.workflow_id], { job: job.job })}><Name text={job.job} max={40} /></a>;
const Links = ({ names }: { names: readonly string[] }) => <>{names.map((name, at) => <>{at > 0 ? ", " : ""}<QueueLink name={name} max={40} /></>)}</>;

export function Workers() {
  return (
    <Listing<Worker> title="Workers" noun="worker" words={(row) => `${row.name} ${row.queues.join(" ")}`} verb={verb}
      empty={<Empty icon="workers" title="No workers yet" text="A worker appears when it asks for a job:" command="tidegate-worker shop" />}
      state={(row) => (row.draining_since ? <><State state="paused" text="Draining" /> <span class="dim">{row.draining_by ? <>by <Name text={row.draining_by} max={30} />, </> : null}<Ago at={row.draining_since} /></span></> : <span class="dim">Active</span>)}
      columns={[
        { head: "Running jobs", kind: "number", cell: (row) => row.running },
        { head: "Jobs", kind: "wide", cell: (row) => row.jobs.map((job) => <span key={`${job.workflow_id} ${job.job}`} class="tag"><JobLink job={job} /></span>) },
        { head: "Queues", kind: "narrow", cell: (row) => <Links names={row.queues} /> },
        { head: "Handlers", kind: "narrow", cell: (row) => <span class="dim"><Name text={row.handlers?.join(", ") ?? "all"} max={60} /></span> },
        { head: "Seen", kind: "number", cell: (row) => <span class="dim"><Ago at={row.seen_at} /></span> },
      ]}
      body={(row) => <RunningJobs jobs={row.jobs} />} />
  );
}

/** A worker that drains may finish what it has. */
function verb({ name, draining_since }: Worker) {
  const call = (verb: string): Call => ({ method: "POST", path: path("v1/workers", [name], verb) });
  return draining_since
    ? { label: "Undrain", icon: "play", call: call(":undrain"), toast: `Worker ${name} gets jobs again.`, undo: call(":drain") } as const
    : { label: "Drain", icon: "bars", call: call(":drain"), toast: `Worker ${name} gets no more jobs.`, undo: call(":undrain") } as const;
}

/** Jobs with the worker of each, or with the progress of each if they are of one worker. */
export function RunningJobs({ jobs, empty = "No running jobs" }: { jobs: readonly RunningJob[] | null; empty?: string | undefined }) {
  return (
    <Table label="Running jobs" link rows={jobs} rowKey={(row) => `${row.workflow_id} ${row.job}`} empty={empty} columns={[
      { head: "Running job", names: true, cell: (row) => <JobLink job={row} /> },
      { head: "Handler", cell: (row) => <Name text={row.handler} max={30} /> },
      { head: "On", cell: (row) => (row.worker ? <WorkerLink name={row.worker} max={20} /> : <Progress of={row} />) },
      { head: "Since", kind: "number", cell: (row) => <Ago at={row.since} /> },
    ]} />
  );
}

/** A worker has at most ten of them. */
function Progress({ of }: { of: RunningJob }) {
  const percent = usePoll<Job>(path(`v1/workflows/${of.workflow_id}/jobs`, [of.job]), 3000).data?.progress?.percent;
  return percent === undefined ? null : <><progress max={100} value={percent} aria-label="progress" /> {percent}%</>;
}
