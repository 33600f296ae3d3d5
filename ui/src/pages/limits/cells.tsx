// The cells of a limit: what it allows, how it is marked, and what it counts.
import { State } from "../../parts/state";
import { cut, Name, plain } from "../../parts/text";
import { now, span } from "../../parts/time";
import { Usage } from "../../parts/usage";
import { rate } from "../overview/keys";
import { pausesOf } from "./known";
import type { ConfiguredLimit } from "./model";
import { Trend } from "./series";

const MARKS: readonly (readonly [keyof ConfiguredLimit, string, string])[] = [
  ["shadow_mode", "shadow", "counts, and refuses nothing"],
  ["quota_mode", "quota", "refuses only when all such limits of a request are exceeded"],
  ["detailed_metric", "detailed", "statistics have the keys and values of the request"],
  ["pause_when_throttled", "pauses", "what throttles its jobs keeps its requests waiting, too"],
  ["has_metadata", "metadata", "answers carry metadata of it"],
];

const SHORT: Readonly<Record<string, string>> = { second: "s", minute: "min", hour: "h" };

export function Rate({ limit }: { limit: ConfiguredLimit }) {
  const { unit, requests_per_unit: number } = limit;
  const names = [...(limit.name ? [limit.name] : []), ...limit.replaces.map((name) => `replaces ${name}`)];
  return (
    <>
      {unit === null || number === null ? <span class="tag" title="lets everything through; nothing is counted">unlimited</span> : <>{number.toLocaleString("en")} / {SHORT[unit] ?? unit}</>}
      {MARKS.filter(([mark]) => limit[mark]).map(([mark, word, means]) => <span key={mark} class={`tag ${word}`} title={means}>{word}</span>)}
      {names.map((name) => <span key={name} class="tag"><bdi title={cut(plain(name), 1000)}>{cut(plain(name), 30)}</bdi></span>)}
    </>
  );
}

/** Usage of the busiest key. Hits that were refused count as well, so it can be more than allowed. */
export function UsedNow({ limit }: { limit: ConfiguredLimit }) {
  const { usage, requests_per_unit: number } = limit;
  if (number === null) return <span class="dim">–</span>;
  return <Usage used={Math.min(usage?.used ?? 0, usage?.of ?? number)} limit={usage?.of ?? number} />;
}

/** `user-0, of 58 values`; nothing when there is only one. */
export function Busiest({ limit, any }: { limit: ConfiguredLimit; any: boolean }) {
  const { usage } = limit;
  if (!usage || !any) return null;
  const value = usage.entries.at(-1)?.[1] ?? "";
  return <><Name text={value} max={40} /><span class="dim">, of {usage.values}{usage.is_estimate ? " (est.)" : ""}</span></>;
}

/** One word of what it does now: paused, full or near. Of a limit for any value, how many of its values are so. */
export function LimitState({ limit, any }: { limit: ConfiguredLimit; any: boolean }) {
  const { usage } = limit;
  const pauses = pausesOf(limit);
  const pause = pauses.find(({ rule }) => !any || rule);
  const own = pauses.length;
  if (pause) return <><State state="paused" />{pause.until ? <span class="left"> {span(Math.max(Date.parse(pause.until) - now.value, 0)).replace(/ \d\ds$/, "")} left</span> : null}</>;
  const { full = 0, near = 0 } = usage ?? {};
  if (full + near + own === 0) return null;
  const counts: [number, string][] = [[full, "full"], [near, "near"], [own, "paused"]];
  const words = any ? counts.filter(([count]) => count > 0).map((one) => one.join(" ")).join(", ") : full > 0 ? `Full for ${left(usage?.resets_at ?? "")}` : "Near";
  return <State state={full + near === 0 ? "paused" : !any && full > 0 ? "full" : "near"} text={words} />;
}

const left = (at: string): string => span(1000 * Math.max(Math.ceil((Date.parse(at) - now.value) / 1000), 0));

const Amount = ({ head, number, shown, bad = false }: { head: string; number: number | undefined; shown: string; bad?: boolean }) => (
  <td data-head={head} class={`num${bad && number ? " bad" : number ? "" : " dim"}`}>{number === undefined ? "–" : shown}</td>
);

export function LimitCells({ limit, any }: { limit: ConfiguredLimit; any: boolean }) {
  const { now: rates } = limit;
  // Requests that pass in shadow mode are no refusals.
  const refused = limit.shadow_mode ? 0 : rates?.refused_per_second;
  return (
    <>
      <td class="rate"><Rate limit={limit} /></td>
      <td class="used"><UsedNow limit={limit} /></td>
      <td class="busiest" data-head={any ? "Busiest" : undefined}><Busiest limit={limit} any={any} /></td>
      <Amount head="Hits/s" number={rates?.hits_per_second} shown={rate(rates?.hits_per_second ?? 0)} />
      <Amount head="Refused/s" number={refused} shown={rate(refused ?? 0)} bad />
      <Amount head="Refused %" number={refused && rates?.refused_share} shown={`${Math.round(100 * (refused ? (rates?.refused_share ?? 0) : 0))}%`} bad />
      <Trend rule={limit.rule} />
      <td class="state"><LimitState limit={limit} any={any} /></td>
    </>
  );
}

export function NoLimit({ below }: { below: number }) {
  return <td colSpan={8} class="dim">{below === 0 ? "No limit" : ""}</td>;
}
