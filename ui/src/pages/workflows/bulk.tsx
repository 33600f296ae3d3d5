// One action for all workflows that match the filter of the list, in calls that each take a part.
import { useRef, useState } from "preact/hooks";
import { request, get, mayAct, withQuery, type Call } from "../../api";
import { Curl } from "../../parts/action";
import { keepWords, SPANS } from "../../parts/keep";
import { confirm } from "../../parts/dialog";
import { showToast, showError } from "../../parts/toasts";
import { STATUSES } from "../../parts/state";
import { many as plural } from "../../parts/text";

/** The statuses that each action can change (docs/workflows.md). */
const ACTIONS: Readonly<Record<string, readonly string[]>> = {
  cancel: ["pending", "running", "paused"],
  pause: ["running"],
  resume: ["paused"],
  retry: ["failed", "cancelled"],
  start: ["pending"],
  expire: STATUSES,
  delete: ["pending", "succeeded", "failed", "cancelled"],
};
/** The verbs of the buttons. */
const WORDS: Readonly<Record<string, string>> = { cancel: "Cancel", pause: "Pause", resume: "Resume", retry: "Retry", start: "Start", expire: "Keep for", delete: "Remove" };
const DONE: Readonly<Record<string, string>> = {
  cancel: "Cancelled", pause: "Paused", resume: "Resumed", retry: "Failed jobs run again in", start: "Started", expire: "Set how long to keep", delete: "Removed",
};
/** Those that lose something. */
const RISKY: readonly string[] = ["cancel", "delete"];
/** Workflows in a call: an answer comes within a second. */
const BATCH = 200;

type Filter = Readonly<Record<string, string | undefined>>;

interface Result {
  readonly matched: number;
  readonly done: number;
  readonly failed: readonly { readonly error: { readonly detail: string } }[];
  readonly more: boolean;
  readonly next_cursor: string | null;
  readonly incomplete?: { readonly partitions: readonly number[]; readonly reason: string };
}

/** The statuses of the filter that the action can change. */
function statusesFor(filter: Filter, action: string): string[] {
  const chosen = (filter["status"] ?? "").split(",").filter(Boolean);
  return (ACTIONS[action] ?? []).filter((one) => chosen.length === 0 || chosen.includes(one));
}

/** The filter of the list as a filter of `:bulk`; null if it has a field that `:bulk` does not have. */
function bulkFilter(filter: Filter, action: string): Record<string, unknown> | null {
  if (filter["id_prefix"]) return null;
  const status = statusesFor(filter, action);
  const names = ["q", "name", "tag", "created_after", "created_before"].filter((name) => filter[name]);
  return { status, ...Object.fromEntries(names.map((name) => [name, filter[name]])) };
}

export interface BulkProps {
  readonly filter: Filter;
  /** How many match, by status; null if that is not known. */
  readonly counts: Readonly<Record<string, number>> | null;
  readonly done: () => void;
}

export function Bulk({ filter, counts, done }: BulkProps) {
  const [picked, pick] = useState("cancel");
  const [after, setAfter] = useState("30d");
  const [progress, setProgress] = useState<string | null>(null);
  const stopped = useRef(false);
  // Only what can be done to one of them, or is being done.
  const offered = Object.keys(ACTIONS).filter((one) => counts === null || statusesFor(filter, one).some((status) => counts[status]));
  const action = progress !== null || offered.includes(picked) ? picked : offered[0];
  if (!mayAct() || action === undefined) return null;
  const word = WORDS[action] ?? action;
  const chosen = bulkFilter(filter, action);
  const some = chosen !== null && (chosen["status"] as string[]).length > 0;
  const call = (more: Record<string, unknown>, bounds: Record<string, unknown> = {}): Call => ({
    method: "POST",
    path: "v1/workflows:bulk",
    body: { action, ...(action === "expire" ? { after } : {}), filter: { ...chosen, ...bounds }, limit: BATCH, ...more },
  });
  const run = async (): Promise<void> => {
    const { status, ...rest } = chosen as Record<string, string | undefined> & { status: unknown };
    const words = { ...rest, status: (status as string[]).join(",") };
    const counted = await get<{ total: number; older?: boolean; as_of: string; incomplete?: Result["incomplete"] }>(withQuery("v1/workflows:count", words));
    let hidden = counted.incomplete;
    const unseen = (): string => (hidden ? ` This is not all: ${hidden.partitions.length} partitions of the store do not answer: ${hidden.reason}` : "");
    if (counted.total === 0) return showToast(`No workflow matches that could be changed so.${unseen()}`, "bad");
    const many = `${counted.older ? "at least " : ""}${plural(counted.total, "workflow")}`;
    const about = Object.entries(words).filter(([, value]) => value).map(([name, value]) => `${name}: ${value}`).join("; ");
    const title = action === "expire" ? `Keep ${many} ${keepWords(after)}` : `${word} ${many}`;
    if (!(await confirm(`${title}?`, <><p><bdi>{about}</bdi></p>{action === "delete" ? <p>Their jobs, outputs and logs are deleted. This cannot be undone.</p> : null}</>, title))) return;
    stopped.current = false;
    // Those that are created from now on were not counted.
    const bounds = rest["created_before"] && rest["created_before"] < counted.as_of ? {} : { created_before: counted.as_of };
    let [made, failed, why] = [0, 0, ""];
    for (let cursor: string | null = null; !stopped.current; ) {
      const got: Result = await request<Result>(call(cursor ? { cursor } : {}, bounds));
      made += got.done;
      hidden = got.incomplete ?? hidden;
      failed += got.failed.length;
      why = got.failed[0]?.error.detail ?? why;
      setProgress(`${made.toLocaleString("en")} of ${many}`);
      cursor = got.next_cursor;
      if (!got.more || cursor === null) break;
    }
    showToast(`${DONE[action] ?? word} ${made.toLocaleString("en")} of ${many}.${failed > 0 ? ` ${failed} were refused, such as: ${why}` : ""}${unseen()}`, failed > 0 || hidden ? "bad" : "good");
    done();
  };
  const start = (): void => {
    setProgress("…");
    run().catch(showError).finally(() => setProgress(null));
  };
  return (
    <div class="buttons" role="group" aria-label="Action for all that match">
      <label>All that match:
        <select value={action} onChange={(event) => pick(event.currentTarget.value)} disabled={progress !== null}>
          {(progress === null ? offered : [action]).map((one) => <option key={one} value={one}>{WORDS[one] ?? one}</option>)}
        </select>
      </label>
      {action === "expire" ? (
        <select aria-label="Keep for" value={after} onChange={(event) => setAfter(event.currentTarget.value)}>{SPANS.map((one) => <option key={one} value={one}>{keepWords(one)}</option>)}</select>
      ) : null}
      <span class="action">
        <button type="button" class={RISKY.includes(action) ? "danger" : undefined} disabled={!some || progress !== null} onClick={start}>{word}…</button>
        <Curl call={call({})} label={`${word} all that match`} disabled={!some}
          note={`This changes at most ${BATCH} workflows. While the answer has "more": true, repeat it with "cursor": its next_cursor.`} />
      </span>
      {progress === null ? null : <><span role="status">{progress}</span> <button class="small" onClick={() => (stopped.current = true)}>Stop</button></>}
      {chosen === null ? <span class="dim">Not with the beginning of an ID</span> : some ? null : <span class="dim">{word}: no workflow with this status can be changed so</span>}
    </div>
  );
}
