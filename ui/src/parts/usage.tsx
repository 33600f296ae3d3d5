// How much of a limit is used: the text says it, and a bar repeats it.

/** The part of a limit from which it counts as nearly full, as in the statistics of the server. */
const NEAR = 0.8;

export function Usage({ used, limit }: { used: number; limit: number }) {
  const share = limit > 0 ? Math.min(used / limit, 1) : 1;
  const kind = share >= 1 ? " full" : share >= NEAR ? " near" : "";
  return (
    <span class="use">
      <span class="bar" aria-hidden="true"><span class={`fill${kind}`} style={{ width: `${100 * share}%` }} /></span>
      <span><b>{used.toLocaleString("en")}</b> of {limit.toLocaleString("en")}</span>
    </span>
  );
}
