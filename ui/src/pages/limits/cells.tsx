// The cells of a limit: what it allows, how it is marked, and what it counts.
import { cut, plain } from "../../parts/text";
import { perUnit, type ConfiguredLimit, type Use } from "./model";

const MARKS: readonly (readonly [keyof ConfiguredLimit, string, string])[] = [
  ["shadow_mode", "shadow", "counts, and refuses nothing"],
  ["quota_mode", "quota", "refuses only when all such limits of a request are exceeded"],
  ["detailed_metric", "detailed", "statistics have the keys and values of the request"],
  ["pause_when_throttled", "pauses", "what throttles its jobs keeps its requests waiting, too"],
  ["has_metadata", "metadata", "answers carry metadata of it"],
];

const rate = (number: number): string => (number >= 9.95 ? Math.round(number).toLocaleString("en") : number.toFixed(1));

function Counted({ number, shown, bad }: { number: number | undefined; shown: string; bad?: boolean | undefined }) {
  return <td class={`num${bad && number ? " bad" : number ? "" : " dim"}`}>{number === undefined ? "–" : number === 0 ? "0" : shown}</td>;
}

export function LimitCells({ limit, rates }: { limit: ConfiguredLimit; rates: Use | null }) {
  const { use, unit, requests_per_unit: number } = limit;
  // Requests that pass in shadow mode are no refusals.
  const [refused, refusedRate] = [use && use.over_limit - use.shadow_mode, rates && rates.over_limit - rates.shadow_mode];
  const names = [...(limit.name ? [limit.name] : []), ...limit.replaces.map((name) => `replaces ${name}`)];
  return (
    <>
      <td>
        {unit === null || number === null ? <span class="tag" title="lets everything through; nothing is counted">unlimited</span>
        : <><b>{number.toLocaleString("en")}</b> {perUnit(unit)}</>}
        {MARKS.filter(([mark]) => limit[mark]).map(([mark, word, means]) => <span key={mark} class={`tag ${word}`} title={means}>{word}</span>)}
        {names.map((name) => <span key={name} class="tag"><bdi title={cut(plain(name), 1000)}>{cut(plain(name), 30)}</bdi></span>)}
      </td>
      <Counted number={rates?.hits} shown={rate(rates?.hits ?? 0)} />
      <Counted number={rates?.near_limit} shown={rate(rates?.near_limit ?? 0)} />
      <Counted number={refusedRate ?? undefined} shown={rate(refusedRate ?? 0)} bad />
      <Counted number={use?.hits} shown={use?.hits.toLocaleString("en") ?? ""} />
      <Counted number={use?.near_limit} shown={use?.near_limit.toLocaleString("en") ?? ""} />
      <Counted number={refused} shown={refused?.toLocaleString("en") ?? ""} bad />
    </>
  );
}

export function NoLimit({ below }: { below: number }) {
  return <td colSpan={7} class="dim">{below === 0 ? "No limit" : `${below.toLocaleString("en")} ${below === 1 ? "limit" : "limits"} below`}</td>;
}
