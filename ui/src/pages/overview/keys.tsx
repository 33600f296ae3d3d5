// The busiest keys, and what was refused lately, of requests and of jobs. Each leads to its limit.
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

export interface Refusal {
  readonly at: string;
  readonly caller: string;
  readonly domain: string;
  readonly entries: Pairs;
}

export interface TopKeys {
  readonly window_ms: number;
  readonly keys: readonly TopKey[];
  readonly refusals: readonly Refusal[];
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
  readonly key: string;
  readonly latest: Refusal;
  readonly count: number;
}

interface RefusedRow extends RefusedKey {
  readonly limit: KnownLimit | null;
}

function byKey(refusals: readonly Refusal[]): RefusedKey[] {
  const keys = new Map<string, RefusedKey>();
  for (const one of refusals) {
    const key = JSON.stringify([one.domain, one.entries]);
    const known = keys.get(key);
    keys.set(key, { key, latest: known?.latest ?? one, count: (known?.count ?? 0) + 1 });
  }
  return [...keys.values()].sort((one, other) => other.count - one.count);
}

export function RefusedKeys({ top: { data, error }, limits, max, more }: Props & { more?: string }) {
  const rows: readonly RefusedRow[] | null = data ? byKey(data.refusals).slice(0, max).map((row) => ({ ...row, limit: limitOf(limits, row.latest.domain, row.latest.entries) })) : null;
  return (
    <section class="panel" aria-label="Refused">
      <header><h2>Refused</h2><span class="note">latest {data?.refusals.length ?? ""}, by key</span>{more ? <a class="push small" href={more}>All limits</a> : null}</header>
      <Problem error={error} />
      <Table label="Refused table" failed={error !== null} rows={rows} rowKey={(row) => row.key} empty="Nothing was refused lately" columns={[
        { head: "Key", names: true, ...(more ? {} : { kind: "wide" as const }), cell: (row) => <KeyLink domain={row.latest.domain} entries={row.latest.entries} limit={row.limit} /> },
        { head: "Refused", kind: "number", cell: (row) => <b>{row.count}</b> },
        { head: <span title="of the hits of its limit">% of hits</span>, kind: "number", cell: (row) => <Share limit={row.limit} /> },
        ...(more ? [{ head: "Used now", cell: (row: RefusedRow) => <Used usage={usageOf(row.limit, row.latest.entries)} /> }] : []),
        { head: "Source", kind: "narrow", cell: (row) => row.latest.caller },
        { head: "Last", kind: "number", cell: (row) => <Ago at={row.latest.at} /> },
      ]} />
    </section>
  );
}

function Share({ limit }: { limit: KnownLimit | null }) {
  const share = limit?.limit.now?.refused_share;
  return share === undefined ? <span class="dim">–</span> : <>{Math.round(100 * share)}%</>;
}
