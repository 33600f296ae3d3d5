// Workers of all servers: what they run, and whether they take more.
import { path, withQuery } from "../api";
import { Action } from "../parts/action";
import { FindField, useFind } from "../parts/find";
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
      <h1>Workers</h1>
      <FindField find={find} part={Boolean(cursor ?? data?.next_cursor)} />
      <Problem error={error} />
      <Table label="Workers" rows={find.rows} rowKey={(row) => row.name} failed={error !== null} empty={find.empty ?? "no worker asked for jobs lately"} columns={[
        { head: "worker", names: true, cell: (row) => <Name text={row.name} max={60} /> },
        { head: "state", cell: (row) => (row.draining_since ? <b class="s-paused">drains, <Ago at={row.draining_since} /></b> : "takes jobs") },
        { head: "runs", kind: "number", cell: (row) => row.running },
        { head: "jobs", kind: "wide", cell: (row) => row.jobs.map((job) => (
          <a key={`${job.workflow_id} ${job.job}`} class="tag" href={href(["workflows", job.workflow_id], { job: job.job })}><Name text={job.job} max={40} /></a>
        )) },
        { head: "queues", cell: (row) => <Name text={row.queues.join(", ")} max={60} /> },
        { head: "seen", cell: (row) => <Ago at={row.seen_at} /> },
        { head: "", cell: (row) => (row.draining_since
          ? <Action label="Undrain" call={{ method: "POST", path: path("v1/workers", [row.name], ":undrain") }} toast={`${row.name} gets jobs again.`} done={again} />
          : <Action label="Drain" confirm={<><Name text={row.name} /> gets no more jobs, on all servers. It may finish what it has.</>}
              call={{ method: "POST", path: path("v1/workers", [row.name], ":drain") }} toast={`${row.name} gets no more jobs.`} done={again} />) },
      ]} />
      <Pages first={Boolean(cursor)} next={data?.next_cursor} />
    </>
  );
}
