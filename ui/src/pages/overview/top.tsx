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
  const hits = data?.keys.some((key) => key.is_estimate) ? "Hits (est.)" : "Hits";
  return (
    <div class="grid side">
      <section aria-label="Busiest keys">
        <h2>Busiest keys</h2>
        <Problem error={error} />
        <Table label="Busiest keys" failed={error !== null} rows={data?.keys.slice(0, max) ?? null} rowKey={(row) => keyText(row.domain, row.entries)} empty="No requests in the last minute" columns={[
          { head: "Key", names: true, kind: "wide", cell: (row) => <span class="mono"><Name text={keyText(row.domain, row.entries)} max={120} /></span> },
          { head: hits, kind: "number", cell: (row) => row.hits.toLocaleString("en") },
          { head: "Per second", kind: "number", cell: (row) => (row.hits / seconds).toFixed(1) },
        ]} />
      </section>
      <section aria-label="Refused">
        <h2>Refused</h2>
        <Table label="Refused" failed={error !== null} rows={data?.refusals.slice(0, max) ?? null} rowKey={(row) => `${row.at} ${row.caller} ${keyText(row.domain, row.entries)}`} empty="Nothing was refused lately" columns={[
          { head: "Key", names: true, kind: "wide", cell: (row) => <span class="mono"><Name text={keyText(row.domain, row.entries)} max={120} /></span> },
          { head: "Source", cell: (row) => row.caller },
          { head: "Last", kind: "number", cell: (row) => <Ago at={row.at} /> },
        ]} />
      </section>
    </div>
  );
}
