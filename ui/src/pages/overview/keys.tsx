// The busiest keys, and what was refused lately, of requests and of jobs. Each leads to its limit.
import { withQuery } from "../../api";
import { range } from "../../frame/range";
import { Spark } from "../../parts/spark";
import { Problem } from "../../parts/toasts";
import { Table } from "../../parts/table";
import { cut, Name, plain } from "../../parts/text";
import { Ago, now, span } from "../../parts/time";
import { Usage } from "../../parts/usage";
import { usePoll, type Polled } from "../../poll";
import { entriesText, limitHref, limitOf, type KnownLimit } from "../limits/known";
import type { LimitUsage } from "../limits/model";
import type { Pairs } from "../limits/subject";

export interface TopKey {
  readonly domain: string;
  readonly entries: Pairs;
  readonly rule?: string;
  readonly hits: number;
  readonly hits_per_second: number;
  readonly is_estimate: boolean;
}

export interface TopKeys {
  readonly window_ms: number;
  readonly keys: readonly TopKey[];
}

export const useTop = (): Polled<TopKeys> => usePoll<TopKeys>("v1/limits/top", 2000);

/** A key as a link to its limit, or as a text when the configuration has none. */
export function KeyLink({ domain, entries, limit }: { domain: string; entries: Pairs; limit: KnownLimit | null }) {
  const text = <><i>{cut(plain(domain), 40)}</i> <Name text={entriesText(entries)} max={100} /></>;
  if (!limit) return <span class="key-link">{text}</span>;
  return <a class="key-link" href={limitHref(domain, limit.entries, entries)}>{text}</a>;
}

export const rate = (number: number): string => (number === 0 ? "0" : number >= 9.95 ? Math.round(number).toLocaleString("en") : number.toFixed(1));

/** Usage of a key, if it is the one that the limit names. */
function usageOf(limit: KnownLimit | null, entries: Pairs): LimitUsage | null {
  const usage = limit?.limit.usage;
  return usage && JSON.stringify(usage.entries) === JSON.stringify(entries) ? usage : null;
}

const Used = ({ usage }: { usage: LimitUsage | null }) => (usage ? <Usage used={Math.min(usage.used, usage.of)} limit={usage.of} /> : null);

interface Props {
  readonly top: Polled<TopKeys>;
  readonly limits: readonly KnownLimit[];
  readonly max: number;
}

export function BusiestKeys({ top: { data, error }, limits, max, wide = false }: Props & { wide?: boolean }) {
  const rows = data?.keys.slice(0, max).map((key) => ({ ...key, limit: limitOf(limits, key.domain, key.entries) })) ?? null;
  const estimated = data?.keys.some((key) => key.is_estimate);
  return (
    <section class="panel" aria-label="Busiest keys">
      <header><h2>Busiest keys</h2><span class="note push">hits in the last minute, {estimated ? "est." : "counted"}</span></header>
      <Problem error={error} />
      <Table label="Busiest keys table" failed={error !== null} rows={rows} rowKey={(row) => JSON.stringify([row.domain, row.entries])} empty="No requests in the last minute" columns={[
        { head: "Key", names: true, kind: "wide", cell: (row) => <KeyLink domain={row.domain} entries={row.entries} limit={row.limit} /> },
        ...(wide ? [
          { head: "Used now", cell: (row: (typeof rows & object)[number]) => <Used usage={usageOf(row.limit, row.entries)} /> },
          { head: "Resets in", kind: "number" as const, cell: (row: (typeof rows & object)[number]) => <Resets at={usageOf(row.limit, row.entries)?.resets_at} /> },
        ] : []),
        { head: "Hits/s", kind: "number", cell: (row) => <b>{rate(row.hits_per_second)}<span class="faint unit-s"> /s</span></b> },
      ]} />
    </section>
  );
}

const Resets = ({ at }: { at: string | undefined }) => (at ? <span class="dim">{span(1000 * Math.max(Math.ceil((Date.parse(at) - now.value) / 1000), 0))}</span> : null);

interface RefusedKey {
  readonly domain: string;
  readonly entries: Pairs;
  readonly caller: string;
  readonly count: number;
  /** Of its hits; null for jobs. */
  readonly share: number | null;
  readonly last_at: string;
  readonly points: readonly number[];
}

interface RefusedRow extends RefusedKey {
  readonly limit: KnownLimit | null;
}

/** `rule`: only keys of this limit. */
export function RefusedKeys({ limits, max, more, rule }: { limits: readonly KnownLimit[]; max: number; more?: string; rule?: string }) {
  const { data, error } = usePoll<{ readonly items: readonly RefusedKey[] }>(withQuery("v1/limits/refusals", { range: range.value, rule }), 2000);
  const rows: readonly RefusedRow[] | null = data?.items.slice(0, max).map((row) => ({ ...row, limit: limitOf(limits, row.domain, row.entries) })) ?? null;
  return (
    <section class="panel" aria-label="Refused">
      <header><h2>Refused</h2><span class="note">last {range.value}, by key</span>{more ? <a class="push small" href={more}>All limits</a> : null}</header>
      <Problem error={error} />
      <Table label="Refused table" failed={error !== null} rows={rows} rowKey={(row) => JSON.stringify([row.domain, row.entries, row.caller])} empty="Nothing was refused" columns={[
        { head: "Key", names: true, ...(more ? {} : { kind: "wide" as const }), cell: (row) => <KeyLink domain={row.domain} entries={row.entries} limit={row.limit} /> },
        { head: "Refused", kind: "number", cell: (row) => <b>{row.count.toLocaleString("en")}</b> },
        { head: "% of hits", kind: "number", cell: (row) => (row.share === null ? <span class="dim">–</span> : `${Math.round(100 * row.share)}%`) },
        ...(more ? [
          { head: "", kind: "narrow" as const, cell: (row: RefusedRow) => <Spark values={row.points} kind="bad" /> },
          { head: "Used now", cell: (row: RefusedRow) => <Used usage={usageOf(row.limit, row.entries)} /> },
        ] : []),
        { head: "Source", kind: "narrow", cell: (row) => row.caller },
        { head: "Last", kind: "number", cell: (row) => <Ago at={row.last_at} /> },
      ]} />
    </section>
  );
}
