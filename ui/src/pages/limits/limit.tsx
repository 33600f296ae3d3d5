// One limit: what it allows and has used, where it is written, its keys, what is paused, and the jobs that wait for it.
import { useEffect, useState } from "preact/hooks";
import { mayAct, withQuery, type ApiError } from "../../api";
import { TopBar } from "../../frame/top";
import { Icon } from "../../parts/icon";
import { Loading, Table } from "../../parts/table";
import { Name } from "../../parts/text";
import { now, RelativeTime } from "../../parts/time";
import { Problem } from "../../parts/toasts";
import { Usage } from "../../parts/usage";
import { usePoll } from "../../poll";
import { href, place } from "../../router";
import { rate, RefusedKeys, useTop, type TopKey } from "../overview/keys";
import { LimitState, Rate, UsedNow } from "./cells";
import { entriesText, limitHref, type KnownLimit } from "./known";
import { perUnit, type Descriptor, type Level } from "./model";
import { override } from "./override";
import { OverrideList } from "./overrides";
import { HitsChart } from "./series";
import { check, checking, pairs, pairsText, type Pairs } from "./subject";
import { Check } from "./check";
import { Waiting } from "./waiting";

/** Rows of a read: most levels have fewer. */
const PAGE_ROWS = 1000;
/** Keys that are shown, those with the most hits. */
const MAX_KEYS = 20;

interface FoundLimit {
  /** Null when it is not there; undefined while it is looked for. */
  readonly one: Descriptor | null | undefined;
  readonly error: ApiError | null;
}

/** The entries of the descriptor that answers for a key; the address may name a key. */
function pick(descriptors: readonly Descriptor[], entry: readonly string[]): Descriptor | null {
  const [key, value = ""] = entry;
  return descriptors.find((one) => one.key === key && one.value === value) ?? null;
}

/** Looks for the descriptor in the pages of its level, and then reads its page. */
function useLimit(domain: string, entries: Pairs): FoundLimit {
  const [cursor, setCursor] = useState<string | null>(null);
  const above = entries.slice(0, -1);
  const path = withQuery("v1/limits/configuration", { domain, entries: above.length > 0 ? JSON.stringify(above) : null, limit: PAGE_ROWS, cursor });
  const { data, error } = usePoll<Level>(path, 2000);
  const one = data ? pick(data.descriptors ?? [], entries.at(-1) ?? []) : undefined;
  const next = one === null ? (data?.next_cursor ?? null) : null;
  useEffect(() => {
    if (next !== null) setCursor(next);
  }, [next]);
  return { one: next === null ? one : undefined, error };
}

export function LimitPage({ domain, entries }: { domain: string; entries: Pairs }) {
  const { one, error } = useLimit(domain, entries);
  const name = entriesText(entries);
  const limit = one?.limit;
  return (
    <>
      <TopBar title={`${domain} ${name}`}>
        <span class="crumb"><a href={href(["limits"])}>Limits</a> / <Name text={domain} max={30} /> /</span> <bdi>{name}</bdi>
      </TopBar>
      {error?.status === 404 || one === null || (one && !limit) ? <p class="panel empty">Not found. It may have been removed. <a href={href(["limits"])}>All limits</a></p>
      : <Problem error={error} />}
      {one === undefined && !error ? <Loading /> : null}
      {one && limit ? <Found known={{ domain, entries, one, limit }} /> : null}
    </>
  );
}

function Found({ known }: { known: KnownLimit }) {
  const { domain, entries, one, limit } = known;
  const any = entries.some(([, value]) => !value || value.includes("*"));
  const top = useTop();
  const keys = top.data?.keys.filter((key) => key.rule === limit.rule) ?? null;
  const picked = place.value.query["key"] ?? null;
  const subject = picked ? pairs(picked) : entries;
  useEffect(() => {
    checking.value = { domain, entries: pairsText(subject.map(([key = "", value = ""]) => [key, value])) };
  }, [domain, picked]);
  return (
    <>
      <div class="head">
        <LimitState limit={limit} any={any} />
        <dl class="facts inline">
          <div><dt>Rate</dt><dd>{limit.unit === null ? "unlimited" : `${limit.requests_per_unit?.toLocaleString("en")} ${perUnit(limit.unit)}${any ? `, for each ${entries.at(-1)?.[0]}` : ""}`}</dd></div>
          {limit.usage ? <div><dt>Values seen</dt><dd>{limit.usage.values.toLocaleString("en")}{limit.usage.is_estimate ? " (est.)" : ""}</dd></div> : null}
          {limit.usage && Date.parse(limit.usage.resets_at) > now.value ? <div><dt>Window resets</dt><dd><RelativeTime at={limit.usage.resets_at} /></dd></div> : null}
          <div><dt>Defined in</dt><dd class="mono"><Name text={[one.file, one.line].filter(Boolean).join(":")} max={100} /></dd></div>
        </dl>
        <span class="buttons push">
          <button data-key="t" onClick={() => check(domain, subject)}>Test</button>
          {mayAct() ? <button data-key="s" onClick={() => void override("scale", domain, subject, limit.rule)}><Icon name="scale" />Scale</button> : null}
          {mayAct() ? <button class="main-act" data-key="p" onClick={() => void override("pause", domain, subject, limit.rule)}><Icon name="bars" />Pause</button> : null}
        </span>
      </div>
      <div class="grid overview">
        <div class="stack">
          <HitsChart rule={limit.rule} />
          <Keys known={known} keys={keys} picked={picked} />
          <Waiting known={[known]} rule={limit.rule} />
        </div>
        <div class="stack">
          <Definition known={known} />
          {limit.overrides?.length ? <section class="panel attention" aria-label="Paused and scaled"><header><h2>Paused and scaled</h2></header><OverrideList of={limit.overrides} known={[known]} /></section> : null}
          <RefusedKeys limits={[known]} max={8} rule={limit.rule} />
          <Check known={[known]} />
        </div>
      </div>
    </>
  );
}

interface KeysProps {
  readonly known: KnownLimit;
  readonly keys: readonly TopKey[] | null;
  /** The key of the address. */
  readonly picked: string | null;
}

const valuesText = (known: KnownLimit, entries: Pairs): string =>
  entries.filter((_, at) => !known.entries[at]?.[1] || known.entries[at]?.[1]?.includes("*")).map(([, value]) => value).join(", ") || entriesText(entries);

function Keys({ known, keys, picked }: KeysProps) {
  const { usage } = known.limit;
  const text = (one: { readonly entries: Pairs }): string => JSON.stringify(one.entries);
  const used = (key: TopKey): boolean => JSON.stringify(usage?.entries) === text(key);
  return (
    <section class="panel" aria-label="Keys of the limit">
      <header><h2>Keys</h2><span class="note">busiest{usage ? ` of ${usage.values}` : ""}, last minute</span></header>
      <Table label="Keys of the limit table" rows={keys?.slice(0, MAX_KEYS) ?? null} rowKey={text} selected={(key) => text(key) === picked} empty="No requests in the last minute" columns={[
        { head: "Value", names: true, kind: "wide", cell: (key) => <a class="key-link" href={limitHref(known.domain, known.entries, key.entries)}><Name text={valuesText(known, key.entries)} max={100} /></a> },
        { head: "Used now", cell: (key) => (usage && used(key) ? <Usage used={Math.min(usage.used, usage.of)} limit={usage.of} /> : null) },
        { head: "Hits/s", kind: "number", cell: (key) => rate(key.hits_per_second) },
      ]} />
    </section>
  );
}

function Definition({ known: { one, limit, domain, entries } }: { known: KnownLimit }) {
  const { now: rates } = limit;
  return (
    <section class="panel" aria-label="Definition">
      <header><h2>Definition</h2><span class="note mono"><Name text={[one.file, one.line].filter(Boolean).join(":")} max={60} /></span></header>
      <dl class="facts body">
        <dt>Key</dt><dd class="mono"><Name text={`${domain} ${entriesText(entries)}`} max={200} /></dd>
        <dt>Rate</dt><dd><Rate limit={limit} /></dd>
        <dt>Used now</dt><dd><UsedNow limit={limit} /></dd>
        <dt>Hits</dt><dd>{rates ? `${rate(rates.hits_per_second)} /s` : "–"}</dd>
        <dt>Refused</dt><dd class={rates?.refused_per_second && !limit.shadow_mode ? "bad" : undefined}>{rates ? `${rate(rates.refused_per_second)} /s, ${Math.round(100 * rates.refused_share)}%` : "–"}</dd>
        <dt>Rule</dt><dd class="mono"><Name text={limit.rule} max={200} /></dd>
      </dl>
    </section>
  );
}
