// Queues: what waits in them and for how long, and whether they hand out jobs.
import { path, withQuery } from "../api";
import { TopBar } from "../frame/top";
import { Action } from "../parts/action";
import { FindField, useFind } from "../parts/find";
import { State } from "../parts/state";
import { Problem } from "../parts/toasts";
import { Table } from "../parts/table";
import { Name } from "../parts/text";
import { Duration, now } from "../parts/time";
import { usePoll } from "../poll";
import { place, setQuery } from "../router";
import type { Page } from "../model";

interface Queue {
  readonly name: string;
  readonly ready: number;
  readonly oldest_ready_at: string | null;
  readonly paused: boolean;
  readonly waiting_workers: number;
}

export function Queues() {
  const cursor = place.value.query["cursor"];
  const { data, error, again } = usePoll<Page<Queue>>(withQuery("v1/queues", { limit: 100, cursor }), 1500);
  const find = useFind(data?.items, (row) => row.name);
  return (
    <>
      <TopBar title="Queues" />
      <FindField find={find} part={Boolean(cursor ?? data?.next_cursor)} />
      <Problem error={error} />
      <Table label="Queues" rows={find.rows} rowKey={(row) => row.name} failed={error !== null} empty={find.empty ?? "No queues yet: the first job that names one makes it"} columns={[
        { head: "Queue", names: true, cell: (row) => <Name text={row.name} /> },
        { head: "State", cell: (row) => (row.paused ? <State state="paused" /> : <span class="dim">Active</span>) },
        { head: "Ready jobs", kind: "number", cell: (row) => row.ready.toLocaleString("en") },
        { head: "Oldest job", kind: "number", cell: (row) => <Waits at={row.oldest_ready_at} /> },
        { head: "Idle workers", kind: "number", cell: (row) => row.waiting_workers },
        { head: "", cell: (row) => (row.paused
          ? <Action label="Resume" call={{ method: "POST", path: path("v1/queues", [row.name], ":resume") }} toast={`${row.name} is active.`} done={again} />
          : <Action label="Pause" confirm={<>No job of <Name text={row.name} /> is handed out until you resume it, on all servers. Jobs that run go on.</>}
              call={{ method: "POST", path: path("v1/queues", [row.name], ":pause") }} toast={`${row.name} is paused.`} done={again} />) },
      ]} />
      <Pages first={Boolean(cursor)} next={data?.next_cursor} />
    </>
  );
}

function Waits({ at }: { at: string | null }) {
  return <Duration ms={at ? Math.max(now.value - Date.parse(at), 0) : null} />;
}

export function Pages({ first, next }: { first: boolean; next: string | null | undefined }) {
  if (!first && !next) return null;
  return (
    <div class="buttons" role="group" aria-label="Pages">
      <button disabled={!first} onClick={() => setQuery({ cursor: null }, "keep")}>First</button>
      <button disabled={!next} onClick={() => setQuery({ cursor: next }, "keep")}>Next</button>
    </div>
  );
}
