// Moments and spans. Moments of the API are RFC 3339 in UTC; people see them in their own zone.
import { signal } from "@preact/signals";
import { unreachable } from "../api";

/** The clock of the page, which stops while the server is unreachable. Components that read `.value` are drawn again each second. */
export const now = signal(Date.now());
/** The clock that never stops. */
export const tick = signal(Date.now());
setInterval(() => {
  if (document.hidden) return;
  tick.value = Date.now();
  if (!unreachable.value) now.value = tick.value;
}, 1000);

const two = (number: number): string => String(number).padStart(2, "0");

/** `340 ms`, `1.2 s`, `12 s`, `3m 20s`, `2h 05m`, `4d 3h`. */
export function span(ms: number): string {
  if (!Number.isFinite(ms)) return "";
  if (ms < 0) return `-${span(-ms)}`;
  if (ms < 1) return ms === 0 ? "0 ms" : "<1 ms";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 9950) return `${(ms / 1000).toFixed(1)} s`;
  const seconds = Math.round(ms / 1000);
  if (seconds < 60) return `${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes}m ${two(seconds % 60)}s`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours}h ${two(minutes % 60)}m`;
  return `${Math.floor(hours / 24)}d ${hours % 24}h`;
}

export function Duration({ ms }: { ms: number | null | undefined }) {
  return ms === null || ms === undefined ? <span class="dim">–</span> : <span>{span(ms)}</span>;
}

/** The local time of day, with the day when it is another one. */
export function clock(at: number): string {
  const date = new Date(at);
  const time = `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
  if (date.toDateString() === new Date().toDateString()) return time;
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${time}`;
}

/** A moment in the zone of the reader; its full text in UTC on hover. */
export function Time({ at }: { at: string | null | undefined }) {
  if (!at) return <span class="dim">–</span>;
  const ms = Date.parse(at);
  return <time dateTime={at} title={at}>{Number.isNaN(ms) ? at : clock(ms)}</time>;
}

const whole = (seconds: number): string => (seconds < 60 ? `${seconds} s` : span(1000 * seconds));

/** How long ago something was. Clocks of servers and readers differ: it was not in the future. */
export const Ago = ({ at }: { at: string | null | undefined }) => <RelativeTime at={at} min={0} />;

/** In how long something is, or how long ago it was. */
export function RelativeTime({ at, min = -Infinity }: { at: string | null | undefined; min?: number }) {
  if (!at) return <span class="dim">–</span>;
  const age = Math.max(now.value - Date.parse(at), min);
  const words = age < -500 ? `in ${whole(Math.ceil(-age / 1000))}` : age < 1000 ? "now" : `${whole(Math.floor(age / 1000))} ago`;
  return <time dateTime={at} title={at}>{words}</time>;
}
