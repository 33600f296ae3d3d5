// The state of a job or workflow: a word with a mark, so that colour is never alone.

/** One sign for each state; those that a later server has get a plain one. */
const SIGNS: Readonly<Record<string, string>> = {
  pending: "○",
  waiting: "○",
  scheduled: "◷",
  ready: "◔",
  running: "▶",
  paused: "‖",
  succeeded: "✓",
  failed: "✕",
  cancelled: "⊘",
  skipped: "↷",
  blocked: "⊟",
};

export const STATES = ["waiting", "scheduled", "ready", "running", "succeeded", "failed", "cancelled", "skipped"] as const;
export const STATUSES = ["pending", "running", "paused", "succeeded", "failed", "cancelled"] as const;

export const known = (state: string): string => (state in SIGNS ? state : "other");
export const sign = (state: string): string => SIGNS[state] ?? "·";

export function State({ state, count }: { state: string; count?: number }) {
  return (
    <span class={`state s-${known(state)}`}>
      <span aria-hidden="true">{sign(state)}</span> {state}
      {count === undefined ? null : <> <b class="num">{count.toLocaleString("en")}</b></>}
    </span>
  );
}
