// How long a workflow is kept after its end, in the words of the API and of people.

export const SPANS = ["1h", "1d", "7d", "30d", "90d", "forever"] as const;

const UNITS: Readonly<Record<string, string>> = { h: "hour", d: "day" };

/** `for 30 days`, `forever`. */
export function keepWords(span: string): string {
  const [, count, unit] = /^(\d+)([hd])$/.exec(span) ?? [];
  return unit ? `for ${count} ${UNITS[unit]}${count === "1" ? "" : "s"}` : span;
}
