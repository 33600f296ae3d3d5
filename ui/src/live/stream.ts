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

/** Bounds of the pause before a new connection, in milliseconds: doubled from one failure to the next. */
const MIN_RETRY_DELAY = 500;
const MAX_RETRY_DELAY = 10_000;
/** Milliseconds without a byte after which the stream is lost. The server sends a comment every 15 s. */
const SILENCE_TIMEOUT = 25_000;
/** Milliseconds in which changes of the watched things are collected: a tab that opens a page makes several. */
const COALESCE_TIME = 30;
/** Most things that the server accepts in one call. */
const MAX_THINGS = 16;

export class Stream {
  private wanted: readonly Thing[] = [];
  /** Versions of the things whose state the next stream need not repeat. */
  private readonly versions = new Map<Thing, string>();
  private ended: AbortController | null = null;
  private timer = 0;
  private pause = MIN_RETRY_DELAY;

  constructor(
    private readonly url: string,
    private readonly listener: Listener,
  ) {}

  /** Watches these things from now on. The state of those in `reset` is sent as a whole. */
  watch(all: readonly Thing[], reset: readonly Thing[] = []): void {
    const things = all.slice(-MAX_THINGS);
    const same = things.length === this.wanted.length && things.every((thing) => this.wanted.includes(thing));
    for (const thing of this.versions.keys()) if (!things.includes(thing)) this.versions.delete(thing);
    for (const thing of reset) this.versions.delete(thing);
    this.wanted = things;
    if (same && reset.length === 0) return;
    this.again(COALESCE_TIME);
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
    const restartTimeout = (): void => {
      clearTimeout(silence);
      silence = setTimeout(() => ended.abort("silence"), SILENCE_TIMEOUT) as unknown as number;
    };
    try {
      restartTimeout();
      // No workflow has version 0: the server then sends the state of every job.
      const about = (thing: Thing): string =>
        thing.startsWith("workflow:") ? `${thing}@${this.versions.get(thing) ?? "0"}` : thing;
      const list = this.wanted.map((thing) => encodeURIComponent(about(thing))).join(",");
      const answer = await fetch(`${this.url}?watch=${list}`, { signal: ended.signal, cache: "no-store" });
      if (answer.status === 401) return this.listener.unauthorized();
      if (!answer.ok || !answer.body) throw new Error(`the server answered ${answer.status}`);
      this.listener.mark("live");
      await this.read(answer.body.getReader(), restartTimeout);
    } catch {
      // The connection was lost: it is opened again below.
    } finally {
      clearTimeout(silence);
    }
    if (this.ended !== ended) return;
    this.listener.mark("reconnecting");
    // A random pause, so that pages do not all connect at once when a server is back.
    const pause = this.pause * (0.75 + Math.random() / 2);
    this.pause = Math.min(2 * this.pause, MAX_RETRY_DELAY);
    this.again(pause);
  }

  private async read(reader: ReadableStreamDefaultReader<Uint8Array>, restartTimeout: () => void): Promise<void> {
    const decoder = new TextDecoder();
    const frames = new Frames((thing, events, version) => {
      this.pause = MIN_RETRY_DELAY;
      if (version !== null) this.versions.set(thing, version);
      this.listener.events(thing, events);
    });
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      restartTimeout();
      frames.add(decoder.decode(value, { stream: true }));
    }
  }
}

type Frame = (thing: Thing, events: LiveEvent[], version: string | null) => void;

/** Cuts the text of a stream into events, and passes them to `frame` in the groups of the server. */
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
