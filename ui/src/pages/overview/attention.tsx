// Things that need a person, the worst first: each with its reason, and the button that helps.
import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { mayAct } from "../../api";
import { health, load, status } from "../../frame/server";
import { QueueLink, WorkerLink } from "../../parts/drawer";
import { Icon, type IconName } from "../../parts/icon";
import { Name } from "../../parts/text";
import { Ago, now, span } from "../../parts/time";
import { VerbButton } from "../../parts/menu";
import { retryNow, usePoll } from "../../poll";
import { href } from "../../router";
import type { Page } from "../../model";
import { groupKey, newestHref, retryVerb, useFailures, type FailureGroup } from "../failures";
import { entriesText, limitHref, pausesOf, type KnownLimit } from "../limits/known";
import type { Override } from "../limits/model";
import { verb as queueVerb, type Queue } from "../queues";
import { OverrideLine, Resume, subjectOf } from "../limits/override";

interface AttentionItem {
  readonly key: string;
  readonly icon: IconName;
  readonly kind: "bad" | "warn" | "hold";
  readonly title: ComponentChildren;
  readonly reason: ComponentChildren;
  readonly action: ComponentChildren;
}

/** Shown before the others are answered for. */
const MAX_SHOWN = 4;
/** The share of hits above which a limit that refuses stands here. */
const REFUSED_SHARE = 0.2;
const OLDEST_JOB_MS = 60_000;
const WORKER_GONE_MS = 60_000;

interface WorkerNow {
  readonly name: string;
  readonly running: number;
  readonly seen_at: string | null;
}

const Open = ({ to, of }: { to: string; of: string }) => <a class="button small" href={to} aria-label={`Open ${of}`}>Open</a>;

function server(): AttentionItem[] {
  const well = health();
  const reason = status.value?.workflows.reason;
  if (well !== "Degraded") return [];
  return [{ key: "server", icon: "warning", kind: "bad", title: <b>The server is degraded</b>, reason: reason ? <Name text={reason} max={200} /> : "A part of it does not answer", action: null }];
}

function configuration(): AttentionItem[] {
  const refused = load.value?.refused;
  if (!refused) return [];
  const mistake = refused.mistakes[0];
  return [{ key: "configuration", icon: "limits", kind: "bad", title: <b>Configuration refused</b>, reason: <><Ago at={refused.at} />{mistake ? <>: <Name text={mistake.text} max={100} /></> : null}</>, action: <Open to={href(["limits"])} of="the configuration" /> }];
}

const failures = (of: readonly FailureGroup[], until: string): AttentionItem[] => of.map((group) => {
  const retry = retryVerb(group, until);
  return {
    key: `failed ${groupKey(group)}`,
    icon: "warning",
    kind: "bad",
    title: <><b><Name text={group.kind ?? "Failed"} max={40} /></b> <Name text={group.message ?? ""} max={80} /></>,
    reason: <>{group.jobs.toLocaleString("en")} of <Name text={group.handler} max={30} />, newest at <a href={newestHref(group)}><Name text={group.sample.job} max={30} /></a> <Ago at={group.last_at} /></>,
    action: retry ? <VerbButton verb={retry} small /> : <Open to={href(["failures"])} of="failures" />,
  };
});

function limits(of: readonly KnownLimit[]): AttentionItem[] {
  return of
    .filter(({ limit }) => !limit.shadow_mode && !pausesOf(limit).some(({ rule }) => rule) && (limit.now?.refused_share ?? 0) > REFUSED_SHARE)
    .sort((one, other) => (other.limit.now?.refused_share ?? 0) - (one.limit.now?.refused_share ?? 0))
    .map(({ domain, entries, limit }) => ({
      key: `limit ${limit.rule}`,
      icon: "limits",
      kind: "warn",
      title: <><b><Name text={domain} max={30} /></b> <Name text={entriesText(entries)} max={60} /> refuses {Math.round(100 * (limit.now?.refused_share ?? 0))}%</>,
      reason: <>{limit.requests_per_unit?.toLocaleString("en")} per {limit.unit}{limit.usage?.full ? `, ${limit.usage.full} of ${limit.usage.values} ${limit.usage.values === 1 ? "value" : "values"} full` : ""}</>,
      action: <Open to={limitHref(domain, entries)} of={limit.rule} />,
    }));
}

function paused(overrides: readonly Override[] | undefined, queues: readonly Queue[] | undefined): AttentionItem[] {
  const stopped = (overrides ?? []).filter(({ effect }) => effect !== "scaled").map((one): AttentionItem => ({
    key: `paused ${subjectOf(one)}`,
    icon: "bars",
    kind: "hold",
    title: <><b><Name text={subjectOf(one)} max={60} /></b> is paused</>,
    reason: <OverrideLine one={one} />,
    action: <Resume one={one} />,
  }));
  const still = (queues ?? []).filter((one) => one.paused).map((one): AttentionItem => ({
    key: `queue ${one.name}`,
    icon: "bars",
    kind: "hold",
    title: <>Queue <b><QueueLink name={one.name} max={40} /></b> is paused</>,
    reason: `${one.ready.toLocaleString("en")} jobs wait`,
    action: mayAct() ? <VerbButton small verb={{ ...queueVerb(one), done: retryNow }} /> : null,
  }));
  return [...stopped, ...still];
}

function late(queues: readonly Queue[] | undefined): AttentionItem[] {
  const age = (one: Queue): number => (one.oldest_ready_at ? now.value - Date.parse(one.oldest_ready_at) : 0);
  return (queues ?? []).filter((one) => !one.paused && age(one) > OLDEST_JOB_MS).map((one) => ({
    key: `late ${one.name}`,
    icon: "queues",
    kind: "warn",
    title: <>Queue <b><QueueLink name={one.name} max={40} /></b> is late</>,
    reason: `The oldest of ${one.ready.toLocaleString("en")} jobs waits for ${span(age(one))}`,
    action: <Open to={href(["queues", one.name])} of={`queue ${one.name}`} />,
  }));
}

function lostWorkers(workers: readonly WorkerNow[] | undefined): AttentionItem[] {
  return (workers ?? []).filter((one) => one.running > 0 && one.seen_at !== null && now.value - Date.parse(one.seen_at) > WORKER_GONE_MS).map((one) => ({
    key: `worker ${one.name}`,
    icon: "workers",
    kind: "warn",
    title: <>Worker <b><WorkerLink name={one.name} max={40} /></b> is gone</>,
    reason: <>{one.running} of its jobs run, last seen <Ago at={one.seen_at} /></>,
    action: <Open to={href(["workers", one.name])} of={`worker ${one.name}`} />,
  }));
}

/** How many are shown, so that what stands below takes the room that is left. */
export const attentionRows = signal(0);

export function Attention({ known }: { known: readonly KnownLimit[] }) {
  const [all, showAll] = useState(false);
  const failed = useFailures();
  const overrides = usePoll<{ readonly items: readonly Override[] }>("v1/limits/overrides", 2000).data?.items;
  const queues = usePoll<Page<Queue>>("v1/queues?limit=100", 5000).data?.items;
  const workers = usePoll<Page<WorkerNow>>("v1/workers?limit=100", 5000).data?.items;
  const items = [...server(), ...configuration(), ...(failed.data ? failures(failed.data.items, failed.data.until) : []), ...limits(known), ...paused(overrides, queues), ...late(queues), ...lostWorkers(workers)];
  const shown = all ? items : items.slice(0, MAX_SHOWN);
  useEffect(() => {
    attentionRows.value = Math.min(items.length, MAX_SHOWN);
  }, [items.length]);
  const answered = failed.data !== null && overrides !== undefined;
  return (
    <section class="panel attention" aria-label="Needs attention">
      <header><h2>Needs attention</h2>{items.length > MAX_SHOWN ? <button class="link small push" aria-expanded={all} onClick={() => showAll(!all)}>{all ? "Show less" : `and ${items.length - MAX_SHOWN} more`}</button> : <a class="push small" href={href(["failures"])}>All failures</a>}</header>
      {items.length === 0 ? <p class="clear">{answered ? <><span class="ok"><Icon name="check" /></span> All clear</> : <span class="skeleton" />}</p> : (
        <ul>
          {shown.map((one) => (
            <li key={one.key}>
              <span class={one.kind}><Icon name={one.icon} /></span>
              <span class="cut">{one.title}</span>
              <span class="act">{one.action}</span>
              <span class="sub">{one.reason}</span>
            </li>
          ))}
        </ul>
      )}
    </section>
  );
}
