// What an operator looks at first: what there is now, rates of the last hour, and whether the server is healthy.
import { useEffect, useState } from "preact/hooks";
import { unreachable } from "../api";
import type { Status } from "../frame/server";
import { TopBar } from "../frame/top";
import { watch } from "../live";
import { Chart, short, type ChartLine } from "../parts/chart";
import { Problem } from "../parts/toasts";
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
      <TopBar title="Overview" />
      <Problem error={error} />
      <Now now={now} />
      {data ? <Charts data={data} now={now} /> : null}
      <Top />
      <Health />
    </>
  );
}

function Now({ now }: { now: Moment | null }) {
  const value = (name: string): number => now?.values[name] ?? 0;
  const share = value("decisions_over_limit") / Math.max(value("decisions_ok") + value("decisions_over_limit"), 1e-9);
  const counted = now !== null && Object.keys(now.workflows).length > 0;
  const workflows = (status: string): string => (counted ? (now.workflows[status] ?? 0).toLocaleString("en") : "–");
  const failed = now?.workflows["failed"] ?? 0;
  return (
    <section aria-label="Now" class="grid stats">
      <Stat label="Allowed" to={["limits"]} value={short(now?.values["decisions_ok"])} unit="/s" fact={`${short(value("decisions_near_limit"))} /s near a limit`} />
      <Stat label="Refused" to={["limits"]} value={short(now?.values["decisions_over_limit"])} unit="/s" fact={`${(100 * share).toFixed(1)}% of decisions`} />
      <Stat label="Decision latency, p99" to={["limits"]} value={short(now?.values["decision_p99_ms"])} unit="ms" fact={`p50 ${short(now?.values["decision_p50_ms"])} ms`} />
      <Stat label="Jobs succeeded" to={["queues"]} value={short(now?.values["jobs_succeeded"])} unit="/s" fact={`${short(value("jobs_failed"))} /s failed`} />
      <Stat label="Workflows running" to={["workflows"]} status="running" value={workflows("running")} fact={`${workflows("paused")} paused, ${workflows("succeeded")} done`} />
      <Stat label="Workflows failed" to={["failures"]} value={workflows("failed")} bad={failed > 0} fact={failed > 0 ? "See the errors" : "None"} />
    </section>
  );
}

interface StatProps {
  readonly label: string;
  readonly to: readonly string[];
  /** The filter of the list that it leads to. */
  readonly status?: string;
  readonly value: string;
  readonly unit?: string;
  readonly fact: string;
  readonly bad?: boolean;
}

function Stat({ label, to, status, value, unit, fact, bad = false }: StatProps) {
  return (
    <a class="panel stat" href={href(to, { status })}>
      <span class="cut">{label}</span>
      <span><b class={bad ? "bad" : undefined}>{value}</b>{unit ? <span class="dim"> {unit}</span> : null}</span>
      <span class="cut">{fact}</span>
    </a>
  );
}

const CHARTS: readonly (readonly [string, string, readonly (readonly [string, string, string])[]])[] = [
  ["Decisions", "per second", [["Allowed", "--c1", "decisions_ok"], ["Refused", "--c2", "decisions_over_limit"], ["Near limit", "--c3", "decisions_near_limit"], ["Failed calls", "--c4", "decisions_failed"]]],
  ["Decision latency", "ms", [["p50", "--c1", "decision_p50_ms"], ["p99", "--c4", "decision_p99_ms"]]],
  ["Jobs", "per second", [["Started", "--c4", "jobs_started"], ["Succeeded", "--c1", "jobs_succeeded"], ["Failed", "--c2", "jobs_failed"], ["Retries", "--c3", "jobs_retried"]]],
  ["Workflows and leases", "per second", [["Workflows created", "--c1", "workflows_created"], ["Leases lost", "--c2", "leases_lost"]]],
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
    <div class="grid charts">
      {CHARTS.map(([label, unit, lines]) => <Chart key={label} label={label} unit={unit} times={times} lines={lines.map(line)} />)}
    </div>
  );
}

function Health() {
  const { data, error } = usePoll<Status>("v1/status", 5000);
  const store = data?.workflows;
  // The last answer says nothing about the time after the server was gone.
  const unknown = error !== null || unreachable.value !== null;
  const works = (what: string, word: string) => (
    <span>{what}: {unknown ? <span class="dim">Unknown</span> : <b class={word === "yes" ? "ok" : "bad"}>{WORKS[word] ?? word}</b>}</span>
  );
  return (
    <section aria-label="Health">
      <h2>Health</h2>
      <Problem error={error} />
      {data && store ? (
        <>
          <p class="facts">
            {works("Rate limits", data.limits)}
            {works("Reads of workflows", store.reads)}
            {works("Writes of workflows", store.writes)}
            <span class="dim">{store.partitions} partitions</span>
          </p>
          {store.servers.length > 0 ? (
            <Table label="Servers" rows={store.servers} rowKey={(row) => row.id} columns={[
              { head: "Server", names: true, cell: (row) => <span class="mono"><Name text={row.address} /></span> },
              { head: "Answers this page", cell: (row) => (unknown ? <span class="dim">Unknown</span> : row.answers ? "Yes" : <span class="dim">No</span>) },
              { head: "Version", cell: (row) => <Name text={row.version} /> },
              { head: "Last heartbeat", cell: (row) => <Ago at={row.heard_at} /> }, // plain: a field of the API
              { head: "Partitions", kind: "wide", cell: (row) => row.home_partitions.join(", ") },
            ]} />
          ) : null}
        </>
      ) : null}
    </section>
  );
}

const WORKS: Readonly<Record<string, string>> = { yes: "Healthy", partly: "Partly", no: "Failing" };
