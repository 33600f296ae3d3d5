// The verbs that are possible for a workflow now.
import { mayAct, mayStart, type Call } from "../../api";
import type { Workflow } from "../../model";
import { confirm } from "../../parts/dialog";
import { keepWords, SPANS } from "../../parts/keep";
import { perform, type Verb } from "../../parts/menu";

/** Those that stand outside of the menu. */
export const MAIN: readonly string[] = ["Start", "Retry failed", "Resume", "Pause"];

/** The likeliest first. */
export function verbsOf(workflow: Workflow, done: () => void, removed: () => void = done): Verb[] {
  const { id, status, finished_at, job_counts } = workflow;
  const post = (verb: string, body?: unknown): Call => ({ method: "POST", path: `v1/workflows/${id}:${verb}`, ...(body === undefined ? {} : { body }) });
  const is = (...words: string[]): boolean => words.includes(status);
  const found: Verb[] = [];
  if (is("pending") && mayStart()) found.push({ label: "Start", icon: "play", call: post("start"), toast: "Started.", done });
  if (!mayAct()) return found;
  if (is("failed", "cancelled")) found.push({ label: "Retry failed", icon: "retry", call: post("retry", finished_at ? { as_of: finished_at } : undefined), toast: "Failed and cancelled jobs run again.", done });
  if (is("paused")) found.push({ label: "Resume", icon: "play", call: post("resume"), toast: "Resumed.", undo: post("pause"), done });
  if (is("running")) found.push({ label: "Pause", icon: "bars", call: post("pause"), toast: "Paused.", undo: post("resume"), done });
  if (is("pending", "running", "paused")) {
    const running = job_counts["running"] ?? 0;
    found.push({ label: "Cancel", icon: "struck", call: post("cancel"), toast: "Cancelled.", title: "Cancel the workflow", confirm: `${running === 0 ? "No job starts" : "Running jobs are asked to stop, and no others start"}.`, danger: true, done });
  }
  const keep = (after: string): Verb => ({ label: "Keep for", icon: "clock", call: post("expire", { after }), toast: `It is kept ${keepWords(after)} after its end.`, done });
  found.push({ ...keep("30d"), open: () => void askSpan(keep) });
  if (is("pending", "succeeded", "failed", "cancelled")) {
    found.push({ label: "Remove", icon: "trash", call: { method: "DELETE", path: `v1/workflows/${id}` }, toast: "Removed.", title: "Remove the workflow", confirm: "Its jobs, outputs and logs are deleted. This cannot be undone.", danger: true, done: removed });
  }
  return found;
}

export async function askSpan(keep: (after: string) => Verb): Promise<void> {
  let after = "30d";
  const body = (
    <select aria-label="How long it is kept" defaultValue={after} onChange={(event) => (after = event.currentTarget.value)}>
      {SPANS.map((one) => <option key={one} value={one}>{keepWords(one).replace(/^for /, "")}</option>)}
    </select>
  );
  if (await confirm("How long is it kept after its end?", body, "Keep", false)) await perform(keep(after));
}
