// Jobs that wait for a limit, by queue and handler.
import { withQuery } from "../../api";
import { State } from "../../parts/state";
import { Problem } from "../../parts/toasts";
import { QueueLink } from "../../parts/drawer";
import { Table } from "../../parts/table";
import { Name } from "../../parts/text";
import { Duration, now, Time } from "../../parts/time";
import { usePoll } from "../../poll";
import { href, place } from "../../router";
import type { Holder, Limit, Page } from "../../model";
import { KeyLink } from "../overview/keys";
import { Pages } from "../listing";
import { limitOf, type KnownLimit } from "./known";
import type { Override } from "./model";

interface LimitInUse extends Limit {
  readonly rule?: string | null;
  readonly running?: number;
  readonly holders?: readonly Holder[];
}

export interface WaitingKey {
  readonly queue: string;
  readonly handler: string;
  readonly waiting: number;
  readonly oldest_ready_at: string;
  readonly limits: readonly LimitInUse[];
  readonly full: { readonly index: number; readonly until: string | null; readonly paused?: Override } | null;
}

/** `rule`: only those that wait for this limit. */
export function Waiting({ known, rule }: { known: readonly KnownLimit[]; rule?: string }) {
  const cursor = rule ? undefined : place.value.query["cursor"];
  const { data, error } = usePoll<Page<WaitingKey>>(withQuery("v1/limits", { limit: 50, cursor }), 2000);
  const rows = data?.items.filter((row) => !rule || row.limits.some((limit) => limit.rule === rule)) ?? null;
  const jobs = rows?.reduce((sum, row) => sum + row.waiting, 0) ?? 0;
  return (
    <section class="panel" aria-label="Jobs waiting for a limit">
      <header><h2>Jobs waiting for a limit</h2><span class="note push">{jobs > 0 ? `${jobs.toLocaleString("en")} jobs` : ""}</span></header>
      <Problem error={error} />
      <Table label="Jobs waiting for a limit table" rows={rows} failed={error !== null} rowKey={(row) => JSON.stringify([row.queue, row.handler, row.limits])} empty="No job waits for a limit" columns={[
        { head: "Jobs", kind: "number", cell: (row) => <b>{row.waiting.toLocaleString("en")}</b> },
        { head: "Handler", names: true, cell: (row) => <Name text={row.handler} max={40} /> },
        { head: "Queue", kind: "narrow", cell: (row) => <QueueLink name={row.queue} max={30} /> },
        { head: "Limit", kind: "wide", cell: (row) => row.limits.map((limit, at) => <InUse key={at} limit={limit} known={known} />) },
        { head: "Oldest", kind: "number", cell: (row) => <Duration ms={Math.max(now.value - Date.parse(row.oldest_ready_at), 0)} /> },
        { head: "Next slot", cell: (row) => <Next full={row.full} /> },
      ]} />
      <Pages first={Boolean(cursor)} next={rule ? null : data?.next_cursor} />
    </section>
  );
}

function Next({ full }: { full: WaitingKey["full"] }) {
  if (!full) return <>Now</>;
  if (full.paused) return <><State state="paused" /> {full.paused.until ? <Time at={full.paused.until} /> : "until resumed"}</>;
  return full.until ? <Time at={full.until} /> : <>When one ends</>;
}

function InUse({ limit, known }: { limit: LimitInUse; known: readonly KnownLimit[] }) {
  if (limit.concurrency === undefined) return <div><KeyLink domain={limit.domain ?? ""} entries={limit.entries} limit={limitOf(known, limit.domain ?? "", limit.entries)} /></div>;
  const of = limit.entries.length > 0 ? ` for ${limit.entries.map((pair) => pair.join("=")).join(", ")}` : ` per ${limit.of ?? "queue"}`;
  return (
    <div>
      <Name text={`${limit.concurrency} at a time${of}`} max={120} />
      {limit.holders?.length ? <span class="dim">, held by </span> : null}
      {limit.holders?.slice(0, 4).map((holder) => (
        <a key={`${holder.workflow} ${holder.index}`} class="tag" href={href(["workflows", holder.workflow], holder.job ? { job: holder.job } : {})}>
          <Name text={holder.job ?? `job ${holder.index}`} max={30} />
        </a>
      ))}
    </div>
  );
}
