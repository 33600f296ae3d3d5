// A line of 88 by 20 pixels beside the number that it is about.

/** Points that 88 pixels can show. */
const MAX_POINTS = 44;

/** The means of groups of equal size; null where nothing is known. */
function means(values: readonly (number | null)[]): (number | null)[] {
  const size = Math.ceil(values.length / MAX_POINTS);
  return Array.from({ length: Math.ceil(values.length / size) }, (_, group) => {
    const known = values.slice(group * size, (group + 1) * size).filter((one) => one !== null);
    return known.length > 0 ? known.reduce((sum, one) => sum + one, 0) / known.length : null;
  });
}

/** `kind` is a class of its colour: `bad`, `warn`, `hold`. */
export function Spark({ values, kind = "" }: { values: readonly (number | null)[]; kind?: string }) {
  const points = values.length > 1 ? means(values) : [];
  const max = Math.max(...points.map((one) => one ?? 0), 1e-9);
  const lines: string[][] = [];
  points.forEach((value, at) => {
    if (value === null) return;
    const point = `${((88 * at) / Math.max(points.length - 1, 1)).toFixed(1)} ${(19 - (18 * value) / max).toFixed(1)}`;
    if (at > 0 && points[at - 1] !== null) lines.at(-1)?.push(point);
    else lines.push([point]);
  });
  const drawn = lines.filter((one) => one.length > 1);
  const line = drawn.map((one) => `M${one.join("L")}`).join("");
  const area = drawn.map((one) => `M${one[0]?.split(" ")[0]} 20L${one.join("L")}V20Z`).join("");
  return <svg class={`spark ${kind}`} viewBox="0 0 88 20" aria-hidden="true"><path class="area" d={area} /><path d={line} /></svg>;
}
