// Limits: who waits under them and who holds them, what is paused or scaled, the configuration, and what the server would answer.
import { withQuery } from "../api";
import { TopBar } from "../frame/top";
import { State } from "../parts/state";
import { Problem } from "../parts/toasts";
import { Table } from "../parts/table";
import { Name } from "../parts/text";
import { Duration, now, Time } from "../parts/time";
import { Usage } from "../parts/usage";
import { usePoll } from "../poll";
import { href, place } from "../router";
import type { Holder, Limit, Page } from "../model";
import { Check } from "./limits/check";
import { Configuration } from "./limits/configuration";
import { Overrides } from "./limits/overrides";
import { keyText, Top } from "./overview/top";
import { Pages } from "./queues";

interface LimitInUse extends Limit {
  readonly running?: number;
  readonly use?: { readonly used?: number; readonly limit?: number; readonly resets_at?: string } | null;
  readonly holders?: readonly Holder[];
}

interface WaitingKey {
  readonly queue: string;
  readonly handler: string;
  readonly waiting: number;
  readonly oldest_ready_at: string;
  readonly limits: readonly LimitInUse[];
  readonly full: { readonly index: number; readonly until: string | null } | null;
}

export function Limits() {
  return (
    <>
      <TopBar title="Limits" />
      <Configuration />
      <Waiting />
      <Overrides />
      <Check />
      <Top max={25} />
    </>
  );
}

const words = (limit: LimitInUse): string =>
  limit.concurrency !== undefined
    ? `${limit.concurrency} at a time${limit.entries.length > 0 ? ` for ${limit.entries.map((pair) => pair.join("=")).join(", ")}` : ""}`
    : keyText(limit.domain ?? "", limit.entries);

function Waiting() {
  const cursor = place.value.query["cursor"];
  const { data, error } = usePoll<Page<WaitingKey>>(withQuery("v1/limits", { limit: 50, cursor }), 2000);
  return (
    <section aria-label="Jobs waiting for a limit">
      <h2>Jobs waiting for a limit</h2>
      <Problem error={error} />
      <Table label="Jobs waiting for a limit" rows={data?.items ?? null} failed={error !== null} rowKey={(row) => JSON.stringify([row.queue, row.handler, row.limits.map(words)])} empty="No job waits for a limit" columns={[
        { head: "Queue", cell: (row) => <Name text={row.queue} max={40} /> },
        { head: "Handler", names: true, cell: (row) => <Name text={row.handler} max={40} /> },
        { head: "Waiting", kind: "number", cell: (row) => row.waiting.toLocaleString("en") },
        { head: "Oldest job", kind: "number", cell: (row) => <Duration ms={Math.max(now.value - Date.parse(row.oldest_ready_at), 0)} /> },
        { head: "Limits", kind: "wide", cell: (row) => row.limits.map((limit, at) => <InUse key={at} limit={limit} full={row.full?.index === at} />) },
        { head: "Next slot", cell: (row) => (row.full ? (row.full.until ? <Time at={row.full.until} /> : "When one ends") : "Now") },
      ]} />
      <Pages first={Boolean(cursor)} next={data?.next_cursor} />
    </section>
  );
}

function InUse({ limit, full }: { limit: LimitInUse; full: boolean }) {
  const used = limit.running ?? limit.use?.used;
  const total = limit.concurrency ?? limit.use?.limit;
  return (
    <div>
      <Name text={words(limit)} max={120} />{" "}
      {used === undefined ? null : <>{total === undefined ? <span class="dim">{used} used</span> : <Usage used={used} limit={total} />} </>}
      {full ? <State state="full" /> : null}{limit.holders?.length ? <span class="dim"> held by </span> : null}
      {limit.holders?.map((holder) => (
        <a key={`${holder.workflow} ${holder.index}`} class="tag" href={href(["workflows", holder.workflow], holder.job ? { job: holder.job } : {})}>
          <Name text={holder.job ?? `job ${holder.index}`} max={30} />
        </a>
      ))}
    </div>
  );
}
