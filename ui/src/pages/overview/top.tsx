// The keys with the most hits, and the latest refusals, of requests and of jobs.
import { Problem } from "../../parts/toasts";
import { Table } from "../../parts/table";
import { Name } from "../../parts/text";
import { Ago } from "../../parts/time";
import { usePoll } from "../../poll";

type Pairs = readonly (readonly string[])[];

interface TopKeys {
  readonly since: string;
  readonly keys: readonly { readonly domain: string; readonly entries: Pairs; readonly hits: number; readonly is_estimate: boolean }[];
  readonly refusals: readonly { readonly at: string; readonly caller: string; readonly domain: string; readonly entries: Pairs }[];
}

export const keyText = (domain: string, entries: Pairs): string => `${domain}: ${entries.map((pair) => pair.filter(Boolean).join("=")).join(", ")}`;

export function Top({ max = 10 }: { max?: number }) {
  const { data, error } = usePoll<TopKeys>("v1/limits/top", 2000);
  const began = data ? Date.parse(data.since) : 0;
  const seconds = Math.max((Date.now() - began) / 1000, 1);
  return (
    <div class="two">
      <section aria-label="Top keys">
        <h2>Keys with most hits</h2>
        <Problem error={error} />
        <Table label="Top keys" failed={error !== null} rows={data?.keys.slice(0, max) ?? null} rowKey={(row) => keyText(row.domain, row.entries)} empty="nobody asked lately" columns={[
          { head: "key", names: true, kind: "wide", cell: (row) => <Name text={keyText(row.domain, row.entries)} max={120} /> },
          { head: "hits", kind: "number", cell: (row) => `${row.is_estimate ? "about " : ""}${row.hits.toLocaleString("en")}` },
          { head: "a second, on average", kind: "number", cell: (row) => (row.hits / seconds).toFixed(1) },
        ]} />
      </section>
      <section aria-label="Latest refusals">
        <h2>Refused lately</h2>
        <Table label="Latest refusals" failed={error !== null} rows={data?.refusals.slice(0, max) ?? null} rowKey={(row) => `${row.at} ${row.caller} ${keyText(row.domain, row.entries)}`} empty="nothing was refused lately" columns={[
          { head: "when", cell: (row) => <Ago at={row.at} /> },
          { head: "who", cell: (row) => row.caller },
          { head: "key", names: true, kind: "wide", cell: (row) => <Name text={keyText(row.domain, row.entries)} max={120} /> },
        ]} />
      </section>
    </div>
  );
}
