// Asks what a request would be answered.
import { useState } from "preact/hooks";
import { ask, Refused, type Call } from "../../api";
import { Curl } from "../../parts/action";
import { Problem } from "../../parts/says";
import { Table } from "../../parts/table";
import { Name } from "../../parts/text";
import { Duration } from "../../parts/time";
import { keyText } from "../overview/top";
import { aUnit } from "./model";
import { CHECK_FORM, checking, pairs } from "./subject";

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
export function Check() {
  const { domain, entries } = checking.value;
  const set = (name: string) => (event: { currentTarget: HTMLInputElement }) => (checking.value = { ...checking.value, [name]: event.currentTarget.value });
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
      <form id={CHECK_FORM} class="filters" onSubmit={send}>
        <label>domain <input name="domain" data-filter required value={domain} onInput={set("domain")} /></label>
        <label>entries <input name="entries" required placeholder="tenant=acme, path=/a" size={30} value={entries} onInput={set("entries")} /></label>
        <span class="action"><button class="primary">Check</button><Curl call={call} label="Check" /></span>
        <span class="dim">nothing is charged</span>
      </form>
      {answer instanceof Refused ? <Problem error={answer} /> : null}
      {answer && !(answer instanceof Refused) ? (
        <Table label="Answer" rows={answer.descriptors} rowKey={(row) => JSON.stringify(row.entries)} columns={[
          { head: "key", names: true, cell: (row) => <Name text={keyText(domain, row.entries)} most={120} /> },
          { head: "answer", cell: (row) => <b class={row.code === "ok" ? "s-succeeded" : "s-failed"}>{row.code}</b> },
          { head: "limit", cell: (row) => (row.limit ? `${row.limit.requests_per_unit} ${aUnit(row.limit.unit)}` : "none: it is let through") },
          { head: "remaining", kind: "number", cell: (row) => row.remaining ?? "–" },
          { head: "until the window ends", kind: "number", cell: (row) => <Duration ms={row.reset_ms} /> },
        ]} />
      ) : null}
    </section>
  );
}
