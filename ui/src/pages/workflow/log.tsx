// The log of a job, followed from where it was read last: to search, to wrap, to copy.
import { useEffect, useRef, useState } from "preact/hooks";
import type { ApiError } from "../../api";
import { withQuery } from "../../api";
import type { LogPage } from "../../model";
import { Icon } from "../../parts/icon";
import { Copy } from "../../parts/menu";
import { Problem } from "../../parts/toasts";
import { cut, many, plain } from "../../parts/text";
import { clock } from "../../parts/time";
import { usePoll } from "../../poll";

/** Lines in the page: the server keeps 64 KiB. */
const MAX_LINES = 1000;
const MAX_CHARS = 4000;
const WARNING = /\b(warn(ing)?|error|exception|failed|traceback|[45]\d\d [a-z_]+)\b/i;

export interface LogLines {
  readonly items: LogPage["items"];
  readonly dropped: number;
  readonly error: ApiError | null;
}

/** Reads on from the last line; to be keyed by the job. */
export function useLog(own: string, live: boolean): LogLines {
  const [log, put] = useState<{ own: string; items: LogPage["items"]; next: string | null; dropped: number }>({ own, items: [], next: null, dropped: 0 });
  const next = log.own === own ? log.next : null;
  const page = usePoll<LogPage>(withQuery(`${own}/log`, { limit: 1000, after: next }), live ? 1000 : 5000);
  useEffect(() => {
    const got = page.data;
    if (!got || (got.items.length === 0 && next !== null)) return;
    put((was) => {
      const before = was.own === own ? was : { items: [], dropped: 0 };
      const items = [...before.items, ...got.items];
      // Lines that only the page leaves out are in the server's number once it drops them, too.
      const left = Math.max(0, items.length - MAX_LINES);
      return { own, items: items.slice(left), next: got.next, dropped: Math.max(before.dropped + left, got.dropped) };
    });
  }, [page.data]);
  return log.own === own ? { items: log.items, dropped: log.dropped, error: page.error } : { items: [], dropped: 0, error: page.error };
}

/** The text of a line as it is shown, split by what is searched for: each second part is a hit. */
function partsOf({ text }: LogPage["items"][number], wanted: string): string[] {
  const shown = cut(plain(text), MAX_CHARS);
  return wanted === "" ? [shown] : shown.split(new RegExp(`(${wanted.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")})`, "i"));
}

/** `hit` is the place in `parts` of the hit that is shown. */
function Line({ line, parts, hit }: { line: LogPage["items"][number]; parts: readonly string[]; hit: number }) {
  const at = new Date(line.at);
  return (
    <div class={WARNING.test(parts.join("")) ? "ln w" : "ln"}>
      <i title={line.at}>{clock(at.getTime())}.{String(at.getMilliseconds()).padStart(3, "0")}</i><bdi dir="auto">{parts.map((part, place) => (place % 2 ? <mark key={place} class={place === hit ? "on" : undefined}>{part}</mark> : part))}</bdi>
    </div>
  );
}

/** `hit` is the place of the hit that is shown among all of them. */
function Lines({ items, wanted = "", hit = -1 }: { items: LogPage["items"]; wanted?: string; hit?: number }) {
  let before = 0;
  return (
    <>
      {items.map((line, at) => {
        const parts = partsOf(line, wanted);
        const place = 2 * (hit - before) + 1;
        before += (parts.length - 1) / 2;
        return (
          <div key={at}>
            {line.attempt !== items[at - 1]?.attempt ? <div class="ln att">attempt {line.attempt}</div> : null}
            <Line line={line} parts={parts} hit={place} />
          </div>
        );
      })}
    </>
  );
}

/** The last lines, under an error. */
export function LogTail({ log, open }: { log: LogLines; open: () => void }) {
  if (log.items.length === 0) return null;
  return (
    <div class="block log">
      <header>Log, last lines<button class="small bare push" onClick={open}>Open log</button></header>
      <pre tabIndex={0} role="region" aria-label="last lines of the log"><Lines items={log.items.slice(-8)} /></pre>
    </div>
  );
}

export function Log({ log }: { log: LogLines }) {
  const [typed, type] = useState("");
  const [wrap, setWrap] = useState(true);
  const [follow, setFollow] = useState(true);
  /** The place of the hit that is shown, from 0. */
  const [hit, setHit] = useState(-1);
  const box = useRef<HTMLPreElement>(null);
  const wanted = typed.trim();
  const hits = log.items.reduce((sum, line) => sum + (partsOf(line, wanted).length - 1) / 2, 0);
  const go = (by: number): void => {
    setHit(hits > 0 ? (Math.max(hit, by < 0 ? 0 : -1) + by + hits) % hits : -1);
    setFollow(false);
  };
  const keys = (event: KeyboardEvent): void => {
    if (event.key !== "Enter") return;
    // From here on, n and N are keys and no text.
    box.current?.focus();
    go(event.shiftKey ? -1 : 1);
  };
  useEffect(() => box.current?.querySelector("mark.on")?.scrollIntoView({ block: "nearest" }), [hit]);
  useEffect(() => {
    if (follow && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [log.items, follow]);
  const scrolled = (): void => {
    const own = box.current;
    if (own) setFollow(own.scrollHeight - own.scrollTop - own.clientHeight < 24);
  };
  if (log.error) return <Problem error={log.error} />;
  if (log.items.length === 0) return <p class="dim">No lines yet</p>;
  return (
    <div class="block log tall">
      <header>
        <input type="search" data-filter size={12} placeholder="Search" aria-label="Search the log" spellcheck={false} value={typed} onInput={(event) => (type(event.currentTarget.value), setHit(-1))} onKeyDown={keys} />
        <span role="status" class="dim">{wanted === "" ? "" : hit < 0 ? many(hits, "hit") : `${hit + 1} of ${hits}`}</span>
        {hits > 0 ? <span>{([["N", "Hit before", "up", -1], ["n", "Next hit", "down", 1]] as const).map(([key, label, icon, by]) => (
          <button key={key} class="small bare square" data-key={key} aria-label={label} title={label} onClick={() => go(by)}><Icon name={icon} /></button>
        ))}</span> : null}
        <span class="push row">
          <button class="small bare" data-key="f" aria-pressed={follow} onClick={() => setFollow(!follow)}><Icon name="follow" />Follow</button>
          <button class="small bare square" title="Wrap" aria-label="Wrap" aria-pressed={wrap} onClick={() => setWrap(!wrap)}><Icon name="wrap" /></button>
          <Copy label="Copy the log" text={log.items.map((line) => `${line.at} ${line.text}`).join("\n")} />
        </span>
      </header>
      <pre ref={box} class={wrap ? undefined : "no-wrap"} tabIndex={0} role="log" aria-label="log" aria-live="off" onScroll={scrolled}>
        {log.dropped > 0 ? <div class="ln att">{log.dropped.toLocaleString("en")} older lines dropped</div> : null}
        <Lines items={log.items} wanted={wanted} hit={hit} />
      </pre>
    </div>
  );
}
