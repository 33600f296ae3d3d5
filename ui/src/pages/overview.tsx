// What an operator looks at first: rates of the last hour, what there is now, and whether the store is well.
import { useEffect, useState } from "preact/hooks";
import { watch } from "../live";
import { Chart, short, type ChartLine } from "../parts/chart";
import { Problem } from "../parts/toasts";
import { State } from "../parts/state";
import { Table } from "../parts/table";
import { Name } from "../parts/text";
import { Ago } from "../parts/time";
import { usePoll } from "../poll";
import { href } from "../router";
import { Top } from "./overview/top";

type Values = Readonly<Record<string, number | null>>;

interface Moment {
  readonly until: string;
  readonly values: Values;
  readonly workflows: Readonly<Record<string, number>>;
  readonly jobs: Readonly<Record<string, number>>;
}

interface Overview {
  readonly step_ms: number;
  readonly until: string;
  readonly series: Readonly<Record<string, readonly (number | null)[]>>;
  readonly now: Moment;
}

interface Server {
  readonly id: string;
  readonly address: string;
  readonly version: string;
  readonly answers: boolean;
  readonly heard_at: string; // plain: a field of the API
  readonly home_partitions: readonly number[];
}

interface Status {
  readonly limits: string;
  readonly workflows: {
    readonly ready: boolean;
    readonly reason: string | null;
    readonly reads: string;
    readonly writes: string;
    readonly partitions: number;
    readonly risks: readonly string[];
    readonly servers: readonly Server[];
    readonly troubles: readonly { readonly partitions: readonly number[]; readonly reason: string }[];
  };
}

export function Overview() {
  const { data, error } = usePoll<Overview>("v1/overview", 10_000);
  const [live, setLive] = useState<Moment | null>(null);
  useEffect(
    () =>
      watch("overview", (events) => {
        for (const event of events) if (event.event === "overview") setLive(event.data as Moment);
      }),
    [],
  );
  const now = live ?? data?.now ?? null;
  return (
    <>
      <h1>Overview</h1>
      <Problem error={error} />
      <Now now={now} />
      {data ? <Charts data={data} now={now} /> : null}
      <Top />
      <Health />
    </>
  );
}

const SHOWN = ["running", "paused", "failed", "pending", "succeeded", "cancelled"];

function Now({ now }: { now: Moment | null }) {
  const value = (name: string): string => short(now?.values[name]);
  return (
    <section aria-label="Now">
      <p class="facts-line">
        <span><b class="num">{value("decisions_ok")}</b> decisions/s ok</span>
        <span class="s-failed"><b class="num">{value("decisions_over_limit")}</b> over the limit</span>
        <span class="s-scheduled"><b class="num">{value("decisions_near_limit")}</b> near a limit</span>
        <span><b class="num">{value("decisions_failed")}</b> failed</span>
        <span>p50 <b class="num">{value("decision_p50_ms")}</b> ms</span>
        <span>p99 <b class="num">{value("decision_p99_ms")}</b> ms</span>
        <span><b class="num">{value("jobs_succeeded")}</b> jobs/s</span>
      </p>
      <p class="facts-line">
        <span>Workflows:</span>
        {SHOWN.filter((status) => (now?.workflows[status] ?? 0) > 0).map((status) => (
          <a key={status} href={href(["workflows"], { status })}><State state={status} count={now?.workflows[status] ?? 0} /></a>
        ))}
        {now && Object.values(now.workflows).every((count) => count === 0) ? <span class="dim">{Object.keys(now.workflows).length === 0 ? "not counted yet" : "none"}</span> : null}
      </p>
    </section>
  );
}

const CHARTS: readonly (readonly [string, string, readonly (readonly [string, string, string])[]])[] = [
  ["Decisions", "hits of limits a second", [["ok", "--succeeded", "decisions_ok"], ["near limit", "--scheduled", "decisions_near_limit"], ["over limit", "--failed", "decisions_over_limit"], ["failed calls", "--cancelled", "decisions_failed"]]],
  ["Time of a decision", "ms", [["p50", "--running", "decision_p50_ms"], ["p99", "--scheduled", "decision_p99_ms"]]],
  ["Jobs", "a second", [["started", "--running", "jobs_started"], ["succeeded", "--succeeded", "jobs_succeeded"], ["failed", "--failed", "jobs_failed"], ["tried again", "--scheduled", "jobs_retried"]]],
  ["Workflows and leases", "a second", [["workflows created", "--running", "workflows_created"], ["leases lost", "--failed", "leases_lost"]]],
];

/** The points of the last hour, and after them the latest moment. */
function Charts({ data, now }: { data: Overview; now: Moment | null }) {
  const until = Date.parse(data.until) / 1000;
  const count = data.series["calls"]?.length ?? 0;
  const times = Array.from({ length: count }, (_, at) => until - ((count - 1 - at) * data.step_ms) / 1000);
  const latest = now && Date.parse(now.until) / 1000 > until ? now : null;
  if (latest) times.push(Date.parse(latest.until) / 1000);
  const line = ([label, colour, name]: readonly [string, string, string]): ChartLine => {
    const past = data.series[name] ?? [];
    return { label, colour, values: latest ? [...past, latest.values[name] ?? null] : past };
  };
  return (
    <div class="charts">
      {CHARTS.map(([label, unit, lines]) => <Chart key={label} label={label} unit={unit} times={times} lines={lines.map(line)} />)}
    </div>
  );
}

function Health() {
  const { data, error } = usePoll<Status>("v1/status", 5000);
  const store = data?.workflows;
  // The last answer says nothing about the time after the server was gone.
  const works = (what: string, word: string) => <span>{what}: {error ? <span class="dim">unknown</span> : <b class={word === "yes" ? "s-succeeded" : "s-failed"}>{word}</b>}</span>;
  return (
    <section aria-label="Health">
      <h2>Health</h2>
      <Problem error={error} />
      {data && store ? (
        <>
          <p class="facts-line">
            {works("rate limits answer", data.limits)}
            {works("workflows are read", store.reads)}
            {works("and written", store.writes)}
            <span>{store.partitions} partitions</span>
          </p>
          {store.reason ? <p class="warning"><Name text={store.reason} max={400} /></p> : null}
          {store.risks.map((risk) => <p key={risk} class="warning"><Name text={risk} max={600} /></p>)}
          {store.troubles.map((one, at) => <p key={at} class="warning">partitions {one.partitions.join(", ")}: <Name text={one.reason} max={400} /></p>)}
          {store.servers.length > 0 ? (
            <Table label="Servers" rows={store.servers} rowKey={(row) => row.id} columns={[
              { head: "server", names: true, cell: (row) => <span class="mono"><Name text={row.address} /></span> },
              { head: "answers", cell: (row) => (error ? <span class="dim">unknown</span> : row.answers ? "yes" : <b class="s-failed">no</b>) },
              { head: "version", cell: (row) => <Name text={row.version} /> },
              { head: "last heartbeat", cell: (row) => <Ago at={row.heard_at} /> }, // plain: a field of the API
              { head: "home of partitions", kind: "wide", cell: (row) => row.home_partitions.join(", ") },
            ]} />
          ) : null}
        </>
      ) : null}
    </section>
  );
}
