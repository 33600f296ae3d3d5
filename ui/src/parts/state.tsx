// The state of a job, workflow or limit: an icon, a word and a weight, so that colour is never alone.
import { Icon, type IconName } from "./icon";

interface Appearance {
  readonly word: string;
  readonly icon: IconName;
  /** A colour of style.css. */
  readonly colour: string;
}

const APPEARANCES: Readonly<Record<string, Appearance>> = {
  failed: { word: "Failed", icon: "cross", colour: "bad" },
  running: { word: "Running", icon: "play", colour: "run" },
  retrying: { word: "Retrying", icon: "retry", colour: "warn" },
  limited: { word: "Limited", icon: "hourglass", colour: "warn" },
  near: { word: "Near", icon: "limits", colour: "warn" },
  full: { word: "Full", icon: "limits", colour: "bad" },
  paused: { word: "Paused", icon: "bars", colour: "hold" },
  ready: { word: "Ready", icon: "quarter", colour: "dim" },
  scheduled: { word: "Scheduled", icon: "clock", colour: "dim" },
  blocked: { word: "Blocked", icon: "blocked", colour: "faint" },
  succeeded: { word: "Succeeded", icon: "check", colour: "ok" },
  pending: { word: "Pending", icon: "ring", colour: "faint" },
  waiting: { word: "Waiting", icon: "ring", colour: "faint" },
  cancelled: { word: "Cancelled", icon: "struck", colour: "faint" },
  skipped: { word: "Skipped", icon: "skip", colour: "faint" },
};

/** As the API has them, without those that the page derives. */
export const STATES = ["failed", "running", "ready", "scheduled", "waiting", "succeeded", "cancelled", "skipped"] as const;
export const STATUSES = ["running", "paused", "failed", "pending", "succeeded", "cancelled"] as const;

/** A later server may have other states. */
const appearance = (state: string): Appearance => APPEARANCES[state] ?? { word: state, icon: "ring", colour: "faint" };

export const known = (state: string): string => (state in APPEARANCES ? state : "other");
export const word = (state: string): string => appearance(state).word;
export const stateIcon = (state: string): IconName => appearance(state).icon;
/** The colour of an edge or a bar; states that only wait have none of their own. */
export const stateFill = (state: string): string => {
  const { colour } = appearance(state);
  return colour === "dim" || colour === "faint" ? "mute-fill" : `${colour}-fill`;
};
export const stateColour = (state: string): string => appearance(state).colour;

/** `text` says more than the word of the state. */
export function State({ state, count, text }: { state: string; count?: number | string; text?: string }) {
  const { icon, word } = appearance(state);
  return (
    <span class={`pill ${known(state)}`}>
      <Icon name={icon} small /> {text ?? word}
      {count === undefined ? null : <> <b>{count.toLocaleString("en")}</b></>}
    </span>
  );
}
