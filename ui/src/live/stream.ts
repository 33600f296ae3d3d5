// One stream of events for all that is watched. It is read with fetch: the worker that shares it among tabs has no EventSource everywhere.

/** `overview` or `workflow:ID`. */
export type Thing = string;

export interface LiveEvent {
  readonly event: string;
  readonly data: unknown;
}

export type Mark = "live" | "reconnecting";

export interface Listener {
  events(thing: Thing, events: readonly LiveEvent[]): void;
  mark(mark: Mark): void;
  /** The session has ended. */
  unauthorized(): void;
}

const SHORTEST = 500;
const LONGEST = 10_000;
/** The server speaks every 15 s, also when nothing happens. */
const SILENCE = 25_000;
/** Changes of what is watched come in groups, as when a tab opens another page. */
const SETTLE = 30;
/** The server takes no more in one call. */
const MOST = 16;

export class Stream {
  private wanted: readonly Thing[] = [];
  /** What a next stream need not tell again. */
  private readonly versions = new Map<Thing, string>();
  private ended: AbortController | null = null;
  private timer = 0;
  private pause = SHORTEST;

  constructor(
    private readonly url: string,
    private readonly listener: Listener,
  ) {}

  /** Watches these things from now on; those in `anew` are told as a whole. */
  watch(all: readonly Thing[], anew: readonly Thing[] = []): void {
    const things = all.slice(-MOST);
    const same = things.length === this.wanted.length && things.every((thing) => this.wanted.includes(thing));
    for (const thing of this.versions.keys()) if (!things.includes(thing)) this.versions.delete(thing);
    for (const thing of anew) this.versions.delete(thing);
    this.wanted = things;
    if (same && anew.length === 0) return;
    this.again(SETTLE);
  }

  /** Connects now, as after signing in. */
  again(after: number): void {
    this.ended?.abort();
    this.ended = null;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => void this.run(), after) as unknown as number;
  }

  private async run(): Promise<void> {
    if (this.wanted.length === 0) return;
    const ended = new AbortController();
    this.ended = ended;
    let silence = 0;
    const heard = (): void => {
      clearTimeout(silence);
      silence = setTimeout(() => ended.abort("silence"), SILENCE) as unknown as number;
    };
    try {
      heard();
      // Version 0 never is: the reader knows nothing, and is told the state of every job.
      const about = (thing: Thing): string =>
        thing.startsWith("workflow:") ? `${thing}@${this.versions.get(thing) ?? "0"}` : thing;
      const list = this.wanted.map((thing) => encodeURIComponent(about(thing))).join(",");
      const answer = await fetch(`${this.url}?watch=${list}`, { signal: ended.signal, cache: "no-store" });
      if (answer.status === 401) return this.listener.unauthorized();
      if (!answer.ok || !answer.body) throw new Error(`the server answered ${answer.status}`);
      this.listener.mark("live");
      await this.read(answer.body.getReader(), heard);
    } catch {
      // The line broke: below.
    } finally {
      clearTimeout(silence);
    }
    if (this.ended !== ended) return;
    this.listener.mark("reconnecting");
    // Not all at once, when a server is back.
    const pause = this.pause * (0.75 + Math.random() / 2);
    this.pause = Math.min(2 * this.pause, LONGEST);
    this.again(pause);
  }

  private async read(reader: ReadableStreamDefaultReader<Uint8Array>, heard: () => void): Promise<void> {
    const decoder = new TextDecoder();
    const frames = new Frames((thing, events, version) => {
      this.pause = SHORTEST;
      if (version !== null) this.versions.set(thing, version);
      this.listener.events(thing, events);
    });
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      heard();
      frames.add(decoder.decode(value, { stream: true }));
    }
  }
}

type Frame = (thing: Thing, events: LiveEvent[], version: string | null) => void;

/** Cuts the text of a stream into events, and gives them to `frame` in the groups that they came in. */
export class Frames {
  private rest = "";
  private thing: Thing = "overview";
  private events: LiveEvent[] = [];

  constructor(private readonly frame: Frame) {}

  add(text: string): void {
    this.rest += text;
    let from = 0;
    for (;;) {
      const to = this.rest.indexOf("\n\n", from);
      if (to < 0) break;
      this.event(this.rest.slice(from, to));
      from = to + 2;
    }
    this.rest = this.rest.slice(from);
  }

  private event(text: string): void {
    let event = "message";
    let version: string | null = null;
    const data: string[] = [];
    for (const line of text.split("\n")) {
      if (line.startsWith("event: ")) event = line.slice(7);
      else if (line.startsWith("data: ")) data.push(line.slice(6));
      else if (line.startsWith("id: ")) version = line.slice(4);
    }
    if (data.length === 0) return;
    const value: unknown = JSON.parse(data.join("\n"));
    if (event === "of") {
      const of = (value as { workflow?: string }).workflow;
      if (this.events.length > 0) this.frame(this.thing, this.events, null);
      this.events = [];
      this.thing = of === undefined ? "overview" : `workflow:${of}`;
      return;
    }
    this.events.push({ event, data: value });
    // The jobs that changed come before their workflow.
    if (event === "job") return;
    this.frame(this.thing, this.events, version);
    this.events = [];
  }
}
