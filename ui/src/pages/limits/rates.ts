// Rates of hits, from what the answers of the last seconds have counted.
import { useRef } from "preact/hooks";
import type { Descriptor, Level, Use } from "./model";

/** Age in milliseconds of the answer that rates are computed from: with less, small numbers jump; with more, changes show late. */
const COMPARED_MS = 10_000;

interface Sample {
  readonly at: number;
  readonly uses: ReadonlyMap<string, Use>;
}

/** Hits a second of a limit; null until two answers are there. */
export type RatesOf = (rule: string) => Use | null;

function collect(descriptors: readonly Descriptor[], into: Map<string, Use>): void {
  for (const { limit, descriptors: below } of descriptors) {
    if (limit?.use) into.set(limit.rule, limit.use);
    if (below) collect(below, into);
  }
}

function sample(level: Level): Sample {
  const uses = new Map<string, Use>();
  collect(level.descriptors ?? [], uses);
  collect((level.found ?? []).map(({ descriptor }) => descriptor), uses);
  for (const domain of level.domains ?? []) collect(domain.descriptors ?? [], uses);
  return { at: Date.parse(level.counted_at), uses };
}

export function useRates(level: Level | null): RatesOf {
  const samples = useRef<Sample[]>([]);
  const seen = useRef<Level | null>(null);
  if (level && seen.current !== level) {
    seen.current = level;
    const next = sample(level);
    const kept = samples.current.filter(({ at }) => at < next.at && at >= next.at - COMPARED_MS);
    // At least one to compare with, however slow answers are; none of before a restart, when counting began again.
    const last = samples.current[samples.current.length - 1];
    samples.current = [...(kept.length > 0 || !last || last.at >= next.at ? kept : [last]), next];
  }
  const [first, last] = [samples.current[0], samples.current[samples.current.length - 1]];
  return (rule) => {
    const [was, is] = [first?.uses.get(rule), last?.uses.get(rule)];
    if (!first || !last || first === last || !was || !is || is.hits < was.hits) return null;
    const rate = (name: keyof Use): number => Math.max(1000 * (is[name] - was[name]), 0) / (last.at - first.at);
    return { hits: rate("hits"), near_limit: rate("near_limit"), over_limit: rate("over_limit"), shadow_mode: rate("shadow_mode") };
  };
}
