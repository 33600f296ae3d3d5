// Live events of the server: `watch` subscribes a part of the page to a thing.
import { signal } from "@preact/signals";
import { session } from "./api";
import { Stream, type LiveEvent, type Mark, type Thing } from "./live/stream";
import type { FromTab, FromWorker } from "./live/worker";

export type { LiveEvent, Thing };

/** Whether the stream is there; null while nothing is watched. */
export const mark = signal<Mark | null>(null);

type Listener = (events: readonly LiveEvent[]) => void;
const listeners = new Map<Thing, Set<Listener>>();
/** Milliseconds after which a hidden tab watches nothing. */
const HIDDEN_TIMEOUT = 60_000;
let hidden = false;

interface Connection {
  watch(things: readonly Thing[], reset: readonly Thing[]): void;
  again(): void;
}

function events(thing: Thing, batch: readonly LiveEvent[]): void {
  for (const listener of listeners.get(thing) ?? []) listener(batch);
}

function unauthorized(): void {
  if (session.value) session.value = { ...session.value, sign_in: true, role: null };
}

function sharedConnection(): Connection {
  const worker = new SharedWorker("assets/live.js", { name: "tidegate" });
  const send = (message: FromTab): void => worker.port.postMessage(message);
  worker.port.onmessage = (message) => {
    const received = message.data as FromWorker;
    if (received.kind === "events") events(received.thing, received.events);
    else if (received.kind === "unauthorized") unauthorized();
    else if (listeners.size > 0) mark.value = received.mark;
  };
  setInterval(() => send({ kind: "here" }), 20_000);
  addEventListener("pagehide", () => send({ kind: "bye" }));
  addEventListener("pageshow", (event) => event.persisted && updateWatched([...listeners.keys()]));
  return { watch: (things, reset) => send({ kind: "watch", things, reset }), again: () => send({ kind: "again" }) };
}

function ownConnection(): Connection {
  const stream = new Stream("v1/live", { events, mark: (now) => (mark.value = now), unauthorized });
  return { watch: (things, reset) => stream.watch(things, reset), again: () => stream.again(0) };
}

let connection: Connection | null = null;

function updateWatched(reset: readonly Thing[]): void {
  connection ??= typeof SharedWorker === "undefined" ? ownConnection() : sharedConnection();
  connection.watch(hidden ? [] : [...listeners.keys()], hidden ? [] : reset);
}

/** Calls `listener` with all events of `thing`, in groups that belong together, until the returned function is called. */
export function watch(thing: Thing, listener: Listener): () => void {
  const set = listeners.get(thing) ?? new Set();
  listeners.set(thing, set.add(listener));
  mark.value ??= "reconnecting";
  updateWatched([thing]);
  return () => {
    set.delete(listener);
    if (set.size > 0) return;
    listeners.delete(thing);
    if (listeners.size === 0) mark.value = null;
    updateWatched([]);
  };
}

/** After signing in. */
export function reconnect(): void {
  connection?.again();
}

let timer = 0;
document.addEventListener("visibilitychange", () => {
  clearTimeout(timer);
  if (document.hidden) {
    timer = window.setTimeout(() => {
      hidden = true;
      if (connection) updateWatched([]);
    }, HIDDEN_TIMEOUT);
  } else if (hidden) {
    hidden = false;
    if (connection) updateWatched([...listeners.keys()]);
  }
});
