// Workers of all servers: what they run, and whether they take more.
import { mayAct, path, withQuery, type Call } from "../api";
import { TopBar } from "../frame/top";
import { Empty } from "../parts/empty";
import { FindField, useFind } from "../parts/find";
import { VerbButton, Menu, type Verb } from "../parts/menu";
import { State } from "../parts/state";
import { Problem } from "../parts/toasts";
import { Table } from "../parts/table";
import { cut, Name, plain } from "../parts/text";
import { Ago } from "../parts/time";
import { usePoll } from "../poll";
import { href, place } from "../router";
import type { Page } from "../model";
import { naturally, Pages } from "./queues";

interface Worker {
  readonly name: string;
  readonly queues: readonly string[];
  readonly handlers: readonly string[] | null;
  readonly running: number;
  readonly jobs: readonly { readonly workflow_id: string; readonly job: string }[];
  readonly seen_at: string | null;
  readonly draining_since: string | null;
}

export function Workers() {
  const cursor = place.value.query["cursor"];
  const { data, error, again } = usePoll<Page<Worker>>(withQuery("v1/workers", { limit: 100, cursor }), 2000);
  const find = useFind(data?.items, (row) => `${row.name} ${row.queues.join(" ")}`);
  const rows = find.rows && [...find.rows].sort((one, other) => naturally(one.name, other.name));
  return (
    <>
      <TopBar title="Workers" />
      <Problem error={error} />
      <section class="panel part" aria-label="List of workers">
        <header><FindField find={find} part={Boolean(cursor ?? data?.next_cursor)} /><span class="note push">{data ? `${data.items.length} ${data.items.length === 1 ? "worker" : "workers"}` : ""}</span></header>
        <Table label="Workers" rows={rows} rowKey={(row) => row.name} failed={error !== null}
          empty={find.empty ?? <Empty icon="workers" title="No workers yet" text="A worker appears when it asks for a job:" command="tidegate-worker shop" />} columns={[
          { head: "Worker", names: true, cell: (row) => <b><Name text={row.name} max={60} /></b> },
          { head: "State", cell: (row) => (row.draining_since ? <><State state="paused" /> <span class="dim">drains, <Ago at={row.draining_since} /></span></> : <span class="dim">Active</span>) },
          { head: "Running jobs", kind: "number", cell: (row) => row.running },
          { head: "Jobs", kind: "wide", cell: (row) => row.jobs.map((job) => (
            <a key={`${job.workflow_id} ${job.job}`} class="tag" href={href(["workflows", job.workflow_id], { job: job.job })}><Name text={job.job} max={40} /></a>
          )) },
          { head: "Queues", kind: "narrow", cell: (row) => <span class="dim"><Name text={row.queues.join(", ")} max={60} /></span> },
          { head: "Seen", kind: "number", cell: (row) => <span class="dim"><Ago at={row.seen_at} /></span> },
          { head: "", cell: (row) => <Turn row={row} done={again} /> },
        ]} />
      </section>
      <Pages first={Boolean(cursor)} next={data?.next_cursor} />
    </>
  );
}

/** A worker that drains may finish what it has. */
function Turn({ row: { name, draining_since }, done }: { row: Worker; done: () => void }) {
  if (!mayAct()) return null;
  const call = (verb: string): Call => ({ method: "POST", path: path("v1/workers", [name], verb) });
  const verb: Verb = draining_since
    ? { label: "Undrain", icon: "play", call: call(":undrain"), toast: `Worker ${name} gets jobs again.`, undo: call(":drain"), done }
    : { label: "Drain", icon: "bars", call: call(":drain"), toast: `Worker ${name} gets no more jobs.`, undo: call(":undrain"), done };
  return <span class="row-buttons end"><VerbButton verb={verb} small /><Menu small label={`Actions on ${cut(plain(name), 60)}`} verbs={[verb]} /></span>;
}
