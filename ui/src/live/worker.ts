// Shares one stream among all tabs of a browser, which opens only six connections to a server.
import { Stream, type LiveEvent, type Mark, type Thing } from "./stream";

/** From a tab. `here` says that it still exists: a port does not report a closed tab. */
export type FromTab =
  | { readonly kind: "watch"; readonly things: readonly Thing[]; readonly reset: readonly Thing[] }
  | { readonly kind: "again" }
  | { readonly kind: "here" }
  | { readonly kind: "bye" };

export type FromWorker =
  | { readonly kind: "events"; readonly thing: Thing; readonly events: readonly LiveEvent[] }
  | { readonly kind: "mark"; readonly mark: Mark }
  | { readonly kind: "unauthorized" };

/** Milliseconds without a message after which a tab is gone. Tabs in the background send one a minute. */
const TAB_TIMEOUT = 150_000;

interface Tab {
  things: readonly Thing[];
  lastSeen: number;
}

const tabs = new Map<MessagePort, Tab>();
let mark: Mark = "reconnecting";

function send(message: FromWorker, to: (tab: Tab) => boolean = () => true): void {
  for (const [port, tab] of tabs) if (to(tab)) port.postMessage(message);
}

const url = new URL("../v1/live", self.location.href).href;
const stream = new Stream(url, {
  events: (thing, events) => send({ kind: "events", thing, events }, (tab) => tab.things.includes(thing)),
  mark: (now) => {
    mark = now;
    send({ kind: "mark", mark });
  },
  unauthorized: () => send({ kind: "unauthorized" }),
});

function watch(reset: readonly Thing[] = []): void {
  const all = new Set<Thing>();
  for (const tab of tabs.values()) for (const thing of tab.things) all.add(thing);
  stream.watch([...all], reset);
}

function onMessage(port: MessagePort, message: FromTab): void {
  const tab = tabs.get(port) ?? { things: [], lastSeen: 0 };
  tab.lastSeen = Date.now();
  tabs.set(port, tab);
  switch (message.kind) {
    case "watch":
      tab.things = message.things;
      port.postMessage({ kind: "mark", mark } satisfies FromWorker);
      return watch(message.reset);
    case "again":
      return stream.again(0);
    case "bye":
      tabs.delete(port);
      return watch();
    case "here":
      return;
  }
}

setInterval(() => {
  const before = tabs.size;
  for (const [port, tab] of tabs) if (Date.now() - tab.lastSeen > TAB_TIMEOUT) tabs.delete(port);
  if (tabs.size < before) watch();
}, 30_000);

addEventListener("connect", (event) => {
  const port = (event as MessageEvent).ports[0];
  if (!port) return;
  port.onmessage = (message) => onMessage(port, message.data as FromTab);
  port.start();
});
