// What is paused or scaled, and the form that adds to it.
import { useState } from "preact/hooks";
import { mayAct, withQuery, type Call } from "../../api";
import { Action } from "../../parts/action";
import { State } from "../../parts/state";
import { Problem } from "../../parts/toasts";
import { Table } from "../../parts/table";
import { Name } from "../../parts/text";
import { Ago, Time } from "../../parts/time";
import { usePoll } from "../../poll";
import { keyText } from "../overview/top";
import { noPair, overriding, PAUSE_FORM, pairs, withRule } from "./subject";

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

const target = (one: Override): string => one.rule ?? keyText(one.domain ?? "", one.entries ?? []);

export function Overrides() {
  const { data, error, again } = usePoll<{ readonly items: readonly Override[] }>("v1/limits/overrides", 2000);
  const resume = (one: Override): Call => ({
    method: "DELETE",
    path: withQuery("v1/limits/overrides", {
      rule: one.rule, domain: one.domain, entries: one.entries ? JSON.stringify(one.entries) : null, effect: one.effect,
    }),
  });
  return (
    <section aria-label="Paused and scaled">
      <h2>Paused and scaled</h2>
      <Problem error={error} />
      <Table label="Paused and scaled" rows={data?.items ?? null} failed={error !== null} rowKey={(row) => `${row.effect} ${target(row)}`} empty="Nothing is paused or scaled" columns={[
        { head: "Effect", cell: (row) => (row.effect === "pause" ? <State state="paused" /> : <b>Scaled{row.scale === undefined ? "" : ` × ${row.scale}`}</b>) },
        { head: "Limit or key", names: true, kind: "wide", cell: (row) => <Name text={target(row)} max={120} /> },
        { head: "For", cell: (row) => (row.gateway ? "Requests and jobs" : "Jobs") },
        { head: "Until", cell: (row) => (row.until ? <Time at={row.until} /> : "Until resumed") },
        { head: "By", cell: (row) => <><Name text={row.by} max={30} />, <Ago at={row.at} /></> },
        { head: "Reason", cell: (row) => <Name text={row.reason} max={60} /> },
        { head: "", cell: (row) => <Action label="Resume" call={resume(row)} toast="Resumed." done={again} /> },
      ]} />
      {mayAct() ? <NewOverride done={again} /> : null}
    </section>
  );
}

function NewOverride({ done }: { done: () => void }) {
  const [about, setAbout] = useState({ scale: "", span: "10m", reason: "", requests: false });
  const subject = overriding.value;
  const set = (name: string) => (event: { currentTarget: HTMLInputElement }) => setAbout({ ...about, [name]: event.currentTarget.value });
  const put = (name: string) => (event: { currentTarget: HTMLInputElement }) => (overriding.value = { ...subject, [name]: event.currentTarget.value });
  const body = { ...withRule(subject), ...(about.span ? { for: about.span } : {}), ...(about.reason ? { reason: about.reason } : {}) };
  const call = (more: object): Call => ({ method: "PUT", path: "v1/limits/overrides", body: { ...body, ...more } });
  const of = subject.rule !== "";
  const wrong = of ? null : noPair(subject.entries);
  const ready = of || (subject.domain !== "" && wrong === null && pairs(subject.entries).length > 0);
  const shown = of ? subject.rule : keyText(subject.domain, pairs(subject.entries));
  return (
    <details>
      <summary>Pause or scale a key or a limit</summary>
      <form id={PAUSE_FORM} class="filters" onSubmit={(event) => event.preventDefault()}>
        <label>Domain <input name="domain" disabled={of} value={subject.domain} onInput={put("domain")} /></label>
        <label>Entries <input name="entries" disabled={of} placeholder="tenant=acme" size={24} value={subject.entries} onInput={put("entries")} /></label>
        <label>or all keys of <input name="rule" placeholder="vendor.tenant" size={24} value={subject.rule} onInput={put("rule")} /></label>
        <label>For <input size={6} value={about.span} onInput={set("span")} /></label>
        <label>Reason <input value={about.reason} onInput={set("reason")} /></label>
        {wrong === null ? null : <span class="problem">'<Name text={wrong} max={40} />' is not a key with a value: write tenant=acme</span>}
        <label><input type="checkbox" checked={about.requests} onChange={(event) => setAbout({ ...about, requests: event.currentTarget.checked })} /> Also requests</label>
        <Action label="Pause" disabled={!ready} confirm={<Affects shown={shown} requests={about.requests} span={about.span} />}
          call={call({ pause: true, ...(about.requests ? { gateway: true } : {}) })} toast={about.requests ? "Paused for jobs and requests." : "Paused for jobs."} done={done} />
        <label>Scale by <input size={4} value={about.scale} onInput={set("scale")} /></label>
        <Action label="Scale" disabled={!ready || !(Number(about.scale) > 0)} call={call({ scale: Number(about.scale) })} toast="Scaled." done={done} />
      </form>
    </details>
  );
}

function Affects({ shown, requests, span }: { shown: string; requests: boolean; span: string }) {
  return (
    <>
      Jobs under <Name text={shown} /> wait {span ? `for ${span}` : "until it is resumed"}.{" "}
      {requests ? "Requests are refused as long." : "Requests still pass: choose 'Also requests' to refuse them, too."}
    </>
  );
}
