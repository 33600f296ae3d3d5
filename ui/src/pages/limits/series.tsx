// Rates of limits over a range: a line for each row of the tree that is seen, and the chart of one limit.
import { signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import { range } from "../../frame/range";
import { Chart, zoom } from "../../parts/chart";
import { Spark } from "../../parts/spark";
import { usePoll } from "../../poll";

interface Series {
  readonly rule: string;
  readonly hits: readonly (number | null)[];
  readonly refused: readonly (number | null)[];
}

interface SeriesList {
  readonly step_ms: number;
  readonly until: string;
  readonly items: readonly Series[];
}

/** Rules of a call, and about the bytes of its address. */
const MAX_RULES = 50;
const MAX_PATH = 4000;
/** Milliseconds of the shortest step. */
const EVERY = 10_000;

/** Rules of the rows that are seen. */
const seen = signal<ReadonlySet<string>>(new Set());
const latest = signal<readonly Series[]>([]);

function useSeries(rules: readonly string[], of: string) {
  let path = `v1/limits/series?range=${of}`;
  for (const rule of rules.slice(0, MAX_RULES)) if (path.length < MAX_PATH) path += `&rule=${encodeURIComponent(rule)}`;
  return usePoll<SeriesList>(rules.length > 0 ? path : null, EVERY);
}

/** Reads the series of all rows that are seen. The earlier ones stay until the answer. */
export function useTrends(): void {
  const [settled, settle] = useState<ReadonlySet<string>>(seen.value);
  const { data } = useSeries([...settled], "15m");
  useEffect(() => {
    const timer = setTimeout(() => settle(seen.value), 200);
    return () => clearTimeout(timer);
  }, [seen.value]);
  useEffect(() => {
    if (data) latest.value = data.items;
  }, [data]);
}

/** The hits of the last 15 minutes. */
export function Trend({ rule }: { rule: string }) {
  const cell = useRef<HTMLTableCellElement>(null);
  useEffect(() => {
    const mark = (is: boolean): void => {
      const rules = new Set(seen.value);
      if (is) rules.add(rule);
      else rules.delete(rule);
      seen.value = rules;
    };
    const observer = new IntersectionObserver((entries) => mark(entries.at(-1)?.isIntersecting ?? false));
    if (cell.current) observer.observe(cell.current);
    return () => {
      observer.disconnect();
      mark(false);
    };
  }, [rule]);
  const series = latest.value.find((one) => one.rule === rule);
  return <td class="trend" ref={cell}>{series ? <Spark values={series.hits} /> : null}</td>;
}

export function HitsChart({ rule }: { rule: string }) {
  const { data } = useSeries([rule], range.value);
  useEffect(() => () => void (zoom.value = null), [range.value]);
  const { hits = [], refused = [] } = data?.items[0] ?? {};
  const times = hits.map((_, at) => Math.round((Date.parse(data?.until ?? "") - (hits.length - 1 - at) * (data?.step_ms ?? 0)) / 1000));
  const allowed = hits.map((all, at) => (all === null ? null : Math.max(all - (refused[at] ?? 0), 0)));
  return <Chart label="Hits" unit="per second" times={times} lines={[{ label: "Allowed", colour: "--c1", values: allowed }, { label: "Refused", colour: "--c2", values: refused }]} />;
}
