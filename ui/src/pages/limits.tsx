// Limits: who waits under them and who holds them, what is paused or scaled, and what a request would be answered.
import { useState } from "preact/hooks";
import { ask, mayAct, Refused, withQuery, type Call } from "../api";
import { Action, Curl } from "../parts/action";
import { Problem } from "../parts/says";
import { Table } from "../parts/table";
import { Name } from "../parts/text";
import { Ago, Duration, now, Time } from "../parts/time";
import { usePoll } from "../poll";
import { href, place } from "../router";
import type { Holder, Limit, Page } from "../model";
import { keyText, Top } from "./overview/top";
import { Pages } from "./queues";

interface LimitInUse extends Limit {
  readonly running?: number;
  readonly use?: { readonly used?: number; readonly limit?: number; readonly resets_at?: string } | null;
  readonly holders?: readonly Holder[];
}

interface WaitingKey {
  readonly queue: string;
  readonly handler: string;
  readonly waiting: number;
  readonly oldest_ready_at: string;
  readonly limits: readonly LimitInUse[];
  readonly full: { readonly index: number; readonly until: string | null } | null;
}

interface Override {
  readonly effect: string;
  readonly rule?: string;
  readonly domain?: string;
  readonly entries?: readonly (readonly string[])[];
  readonly scale?: number;
  readonly gateway: boolean;
  readonly until: string | null;
  readonly at: string;
  readonly by: string;
  readonly reason: string;
}

export function Limits() {
  return (
    <>
      <h1>Limits</h1>
      <Waiting />
      <Overrides />
      <Check />
      <Top most={25} />
    </>
  );
}

const words = (limit: LimitInUse): string =>
  limit.concurrency !== undefined
    ? `at most ${limit.concurrency} at a time${limit.entries.length > 0 ? ` for ${limit.entries.map((pair) => pair.join("=")).join(", ")}` : ""}`
    : keyText(limit.domain ?? "", limit.entries);

function Waiting() {
  const cursor = place.value.query["cursor"];
  const { data, error } = usePoll<Page<WaitingKey>>(withQuery("v1/limits", { limit: 50, cursor }), 2000);
  return (
    <section aria-label="Jobs that wait under limits">
      <h2>Jobs that wait under limits</h2>
      <Problem error={error} />
      <Table label="Jobs that wait under limits" rows={data?.items ?? null} rowKey={(row) => JSON.stringify([row.queue, row.handler, row.limits.map(words)])} empty="no job waits under a limit" columns={[
        { head: "queue", cell: (row) => <Name text={row.queue} most={40} /> },
        { head: "handler", names: true, cell: (row) => <Name text={row.handler} most={40} /> },
        { head: "wait", kind: "number", cell: (row) => row.waiting.toLocaleString("en") },
        { head: "oldest", kind: "number", cell: (row) => <Duration ms={Math.max(now.value - Date.parse(row.oldest_ready_at), 0)} /> },
        { head: "limits", kind: "wide", cell: (row) => row.limits.map((limit, at) => <InUse key={at} limit={limit} full={row.full?.index === at} />) },
        { head: "room from", cell: (row) => (row.full ? (row.full.until ? <Time at={row.full.until} /> : "when one ends") : "now") },
      ]} />
      <Pages first={Boolean(cursor)} next={data?.next_cursor} />
    </section>
  );
}

function InUse({ limit, full }: { limit: LimitInUse; full: boolean }) {
  const used = limit.running ?? limit.use?.used;
  return (
    <div>
      <Name text={words(limit)} most={120} />{" "}
      {used === undefined ? null : <span class="num">{used} used</span>} {full ? <b class="s-failed">no room</b> : null}
      {limit.holders?.map((holder) => (
        <a key={`${holder.workflow} ${holder.index}`} class="tag" href={href(["workflows", holder.workflow], holder.job ? { job: holder.job } : {})}>
          <Name text={holder.job ?? `job ${holder.index}`} most={30} />
        </a>
      ))}
    </div>
  );
}

const target = (one: Override): string => one.rule ?? keyText(one.domain ?? "", one.entries ?? []);

function Overrides() {
  const { data, error, again } = usePoll<{ readonly items: readonly Override[] }>("v1/limits/overrides", 2000);
  const remove = (one: Override): Call => ({
    method: "DELETE",
    path: withQuery("v1/limits/overrides", {
      rule: one.rule, domain: one.domain, entries: one.entries ? JSON.stringify(one.entries) : null, effect: one.effect,
    }),
  });
  return (
    <section aria-label="Paused and scaled">
      <h2>Paused and scaled</h2>
      <Problem error={error} />
      <Table label="Paused and scaled" rows={data?.items ?? null} rowKey={(row) => `${row.effect} ${target(row)}`} empty="nothing is paused or scaled" columns={[
        { head: "effect", cell: (row) => <b>{row.effect}{row.scale === undefined ? "" : ` × ${row.scale}`}</b> },
        { head: "limit or key", names: true, kind: "wide", cell: (row) => <Name text={target(row)} most={120} /> },
        { head: "for", cell: (row) => (row.gateway ? "requests and jobs" : "jobs") },
        { head: "until", cell: (row) => (row.until ? <Time at={row.until} /> : "somebody removes it") },
        { head: "by", cell: (row) => <><Name text={row.by} most={30} />, <Ago at={row.at} /></> },
        { head: "why", cell: (row) => <Name text={row.reason} most={60} /> },
        { head: "", cell: (row) => <Action label="Remove" call={remove(row)} said="it holds no longer" done={again} /> },
      ]} />
      {mayAct() ? <NewOverride done={again} /> : null}
    </section>
  );
}

/** `tenant=acme, path=/a` as pairs. */
const pairs = (text: string): string[][] =>
  text.split(",").map((pair) => pair.trim()).filter(Boolean).map((pair) => {
    const at = pair.indexOf("=");
    return at < 0 ? [pair, ""] : [pair.slice(0, at).trim(), pair.slice(at + 1).trim()];
  });

function NewOverride({ done }: { done: () => void }) {
  const [about, setAbout] = useState({ domain: "", entries: "", scale: "", span: "10m", reason: "" });
  const set = (name: string) => (event: { currentTarget: HTMLInputElement }) => setAbout({ ...about, [name]: event.currentTarget.value });
  const body = { domain: about.domain, entries: pairs(about.entries), ...(about.span ? { for: about.span } : {}), ...(about.reason ? { reason: about.reason } : {}) };
  const call = (more: object): Call => ({ method: "PUT", path: "v1/limits/overrides", body: { ...body, ...more } });
  const ready = about.domain !== "" && body.entries.length > 0;
  return (
    <details>
      <summary>Pause or scale a key</summary>
      <form class="filters" onSubmit={(event) => event.preventDefault()}>
        <label>domain <input value={about.domain} onInput={set("domain")} /></label>
        <label>entries <input placeholder="tenant=acme" size={24} value={about.entries} onInput={set("entries")} /></label>
        <label>for <input size={6} value={about.span} onInput={set("span")} /></label>
        <label>why <input value={about.reason} onInput={set("reason")} /></label>
        <Action label="Pause" disabled={!ready} confirm={<>Jobs under <Name text={keyText(body.domain, body.entries)} /> wait for {about.span || "as long as nobody resumes it"}.</>}
          call={call({ pause: true })} said="it is paused" done={done} />
        <label>scale by <input size={4} value={about.scale} onInput={set("scale")} /></label>
        <Action label="Scale" disabled={!ready || !(Number(about.scale) > 0)} call={call({ scale: Number(about.scale) })} said="it is scaled" done={done} />
      </form>
    </details>
  );
}

interface Answer {
  readonly code: string;
  readonly descriptors: readonly {
    readonly entries: readonly (readonly string[])[];
    readonly code: string;
    readonly limit: { readonly name?: string; readonly requests_per_unit: number; readonly unit: string } | null;
    readonly remaining: number | null;
    readonly reset_ms: number | null;
  }[];
}

/** Asks what a request would be answered. Nothing is charged. */
function Check() {
  const [domain, setDomain] = useState("");
  const [entries, setEntries] = useState("");
  const [answer, setAnswer] = useState<Answer | Refused | null>(null);
  const list = pairs(entries).map(([key, value]) => ({ key, value }));
  const call: Call = { method: "POST", path: "v1/limits/check", body: { domain, descriptors: [{ entries: list }] } };
  const send = (event: Event): void => {
    event.preventDefault();
    ask<Answer>(call).then(setAnswer, (error: unknown) => setAnswer(error instanceof Refused ? error : new Refused(0, "unknown", String(error))));
  };
  return (
    <section aria-label="Check a request">
      <h2>What would a request be answered?</h2>
      <form class="filters" onSubmit={send}>
        <label>domain <input data-filter required value={domain} onInput={(event) => setDomain(event.currentTarget.value)} /></label>
        <label>entries <input required placeholder="tenant=acme, path=/a" size={30} value={entries} onInput={(event) => setEntries(event.currentTarget.value)} /></label>
        <span class="action"><button class="primary">Check</button><Curl call={call} label="Check" /></span>
        <span class="dim">nothing is charged</span>
      </form>
      {answer instanceof Refused ? <Problem error={answer} /> : null}
      {answer && !(answer instanceof Refused) ? (
        <Table label="Answer" rows={answer.descriptors} rowKey={(row) => JSON.stringify(row.entries)} columns={[
          { head: "key", names: true, cell: (row) => <Name text={keyText(domain, row.entries)} most={120} /> },
          { head: "answer", cell: (row) => <b class={row.code === "ok" ? "s-succeeded" : "s-failed"}>{row.code}</b> },
          { head: "limit", cell: (row) => (row.limit ? `${row.limit.requests_per_unit} a ${row.limit.unit}` : "none: it is let through") },
          { head: "remaining", kind: "number", cell: (row) => row.remaining ?? "–" },
          { head: "until the window ends", kind: "number", cell: (row) => <Duration ms={row.reset_ms} /> },
        ]} />
      ) : null}
    </section>
  );
}
