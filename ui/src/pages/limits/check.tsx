// A form that shows the server's decision about a request.
import { useState } from "preact/hooks";
import { request, get, ApiError, withQuery, type Call } from "../../api";
import { Curl } from "../../parts/action";
import { Problem } from "../../parts/toasts";
import { Table } from "../../parts/table";
import { Name } from "../../parts/text";
import { Duration } from "../../parts/time";
import { keyText } from "../overview/top";
import { perUnit } from "./model";
import { CHECK_FORM, checking, noPair, pairs } from "./subject";

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

interface CheckResult {
  readonly domain: string;
  /** Null where it does not matter. */
  readonly configured: boolean | null;
  readonly answer: Answer;
}

const refusal = (error: unknown): ApiError => (error instanceof ApiError ? error : new ApiError(0, "unknown", String(error)));

async function isConfigured(domain: string): Promise<boolean> {
  try {
    await get(withQuery("v1/limits/configuration", { domain, limit: 1 }));
    return true;
  } catch (error) {
    if (error instanceof ApiError && error.status === 404) return false;
    throw error;
  }
}

/** Requests without a limit pass. Then the name of the domain may be wrong, so it is looked up. */
async function check(call: Call, domain: string): Promise<CheckResult> {
  const answer = await request<Answer>(call);
  const free = answer.descriptors.some((one) => one.limit === null);
  return { domain, answer, configured: free ? await isConfigured(domain) : null };
}

const ANSWERS: Readonly<Record<string, string>> = { ok: "Would be allowed", over_limit: "Would be refused" };
const freeWords = (configured: boolean | null): string => (configured === false ? "No limit applies: the domain is not configured" : "No limit applies");

/** The form, and the decision. A check charges nothing. */
export function Check() {
  const { domain, entries } = checking.value;
  const set = (name: string) => (event: { currentTarget: HTMLInputElement }) => (checking.value = { ...checking.value, [name]: event.currentTarget.value });
  const [answer, setAnswer] = useState<CheckResult | ApiError | null>(null);
  const list = pairs(entries).map(([key, value]) => ({ key, value }));
  const call: Call = { method: "POST", path: "v1/limits/check", body: { domain, descriptors: [{ entries: list }] } };
  const send = (event: Event): void => {
    event.preventDefault();
    const wrong = noPair(entries);
    if (wrong !== null) return setAnswer(new ApiError(0, "no_pair", `'${wrong}' is not a key with a value: write tenant=acme`));
    check(call, domain).then(setAnswer, (error: unknown) => setAnswer(refusal(error)));
  };
  return (
    <section aria-label="Test a request">
      <h2>Test a request <span class="dim small">does not count</span></h2>
      <form id={CHECK_FORM} class="filters" onSubmit={send}>
        <label>Domain <input name="domain" required value={domain} onInput={set("domain")} /></label>
        <label>Entries <input name="entries" required placeholder="tenant=acme, path=/a" size={30} value={entries} onInput={set("entries")} /></label>
        <span class="action"><button class="main-act">Test</button><Curl call={call} label="Test" disabled={domain === "" || list.length === 0} /></span>
      </form>
      {answer instanceof ApiError ? <Problem error={answer} /> : null}
      {answer && !(answer instanceof ApiError) ? (
        <Table label="Answer" rows={answer.answer.descriptors} rowKey={(row) => JSON.stringify(row.entries)} columns={[
          { head: "Key", names: true, cell: (row) => <Name text={keyText(answer.domain, row.entries)} max={120} /> },
          { head: "Answer", cell: (row) => (row.code === "ok" && row.limit === null ? freeWords(answer.configured) : <b class={row.code === "ok" ? "ok" : "bad"}>{ANSWERS[row.code] ?? row.code}</b>) },
          { head: "Limit", cell: (row) => (row.limit ? `${row.limit.requests_per_unit} ${perUnit(row.limit.unit)}` : row.code === "ok" ? "–" : "Paused") },
          { head: "Remaining", kind: "number", cell: (row) => row.remaining ?? "–" },
          { head: "Resets in", kind: "number", cell: (row) => <Duration ms={row.reset_ms} /> },
        ]} />
      ) : null}
    </section>
  );
}
