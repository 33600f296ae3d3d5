// The state of a job, workflow or limit: an icon, a word and a weight, so that colour is never alone.
import { Icon, type IconName } from "./icon";

interface Appearance {
  readonly word: string;
  readonly icon: IconName;
  /** The sign of a canvas, which draws texts only. */
  readonly sign: string;
  /** A colour of style.css. */
  readonly colour: string;
}

const APPEARANCES: Readonly<Record<string, Appearance>> = {
  failed: { word: "Failed", icon: "cross", sign: "✕", colour: "bad" },
  running: { word: "Running", icon: "play", sign: "▶", colour: "run" },
  retrying: { word: "Retrying", icon: "retry", sign: "↻", colour: "warn" },
  limited: { word: "Limited", icon: "hourglass", sign: "⧗", colour: "warn" },
  near: { word: "Near", icon: "limits", sign: "◕", colour: "warn" },
  full: { word: "Full", icon: "limits", sign: "●", colour: "bad" },
  paused: { word: "Paused", icon: "bars", sign: "‖", colour: "hold" },
  ready: { word: "Ready", icon: "quarter", sign: "◔", colour: "dim" },
  scheduled: { word: "Scheduled", icon: "clock", sign: "◷", colour: "dim" },
  blocked: { word: "Blocked", icon: "blocked", sign: "⊟", colour: "faint" },
  succeeded: { word: "Succeeded", icon: "check", sign: "✓", colour: "ok" },
  pending: { word: "Pending", icon: "ring", sign: "○", colour: "faint" },
  waiting: { word: "Waiting", icon: "ring", sign: "○", colour: "faint" },
  cancelled: { word: "Cancelled", icon: "struck", sign: "⊘", colour: "faint" },
  skipped: { word: "Skipped", icon: "skip", sign: "↷", colour: "faint" },
};

/** As the API has them, without those that the page derives. */
export const STATES = ["failed", "running", "ready", "scheduled", "waiting", "succeeded", "cancelled", "skipped"] as const;
export const STATUSES = ["running", "paused", "failed", "pending", "succeeded", "cancelled"] as const;

/** A later server may have other states. */
const appearance = (state: string): Appearance => APPEARANCES[state] ?? { word: state, icon: "ring", sign: "·", colour: "faint" };

export const known = (state: string): string => (state in APPEARANCES ? state : "other");
export const word = (state: string): string => appearance(state).word;
export const sign = (state: string): string => appearance(state).sign;
export const stateColour = (state: string): string => appearance(state).colour;

/** `text` says more than the word of the state. */
export function State({ state, count, text }: { state: string; count?: number; text?: string }) {
  const { icon, word } = appearance(state);
  return (
    <span class={`pill ${known(state)}`}>
      <Icon name={icon} small /> {text ?? word}
      {count === undefined ? null : <> <b>{count.toLocaleString("en")}</b></>}
    </span>
  );
}
