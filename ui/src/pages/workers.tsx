// Workers of all servers: what they run, and whether they take more.
import { path, withQuery } from "../api";
import { TopBar } from "../frame/top";
import { Action } from "../parts/action";
import { FindField, useFind } from "../parts/find";
import { State } from "../parts/state";
import { Problem } from "../parts/toasts";
import { Table } from "../parts/table";
import { Name } from "../parts/text";
import { Ago } from "../parts/time";
import { usePoll } from "../poll";
import { href, place } from "../router";
import type { Page } from "../model";
import { Pages } from "./queues";

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
  return (
    <>
      <TopBar title="Workers" />
      <FindField find={find} part={Boolean(cursor ?? data?.next_cursor)} />
      <Problem error={error} />
      <Table label="Workers" rows={find.rows} rowKey={(row) => row.name} failed={error !== null} empty={find.empty ?? "No workers: one appears when it asks for a job"} columns={[
        { head: "Worker", names: true, cell: (row) => <Name text={row.name} max={60} /> },
        { head: "State", cell: (row) => (row.draining_since ? <><State state="paused" /> <span class="dim">drains, <Ago at={row.draining_since} /></span></> : <span class="dim">Active</span>) },
        { head: "Running jobs", kind: "number", cell: (row) => row.running },
        { head: "Jobs", kind: "wide", cell: (row) => row.jobs.map((job) => (
          <a key={`${job.workflow_id} ${job.job}`} class="tag" href={href(["workflows", job.workflow_id], { job: job.job })}><Name text={job.job} max={40} /></a>
        )) },
        { head: "Queues", cell: (row) => <Name text={row.queues.join(", ")} max={60} /> },
        { head: "Seen", cell: (row) => <Ago at={row.seen_at} /> },
        { head: "", cell: (row) => (row.draining_since
          ? <Action label="Undrain" call={{ method: "POST", path: path("v1/workers", [row.name], ":undrain") }} toast={`${row.name} gets jobs again.`} done={again} />
          : <Action label="Drain" confirm={<><Name text={row.name} /> gets no more jobs, on all servers. It may finish what it has.</>}
              call={{ method: "POST", path: path("v1/workers", [row.name], ":drain") }} toast={`${row.name} gets no more jobs.`} done={again} />) },
      ]} />
      <Pages first={Boolean(cursor)} next={data?.next_cursor} />
    </>
  );
}
