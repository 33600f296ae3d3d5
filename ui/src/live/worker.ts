// Shares one stream among all tabs of a browser, which opens only six connections to a server.
import { Stream, type LiveEvent, type Mark, type Thing } from "./stream";

/** From a tab. `here` says that it still exists: a port does not tell when it does not. */
export type FromTab =
  | { readonly kind: "watch"; readonly things: readonly Thing[]; readonly anew: readonly Thing[] }
  | { readonly kind: "again" }
  | { readonly kind: "here" }
  | { readonly kind: "bye" };

export type FromWorker =
  | { readonly kind: "events"; readonly thing: Thing; readonly events: readonly LiveEvent[] }
  | { readonly kind: "mark"; readonly mark: Mark }
  | { readonly kind: "unauthorized" };

/** Tabs in the background are slowed down: they speak once a minute. */
const GONE = 150_000;

interface Tab {
  things: readonly Thing[];
  heard: number;
}

const tabs = new Map<MessagePort, Tab>();
let mark: Mark = "reconnecting";

function tell(message: FromWorker, to: (tab: Tab) => boolean = () => true): void {
  for (const [port, tab] of tabs) if (to(tab)) port.postMessage(message);
}

const url = new URL("../v1/live", self.location.href).href;
const stream = new Stream(url, {
  events: (thing, events) => tell({ kind: "events", thing, events }, (tab) => tab.things.includes(thing)),
  mark: (now) => {
    mark = now;
    tell({ kind: "mark", mark });
  },
  unauthorized: () => tell({ kind: "unauthorized" }),
});

function watch(anew: readonly Thing[] = []): void {
  const all = new Set<Thing>();
  for (const tab of tabs.values()) for (const thing of tab.things) all.add(thing);
  stream.watch([...all], anew);
}

function heard(port: MessagePort, message: FromTab): void {
  const tab = tabs.get(port) ?? { things: [], heard: 0 };
  tab.heard = Date.now();
  tabs.set(port, tab);
  switch (message.kind) {
    case "watch":
      tab.things = message.things;
      port.postMessage({ kind: "mark", mark } satisfies FromWorker);
      return watch(message.anew);
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
  for (const [port, tab] of tabs) if (Date.now() - tab.heard > GONE) tabs.delete(port);
  if (tabs.size < before) watch();
}, 30_000);

addEventListener("connect", (event) => {
  const port = (event as MessageEvent).ports[0];
  if (!port) return;
  port.onmessage = (message) => heard(port, message.data as FromTab);
  port.start();
});
