// The first page of an operator: the numbers of now, what needs attention, and the rates of the range.
import { useEffect, useState } from "preact/hooks";
import { unreachable } from "../api";
import { range } from "../frame/range";
import { overview, type Status } from "../frame/server";
import { TopBar } from "../frame/top";
import { watch } from "../live";
import { Chart, short, zoom, type ChartLine } from "../parts/chart";
import { Spark } from "../parts/spark";
import { Problem } from "../parts/toasts";
import { Table } from "../parts/table";
import { Name } from "../parts/text";
import { Ago } from "../parts/time";
import { limitsOnly, usePoll } from "../poll";
import { href } from "../router";
import { knownLimits } from "./limits/known";
import type { Level } from "./limits/model";
import { Attention, attentionRows } from "./overview/attention";
import { BusiestKeys, RefusedKeys, useTop } from "./overview/keys";

type Values = Readonly<Record<string, number | null>>;

interface Moment {
  readonly until: string;
  readonly values: Values;
  readonly workflows: Readonly<Record<string, number>>;
  readonly jobs: Readonly<Record<string, number>>;
}

export interface Overview {
  readonly step_ms: number;
  readonly until: string;
  readonly series: Readonly<Record<string, readonly (number | null)[]>>;
  readonly now: Moment;
}

export function Overview() {
  const { data, error } = overview.value;
  const [live, setLive] = useState<Moment | null>(null);
  useEffect(
    () =>
      watch("overview", (events) => {
        for (const event of events) if (event.event === "overview") setLive(event.data as Moment);
      }),
    [],
  );
  const top = useTop();
  const known = knownLimits(usePoll<Level>("v1/limits/configuration", 2000).data);
  return (
    <>
      <TopBar title="Overview" />
      <Problem error={error} />
      <Now now={live ?? data?.now ?? null} series={data?.series ?? {}} />
      <div class="grid overview">
        <Charts data={data} />
        <div class="stack">
          <Attention known={known} />
          <BusiestKeys top={top} limits={known} max={10 - Math.floor(1.6 * attentionRows.value)} />
        </div>
      </div>
      <RefusedKeys limits={known} max={8} more={href(["limits"])} />
      <Health />
    </>
  );
}

function Now({ now, series }: { now: Moment | null; series: Overview["series"] }) {
  const value = (name: string): number => now?.values[name] ?? 0;
  const all = value("decisions_ok") + value("decisions_over_limit");
  const counted = now !== null && Object.keys(now.workflows).length > 0;
  const workflows = (status: string): string => (counted ? (now.workflows[status] ?? 0).toLocaleString("en") : "–");
  const failed = now?.workflows["failed"] ?? 0;
  const jobs = (state: string): string => (counted ? (now.jobs[state] ?? 0).toLocaleString("en") : "–");
  const past = (name: string) => series[name] ?? [];
  return (
    <section aria-label="Now" class="grid stats">
      <Stat label="Allowed" to={["limits"]} value={short(now?.values["decisions_ok"])} unit="/s" fact={`of ${short(all)} decisions /s`} past={past("decisions_ok")} />
      <Stat label="Refused" to={["limits"]} value={short(now?.values["decisions_over_limit"])} unit="/s" fact={`${((100 * value("decisions_over_limit")) / Math.max(all, 1e-9)).toFixed(1)}% of decisions`} past={past("decisions_over_limit")} kind="bad" />
      <Stat label="Decision latency, p99" to={["limits"]} value={short(now?.values["decision_p99_ms"])} unit="ms" fact={`p50 ${short(now?.values["decision_p50_ms"])} ms`} past={past("decision_p99_ms")} kind="hold" />
      {limitsOnly.value ? null : <>
      <Stat label="Jobs finished" to={["queues"]} value={now ? short(value("jobs_succeeded") + value("jobs_failed")) : "–"} unit="/s" fact={`${jobs("running")} running, ${jobs("ready")} queued`} past={past("jobs_succeeded")} />
      <Stat label="Workflows running" to={["workflows"]} status="running" value={workflows("running")} fact={`${workflows("paused")} paused, ${workflows("succeeded")} done`} past={past("workflows_running")} />
      <Stat label="Workflows failed" to={["failures"]} value={workflows("failed")} bad={failed > 0} fact={failed > 0 ? "See the errors" : counted ? "None" : "Not counted yet"} past={past("workflows_failed")} kind="bad" />
      </>}
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
  readonly past: readonly (number | null)[];
  /** The colour of the line. */
  readonly kind?: string;
}

function Stat({ label, to, status, value, unit, fact, bad = false, past, kind = "" }: StatProps) {
  return (
    <a class="panel stat" href={href(to, { status })}>
      <span class="cut">{label}</span>
      <span class="value"><span><b class={bad ? "bad" : undefined}>{value}</b>{unit ? <span class="dim"> {unit}</span> : null}</span><Spark values={past} kind={kind} /></span>
      <span class="cut">{fact}</span>
    </a>
  );
}

type Lines = readonly (readonly [label: string, colour: string, name: string])[];
const DECISIONS: Lines = [["Allowed", "--c1", "decisions_ok"], ["Refused", "--c2", "decisions_over_limit"], ["Near limit", "--c3", "decisions_near_limit"]];
const LATENCY: Lines = [["p50", "--c1", "decision_p50_ms"], ["p99", "--c4", "decision_p99_ms"]];
const JOBS: Lines = [["Succeeded", "--c1", "jobs_succeeded"], ["Failed", "--c2", "jobs_failed"]];

/** Complete steps only: a point that is not over would look like a fall. */
function Charts({ data }: { data: Overview | null }) {
  useEffect(() => {
    zoom.value = null;
    return () => (zoom.value = null);
  }, [range.value]);
  const until = data ? Date.parse(data.until) / 1000 : 0;
  const count = data?.series["calls"]?.length ?? 0;
  const times = Array.from({ length: count }, (_, at) => Math.round(until - ((count - 1 - at) * (data?.step_ms ?? 0)) / 1000));
  const lines = (of: Lines): ChartLine[] => of.map(([label, colour, name]) => ({ label, colour, values: data?.series[name] ?? [] }));
  return (
    <div class="stack">
      <Chart label="Decisions" unit="per second" times={times} lines={lines(DECISIONS)} />
      <div class="grid half">
        <Chart label="Latency" unit="ms" times={times} lines={lines(LATENCY)} height={112} />
        <Chart label="Jobs" unit="per second" times={times} lines={lines(JOBS)} height={112} />
      </div>
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
