// The bar for selected workflows: it offers only what is possible for all of them.
import type { Call } from "../../api";
import type { Workflow } from "../../model";
import { keepWords } from "../../parts/keep";
import { Icon } from "../../parts/icon";
import { VerbButton, type Verb } from "../../parts/menu";
import { word } from "../../parts/state";
import { many } from "../../parts/text";
import { askSpan } from "../workflow/verbs";

export interface SelectionProps {
  readonly rows: readonly Workflow[];
  /** All rows of the page. */
  readonly all: readonly Workflow[];
  readonly select: (ids: ReadonlySet<string>) => void;
  readonly done: () => void;
}

const workflows = (count: number): string => many(count, "workflow");

function verbsFor(rows: readonly Workflow[], done: () => void): Verb[] {
  const only = (...statuses: string[]): boolean => rows.every(({ status }) => statuses.includes(status));
  const count = rows.length;
  const each = (verb: string, body?: (row: Workflow) => unknown): Call[] =>
    rows.map((row) => ({ method: "POST", path: `v1/workflows/${row.id}:${verb}`, ...(body ? { body: body(row) } : {}) }));
  const found: Verb[] = [];
  if (only("failed", "cancelled")) found.push({ label: `Retry ${count}`, icon: "retry", call: each("retry", (row) => (row.finished_at ? { as_of: row.finished_at } : {})), toast: (made) => `Failed jobs of ${workflows(made)} run again.`, done });
  if (only("pending")) found.push({ label: `Start ${count}`, icon: "play", call: each("start"), toast: (made) => `Started ${workflows(made)}.`, done });
  if (only("running")) found.push({ label: `Pause ${count}`, icon: "bars", call: each("pause"), toast: (made) => `Paused ${workflows(made)}.`, done });
  if (only("paused")) found.push({ label: `Resume ${count}`, icon: "play", call: each("resume"), toast: (made) => `Resumed ${workflows(made)}.`, done });
  if (only("pending", "running", "paused")) found.push({ label: `Cancel ${count}`, icon: "struck", call: each("cancel"), toast: (made) => `Cancelled ${workflows(made)}.`, title: `Cancel ${workflows(count)}`, confirm: "Running jobs are asked to stop, and no others start.", danger: true, done });
  const keep = (after: string): Verb => ({ label: "Keep for", icon: "clock", call: each("expire", () => ({ after })), toast: (made) => `${workflows(made)}: kept ${keepWords(after)} after the end.`, done });
  found.push({ ...keep("30d"), open: () => void askSpan(keep) });
  if (only("pending", "succeeded", "failed", "cancelled")) {
    const call = rows.map((row): Call => ({ method: "DELETE", path: `v1/workflows/${row.id}` }));
    found.push({ label: "Remove", icon: "trash", call, toast: (made) => `Removed ${workflows(made)}.`, title: `Remove ${workflows(count)}`, confirm: "Their jobs, outputs and logs are deleted. This cannot be undone.", danger: true, done });
  }
  return found;
}

export function Selection({ rows, all, select, done }: SelectionProps) {
  if (rows.length === 0) return null;
  const statuses = [...new Set(rows.map(({ status }) => status))];
  const [status = ""] = statuses;
  const same = statuses.length === 1;
  const alike = all.filter((row) => row.status === status);
  const after = (): void => {
    select(new Set());
    done();
  };
  return (
    <div class="selection" role="region" aria-label="Selection">
      <b>{rows.length.toLocaleString("en")} selected</b>
      <span class="dim">{same ? `${rows.length === 2 ? "both " : rows.length > 2 ? "all " : ""}${word(status).toLowerCase()}` : statuses.map((one) => word(one).toLowerCase()).join(", ")}</span>
      {verbsFor(rows, after).map((verb, at) => <VerbButton key={verb.label} verb={verb} main={at === 0 && verb.label.startsWith("Retry")} />)}
      {same && alike.length > rows.length ? <button class="link" onClick={() => select(new Set(alike.map((row) => row.id)))}>Select all {alike.length} {word(status).toLowerCase()}</button> : null}
      <button class="small bare square" aria-label="Clear the selection" onClick={() => select(new Set())}><Icon name="cross" /></button>
    </div>
  );
}
