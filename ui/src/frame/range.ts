// The range of time of all pages, kept in the address.
import { computed } from "@preact/signals";
import { place, setQuery } from "../router";

export const RANGES = ["5m", "15m", "1h", "24h"] as const;
export type Range = (typeof RANGES)[number];

const DEFAULT: Range = "15m";
const MINUTES: Readonly<Record<Range, number>> = { "5m": 5, "15m": 15, "1h": 60, "24h": 1440 };

export const range = computed<Range>(() => RANGES.find((one) => one === place.value.query["range"]) ?? DEFAULT);
export const rangeMs = (): number => MINUTES[range.value] * 60_000;

export const setRange = (to: Range): void => setQuery({ range: to === DEFAULT ? null : to });

/** Whether the page shows numbers of a range. */
export const hasRange = (): boolean => ["overview", "limits"].includes(place.value.parts[0] ?? "overview");

/** To the range beside this one: -1 is shorter, 1 is longer. */
export function stepRange(by: -1 | 1): void {
  const to = RANGES[RANGES.indexOf(range.value) + by];
  if (to && hasRange()) setRange(to);
}
