// The inbox of failures: failed jobs of the newest failed workflows, which the server groups by error and handler.
import { get, mayAct, withQuery } from "../api";
import { TopBar } from "../frame/top";
import { Empty } from "../parts/empty";
import { FindField, useFind } from "../parts/find";
import { VerbButton, Menu, type Verb } from "../parts/menu";
import { Problem } from "../parts/toasts";
import { Spark } from "../parts/spark";
import { Table } from "../parts/table";
import { cut, many, Name, plain } from "../parts/text";
import { Ago } from "../parts/time";
import { retryNow, usePoll, type Polled } from "../poll";
import { href } from "../router";

export interface FailureGroup {
  readonly handler: string;
  readonly kind: string | null;
  readonly message: string | null;
  readonly jobs: number;
  readonly workflows: number;
  readonly first_at: string;
  readonly last_at: string;
  readonly points: readonly number[];
  /** The newest. */
  readonly sample: { readonly workflow: string; readonly name: string; readonly job: string };
}

interface FailureList {
  readonly until: string;
  readonly items: readonly FailureGroup[];
  readonly workflows: number;
  readonly more: boolean;
  readonly unread: number;
}

export const useFailures = (every = 15_000, wanted = true): Polled<FailureList> => usePoll(wanted ? "v1/failures?range=24h" : null, every);

export function Failures() {
  const { data, error } = useFailures();
  const find = useFind(data?.items, (group) => `${group.handler} ${group.kind} ${group.message}`);
  return (
    <>
      <TopBar title="Failures" />
      <Problem error={error} />
      <section class="panel part" aria-label="List of failures">
        <header><FindField find={find} of="Error or handler" /><span class="note push">{data ? `last 24 h, of ${data.more ? "the newest " : ""}${many(data.workflows, "failed workflow")}${data.unread ? `, ${data.unread} too large to read` : ""}` : ""}</span><a class="small" href={href(["workflows"], { status: "failed" })}>All failed workflows</a></header>
        <Table label="Failures" link rows={find.rows} rowKey={groupKey} failed={error !== null}
          empty={find.empty ?? <Empty icon="check" title="No failed jobs now" text="Jobs stand here for 24 h, or until they are retried." />} columns={[
          { head: "Error", kind: "wide", names: true, cell: (group) => <><a class="bad" href={newestHref(group)}><Name text={group.kind ?? "Unknown"} max={60} /></a> <span class="dim"><Name text={group.message ?? ""} max={200} /></span></> },
          { head: "Handler", kind: "narrow", cell: (group) => <Name text={group.handler} max={40} /> },
          { head: "Jobs", kind: "number", cell: (group) => <b>{group.jobs.toLocaleString("en")}</b> },
          { head: "", kind: "narrow", cell: (group) => <Spark values={group.points} kind="bad" /> },
          { head: "First", kind: "number", cell: (group) => <span class="dim"><Ago at={group.first_at} /></span> },
          { head: "Last", kind: "number", cell: (group) => <span class="dim"><Ago at={group.last_at} /></span> },
          { head: "Newest", cell: (group) => <a href={newestHref(group)}><Name text={`${group.sample.name} / ${group.sample.job}`} max={50} /></a> },
          { head: "", cell: (group) => <Buttons group={group} until={data?.until ?? ""} /> },
        ]} />
      </section>
    </>
  );
}

export const groupKey = ({ handler, kind }: FailureGroup): string => JSON.stringify([handler, kind]);

export const newestHref = ({ sample }: FailureGroup): string => href(["workflows", sample.workflow], { job: sample.job });

/** The filter of all workflows with a job of the group, of any age; those that were created since the drawing are left alone. */
const filterOf = ({ handler, kind }: FailureGroup, until: string) => ({ status: "failed", error: kind, handler, created_before: until });

interface Counted {
  readonly total: number;
  readonly next_cursor?: string | null;
}

/** The question, with the number of workflows that the server has now: the rows are of 24 h. */
async function question(word: string, filter: ReturnType<typeof filterOf>): Promise<string> {
  let total = 0;
  for (let cursor: string | null | undefined; cursor !== null; ) {
    const got: Counted = await get(withQuery("v1/workflows:count", { ...filter, cursor }));
    total += got.total;
    cursor = got.next_cursor ?? null;
  }
  if (total === 0) throw "No workflow has this error now.";
  return `${word} ${many(total, "workflow")}`;
}

function verb(group: FailureGroup, until: string, action: string, word: string, rest: Pick<Verb, "label" | "icon" | "toast" | "confirm" | "danger">): Verb {
  const filter = filterOf(group, until);
  const body = { action, filter, ...(action === "retry" ? { as_of: until } : {}) };
  return { ...rest, call: { method: "POST", path: "v1/workflows:bulk", body }, title: () => question(word, filter), done: retryNow };
}

/** Null where it may not be retried, or its error is lost. */
export const retryVerb = (group: FailureGroup, until: string): Verb | null => (mayAct() && group.kind !== null ? verb(group, until, "retry", "Retry", {
  label: "Retry all",
  icon: "retry",
  toast: (count) => `Retried the failed jobs of ${many(count, "workflow")}.`,
  confirm: "Their failed jobs run again, those of before the last 24 h, too.",
  danger: false,
}) : null);

function Buttons({ group, until }: { group: FailureGroup; until: string }) {
  const retry = retryVerb(group, until);
  if (!retry) return null;
  const remove = verb(group, until, "delete", "Remove", {
    label: "Remove all with this error",
    icon: "trash",
    toast: (count) => `Removed ${many(count, "workflow")}.`,
    confirm: "Their jobs, outputs and logs are deleted. This cannot be undone.",
    danger: true,
  });
  return <span class="row-buttons above"><VerbButton verb={retry} small /><Menu small label={`Actions on ${cut(plain(group.kind ?? ""), 60)}`} verbs={[retry, remove]} /></span>;
}
