// Queues: what waits in them and for how long, and whether they hand out jobs.
import { mayAct, path, withQuery, type Call } from "../api";
import { TopBar } from "../frame/top";
import { Empty } from "../parts/empty";
import { FindField, useFind } from "../parts/find";
import { VerbButton, Menu, type Verb } from "../parts/menu";
import { State } from "../parts/state";
import { Problem } from "../parts/toasts";
import { Table } from "../parts/table";
import { cut, Name, plain } from "../parts/text";
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
  const rows = find.rows && [...find.rows].sort((one, other) => naturally(one.name, other.name));
  return (
    <>
      <TopBar title="Queues" />
      <Problem error={error} />
      <section class="panel part" aria-label="List of queues">
        <header><FindField find={find} part={Boolean(cursor ?? data?.next_cursor)} /><span class="note push">{data ? `${data.items.length} ${data.items.length === 1 ? "queue" : "queues"}` : ""}</span></header>
        <Table label="Queues" rows={rows} rowKey={(row) => row.name} failed={error !== null}
          empty={find.empty ?? <Empty icon="queues" title="No queues yet" text="The first job that names one makes it." command="tidegate workflow run report.yaml" />} columns={[
          { head: "Queue", names: true, cell: (row) => <b><Name text={row.name} /></b> },
          { head: "State", cell: (row) => (row.paused ? <State state="paused" /> : <span class="dim">Active</span>) },
          { head: "Ready jobs", kind: "number", cell: (row) => row.ready.toLocaleString("en") },
          { head: "Oldest job", kind: "number", cell: (row) => <Waits at={row.oldest_ready_at} /> },
          { head: "Idle workers", kind: "number", cell: (row) => row.waiting_workers },
          { head: "", kind: "wide", cell: (row) => <Turn row={row} done={again} /> },
        ]} />
      </section>
      <Pages first={Boolean(cursor)} next={data?.next_cursor} />
    </>
  );
}

/** 2 before 10. */
export const naturally = new Intl.Collator("en", { numeric: true }).compare;

/** Pausing stops jobs on all servers, and is taken back with one click. */
function Turn({ row: { name, paused }, done }: { row: Queue; done: () => void }) {
  if (!mayAct()) return null;
  const call = (verb: string): Call => ({ method: "POST", path: path("v1/queues", [name], verb) });
  const verb: Verb = paused
    ? { label: "Resume", icon: "play", call: call(":resume"), toast: `Queue ${name} resumed.`, undo: call(":pause"), done }
    : { label: "Pause", icon: "bars", call: call(":pause"), toast: `Queue ${name} paused. Running jobs finish.`, undo: call(":resume"), done };
  return <span class="row-buttons end"><VerbButton verb={verb} small /><Menu small label={`Actions on ${cut(plain(name), 60)}`} verbs={[verb]} /></span>;
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
