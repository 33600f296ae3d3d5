// Pausing, scaling and resuming limits and keys: the dialog, the calls, and their undoing.
import { signal } from "@preact/signals";
import { curl, mayAct, request, unreachable, withQuery, type Call } from "../../api";
import { confirm } from "../../parts/dialog";
import { Icon } from "../../parts/icon";
import { Name } from "../../parts/text";
import { RelativeTime, Time } from "../../parts/time";
import { showError, showToast } from "../../parts/toasts";
import { retryNow } from "../../poll";
import { entriesText } from "./known";
import type { Override } from "./model";
import { isKey, noPair, pairs, pairsText, type Pairs } from "./subject";

interface Draft {
  readonly effect: "pause" | "scale";
  readonly domain: string;
  readonly entries: string;
  /** About all keys of this limit, and not about one key. */
  readonly rule: string;
  readonly span: string;
  readonly scale: string;
  readonly requests: boolean;
  readonly reason: string;
}

const EMPTY: Draft = { effect: "pause", domain: "", entries: "", rule: "", span: "10m", scale: "0.5", requests: false, reason: "" };
const SPANS: readonly (readonly [string, string])[] = [["10m", "10 min"], ["1h", "1 hour"], ["1d", "1 day"], ["", "until resumed"]];
const draft = signal<Draft>(EMPTY);

function putCall({ effect, domain, entries, rule, span, scale, requests, reason }: Draft): Call {
  const subject = rule ? { rule } : { domain, entries: pairs(entries) };
  const what = effect === "scale" ? { scale: Number(scale) } : { pause: true, ...(requests ? { gateway: true } : {}) };
  return { method: "PUT", path: "v1/limits/overrides", body: { ...subject, ...what, ...(span ? { for: span } : {}), ...(reason ? { reason } : {}) } };
}

const deleteCall = (one: Pick<Override, "effect" | "rule" | "domain" | "entries">): Call => ({
  method: "DELETE",
  path: withQuery("v1/limits/overrides", { rule: one.rule, domain: one.domain, entries: one.entries ? JSON.stringify(one.entries) : null, effect: one.effect }),
});

/** The call that makes it again, for as long as it would have held. */
function againCall({ rule, domain, entries, effect, scale, gateway, until, reason }: Override): Call {
  const left = until ? { for: `${Math.max(Math.ceil((Date.parse(until) - Date.now()) / 1000), 1)}s` } : {};
  const what = effect === "scaled" ? { scale } : { pause: true, gateway };
  return { method: "PUT", path: "v1/limits/overrides", body: { ...(rule ? { rule } : { domain, entries }), ...what, ...left, reason } };
}

async function act(call: Call, words: string, undo?: Call): Promise<void> {
  try {
    await request(call);
    showToast(words, "good", undo && (() => void act(undo, "Undone.")));
  } catch (error) {
    showError(error);
  }
  retryNow();
}

export const subjectOf = (one: Override): string => one.rule ?? `${one.domain ?? ""} ${entriesText(one.entries ?? [])}`;

export function Resume({ one, word = one.effect === "scaled" ? "Remove" : "Resume" }: { one: Override; word?: string }) {
  if (!mayAct()) return null;
  const words = one.effect === "scaled" ? "Scaling removed." : "Resumed.";
  // A pause that a service asked for cannot be made by hand.
  const undo = one.effect === "throttled" ? undefined : againCall(one);
  return <button class="small" disabled={unreachable.value !== null} aria-label={`${word} ${subjectOf(one)}`} onClick={() => void act(deleteCall(one), words, undo)}>{word}</button>;
}

/** Opens the dialog with a limit, a key of it, or nothing filled in. */
export async function override(effect: Draft["effect"], domain = "", entries: Pairs = [], rule = ""): Promise<void> {
  const key = isKey(entries);
  draft.value = { ...EMPTY, effect, domain, entries: key ? pairsText(entries) : "", rule: key ? "" : rule };
  if (!(await confirm(effect === "pause" ? "Pause a limit or key" : "Scale a limit or key", <Form />, effect === "pause" ? "Pause" : "Scale", false))) return;
  const made = draft.value;
  const undo = deleteCall({ effect: made.effect === "scale" ? "scaled" : "paused", ...(made.rule ? { rule: made.rule } : { domain: made.domain, entries: pairs(made.entries) }) });
  await act(putCall(made), made.effect === "scale" ? "Scaled." : made.requests ? "Paused for jobs and requests." : "Paused for jobs.", undo);
}

function Form() {
  const made = draft.value;
  const put = (name: keyof Draft) => (event: { currentTarget: HTMLInputElement | HTMLSelectElement }) => (draft.value = { ...draft.value, [name]: event.currentTarget.value });
  const wrong = made.rule ? null : noPair(made.entries);
  return (
    <>
      <div class="fields">
        <label>Domain <input name="domain" required={made.rule === ""} disabled={made.rule !== ""} value={made.domain} onInput={put("domain")} /></label>
        <label>Entries <input name="entries" required={made.rule === ""} disabled={made.rule !== ""} pattern="\s*\[.*|[^=,]+=[^,]*(,[^=,]+=[^,]*)*" title="keys with values, such as tenant=acme" placeholder="tenant=acme" value={made.entries} onInput={put("entries")} /></label>
        <label>or all keys of <input name="rule" placeholder="vendor.tenant" value={made.rule} onInput={put("rule")} /></label>
        <label>For <select name="span" value={made.span} onChange={put("span")}>{SPANS.map(([value, word]) => <option key={value} value={value}>{word}</option>)}</select></label>
        {made.effect === "scale" ? <label>Scale by <input name="scale" type="number" required min="0.001" max="1000" step="any" value={made.scale} onInput={put("scale")} /></label> : null}
        <label>Reason <input name="reason" value={made.reason} onInput={put("reason")} /></label>
      </div>
      {wrong === null ? null : <span class="problem">'<Name text={wrong} max={40} />' is not a key with a value: write tenant=acme</span>}
      {made.effect === "pause" ? (
        <>
          <label><input type="checkbox" name="requests" checked={made.requests} onChange={(event) => (draft.value = { ...draft.value, requests: event.currentTarget.checked })} /> Also requests</label>
          <p>Jobs wait. {made.requests ? "Requests are refused, too." : "Requests still pass."}</p>
        </>
      ) : <p>The hits that it allows are multiplied by this.</p>}
      <pre class="curl" tabIndex={0} role="region" aria-label="curl line">{curl(putCall(made))}</pre>
    </>
  );
}

/** `until 13:42 (in 9 min)`, in words. */
const Until = ({ at }: { at: string | null }) => (at ? <>until <Time at={at} /> (<RelativeTime at={at} />)</> : <>until resumed</>);

/** The author of an override, its subject, its end and its reason. */
export function OverrideLine({ one }: { one: Override }) {
  return (
    <>
      {one.effect === "scaled" ? `Scaled × ${one.scale ?? ""}` : one.effect === "throttled" ? "Throttled" : "Paused"} by <b><Name text={one.by} max={30} /></b>{" "}
      for {one.gateway ? "requests and jobs" : "jobs"} <Until at={one.until} />{one.reason ? <>: “<Name text={one.reason} max={80} />”</> : null}
    </>
  );
}

export function OverrideIcon({ one }: { one: Override }) {
  return <span class="hold"><Icon name={one.effect === "scaled" ? "scale" : "bars"} /></span>;
}
