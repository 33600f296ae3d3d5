// A form that shows the server's decision about a request.
import { useState } from "preact/hooks";
import { request, ApiError, type Call } from "../../api";
import { Curl } from "../../parts/action";
import { Problem } from "../../parts/toasts";
import { State } from "../../parts/state";
import { Usage } from "../../parts/usage";
import { Name } from "../../parts/text";
import { Duration } from "../../parts/time";
import { entriesText, limitHref, limitOf, type KnownLimit } from "./known";
import { perUnit, type Override } from "./model";
import { OverrideLine } from "./override";
import { CHECK_FORM, checking, noPair, pairs } from "./subject";

interface Answer {
  readonly code: string;
  readonly descriptors: readonly {
    readonly entries: readonly (readonly string[])[];
    readonly code: string;
    readonly limit: { readonly name?: string; readonly requests_per_unit: number; readonly unit: string } | null;
    readonly remaining: number | null;
    readonly reset_ms: number | null;
    readonly rule?: string;
    readonly file?: string;
    readonly line?: number;
    readonly used?: number;
    readonly paused?: Override;
    readonly hint?: string;
  }[];
}

const refusal = (error: unknown): ApiError => (error instanceof ApiError ? error : new ApiError(0, "unknown", String(error)));

interface CheckResult {
  readonly domain: string;
  readonly answer: Answer;
}

const ANSWERS: Readonly<Record<string, string>> = { ok: "Would be allowed", over_limit: "Would be refused" };
/** The form, and the decision. A check charges nothing. */
export function Check({ known }: { known: readonly KnownLimit[] }) {
  const { domain, entries } = checking.value;
  const set = (name: string) => (event: { currentTarget: HTMLInputElement }) => (checking.value = { ...checking.value, [name]: event.currentTarget.value });
  const [answer, setAnswer] = useState<CheckResult | ApiError | null>(null);
  const list = pairs(entries).map(([key, value]) => ({ key, value }));
  const call: Call = { method: "POST", path: "v1/limits/check", body: { domain, descriptors: [{ entries: list }] } };
  const send = (event: Event): void => {
    event.preventDefault();
    const wrong = noPair(entries);
    if (wrong !== null) return setAnswer(new ApiError(0, "no_pair", `'${wrong}' is not a key with a value: write tenant=acme`));
    request<Answer>(call).then((got) => setAnswer({ domain, answer: got }), (error: unknown) => setAnswer(refusal(error)));
  };
  return (
    <section class="panel" aria-label="Test a request">
      <header><h2>Test a request</h2><span class="note">does not count</span></header>
      <form id={CHECK_FORM} class="filters body" onSubmit={send}>
        <label>Domain <input name="domain" required size={12} value={domain} onInput={set("domain")} /></label>
        <label>Entries <input name="entries" required placeholder="tenant=acme, path=/a" size={24} value={entries} onInput={set("entries")} /></label>
        <span class="action"><button class="main-act">Test</button><Curl call={call} label="Test" disabled={domain === "" || list.length === 0} /></span>
      </form>
      {answer instanceof ApiError ? <Problem error={answer} /> : null}
      {answer && !(answer instanceof ApiError) ? <div class="answers body" role="status" aria-label="Answer">{answer.answer.descriptors.map((one) => <AnswerRow key={JSON.stringify(one.entries)} one={one} limit={limitOf(known, answer.domain, one.entries)} />)}</div> : null}
    </section>
  );
}

function AnswerRow({ one, limit }: { one: Answer["descriptors"][number]; limit: KnownLimit | null }) {
  if (one.limit === null && one.code === "ok") return <p>No limit applies{one.hint ? <>: <Name text={one.hint} max={200} /></> : null}</p>;
  const total = one.limit?.requests_per_unit;
  return (
    <>
      <p>
        <State state={one.code === "ok" ? "succeeded" : "full"} text={ANSWERS[one.code] ?? one.code} />
        {total !== undefined && one.used !== undefined ? <> <Usage used={Math.min(one.used, total)} limit={total} /></> : null}
        {one.limit ? <span class="dim"> {one.limit.requests_per_unit} {perUnit(one.limit.unit)}</span> : null}
        {one.reset_ms === null ? null : <span class="dim">, resets in <Duration ms={one.reset_ms} /></span>}
      </p>
      {one.paused ? <p><OverrideLine one={one.paused} /></p> : null}
      {one.file ? <p class="dim">Answered by {limit ? <a href={limitHref(limit.domain, limit.entries, one.entries)}><Name text={`${limit.domain} / ${entriesText(limit.entries)}`} max={100} /></a> : <Name text={one.rule ?? ""} max={100} />}, <Name text={[one.file, one.line].filter(Boolean).join(":")} max={100} mono /></p> : null}
    </>
  );
}
