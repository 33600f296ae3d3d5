// What happens on the server, as it happens: `watch` says what a part of the page wants to know.
import { signal } from "@preact/signals";
import { session } from "./api";
import { Stream, type LiveEvent, type Mark, type Thing } from "./live/stream";
import type { FromTab, FromWorker } from "./live/worker";

export type { LiveEvent, Thing };

/** Whether the stream is there; null while nothing is watched. */
export const mark = signal<Mark | null>(null);

type Listener = (events: readonly LiveEvent[]) => void;
const listeners = new Map<Thing, Set<Listener>>();
/** A tab that nobody sees for so long watches nothing. */
const HIDDEN = 60_000;
let away = false;

interface Line {
  watch(things: readonly Thing[], anew: readonly Thing[]): void;
  again(): void;
}

function events(thing: Thing, batch: readonly LiveEvent[]): void {
  for (const listener of listeners.get(thing) ?? []) listener(batch);
}

function unauthorized(): void {
  if (session.value) session.value = { ...session.value, sign_in: true, role: null };
}

function shared(): Line {
  const worker = new SharedWorker("assets/live.js", { name: "tidegate" });
  const send = (message: FromTab): void => worker.port.postMessage(message);
  worker.port.onmessage = (message) => {
    const told = message.data as FromWorker;
    if (told.kind === "events") events(told.thing, told.events);
    else if (told.kind === "unauthorized") unauthorized();
    else if (listeners.size > 0) mark.value = told.mark;
  };
  setInterval(() => send({ kind: "here" }), 20_000);
  addEventListener("pagehide", () => send({ kind: "bye" }));
  addEventListener("pageshow", (event) => event.persisted && tell([...listeners.keys()]));
  return { watch: (things, anew) => send({ kind: "watch", things, anew }), again: () => send({ kind: "again" }) };
}

function own(): Line {
  const stream = new Stream("v1/live", { events, mark: (now) => (mark.value = now), unauthorized });
  return { watch: (things, anew) => stream.watch(things, anew), again: () => stream.again(0) };
}

let line: Line | null = null;

function tell(anew: readonly Thing[]): void {
  line ??= typeof SharedWorker === "undefined" ? own() : shared();
  line.watch(away ? [] : [...listeners.keys()], away ? [] : anew);
}

/** Tells `listener` all about `thing` from now on, in groups of events that belong together, until the returned function is called. */
export function watch(thing: Thing, listener: Listener): () => void {
  const set = listeners.get(thing) ?? new Set();
  listeners.set(thing, set.add(listener));
  mark.value ??= "reconnecting";
  tell([thing]);
  return () => {
    set.delete(listener);
    if (set.size > 0) return;
    listeners.delete(thing);
    if (listeners.size === 0) mark.value = null;
    tell([]);
  };
}

/** After signing in. */
export function reconnect(): void {
  line?.again();
}

let timer = 0;
document.addEventListener("visibilitychange", () => {
  clearTimeout(timer);
  if (document.hidden) {
    timer = window.setTimeout(() => {
      away = true;
      if (line) tell([]);
    }, HIDDEN);
  } else if (away) {
    away = false;
    if (line) tell([...listeners.keys()]);
  }
});
