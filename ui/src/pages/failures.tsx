// The inbox of failures: failed jobs of the newest failed workflows, which the server groups by error and handler.
import { mayAct, type Call } from "../api";
import { TopBar } from "../frame/top";
import { Empty } from "../parts/empty";
import { FindField, useFind } from "../parts/find";
import { VerbButton, Menu, type Verb } from "../parts/menu";
import { Problem } from "../parts/toasts";
import { Spark } from "../parts/spark";
import { Table } from "../parts/table";
import { cut, Name, plain } from "../parts/text";
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
  readonly items: readonly FailureGroup[];
  readonly workflows: number;
  readonly more: boolean;
  readonly unread: number;
}

export const useFailures = (every = 5000, wanted = true): Polled<FailureList> => usePoll(wanted ? "v1/failures?range=24h" : null, every);

export function Failures() {
  const { data, error } = useFailures();
  const find = useFind(data?.items, (group) => `${group.handler} ${group.kind} ${group.message}`);
  return (
    <>
      <TopBar title="Failures" />
      <Problem error={error} />
      <section class="panel part" aria-label="List of failures">
        <header><FindField find={find} /><span class="note push">{data ? `last 24 h, of ${data.more ? "the newest " : ""}${many(data.workflows, "failed workflow")}${data.unread ? `, ${data.unread} too large to read` : ""}` : ""}</span><a class="small" href={href(["workflows"], { status: "failed" })}>All failed workflows</a></header>
        <Table label="Failures" link rows={find.rows} rowKey={groupKey} failed={error !== null}
          empty={find.empty ?? <Empty icon="check" title="No failures" text="No job failed in the last 24 h." />} columns={[
          { head: "Error", kind: "wide", names: true, cell: (group) => <><a class="bad" href={newestHref(group)}><Name text={group.kind ?? "Unknown"} max={60} /></a> <span class="dim"><Name text={group.message ?? ""} max={200} /></span></> },
          { head: "Handler", kind: "narrow", cell: (group) => <Name text={group.handler} max={40} /> },
          { head: "Jobs", kind: "number", cell: (group) => <b>{group.jobs.toLocaleString("en")}</b> },
          { head: "", kind: "narrow", cell: (group) => <Spark values={group.points} kind="bad" /> },
          { head: "First", kind: "number", cell: (group) => <span class="dim"><Ago at={group.first_at} /></span> },
          { head: "Last", kind: "number", cell: (group) => <span class="dim"><Ago at={group.last_at} /></span> },
          { head: "Newest", cell: (group) => <a href={newestHref(group)}><Name text={`${group.sample.name} / ${group.sample.job}`} max={50} /></a> },
          { head: "", cell: (group) => <Buttons group={group} /> },
        ]} />
      </section>
    </>
  );
}

export const groupKey = ({ handler, kind }: FailureGroup): string => JSON.stringify([handler, kind]);

export const newestHref = ({ sample }: FailureGroup): string => href(["workflows", sample.workflow], { job: sample.job });

/** An action on all workflows with a job of the group. */
const bulk = ({ handler, kind }: FailureGroup, action: string): Call => ({ method: "POST", path: "v1/workflows:bulk", body: { action, filter: { status: "failed", error: kind, handler } } });

/** Null where it may not be retried, or its error is lost. */
export const retryVerb = (group: FailureGroup): Verb | null => (mayAct() && group.kind !== null ? {
  label: `Retry ${group.jobs.toLocaleString("en")}`,
  icon: "retry",
  call: bulk(group, "retry"),
  toast: (count) => `Retried the failed jobs of ${many(count, "workflow")}.`,
  done: retryNow,
} : null);

function Buttons({ group }: { group: FailureGroup }) {
  const retry = retryVerb(group);
  if (!retry) return null;
  const remove: Verb = {
    label: `Remove ${many(group.workflows, "workflow")}`,
    icon: "trash",
    call: bulk(group, "delete"),
    toast: (count) => `Removed ${many(count, "workflow")}.`,
    confirm: "Their jobs, outputs and logs are deleted. This cannot be undone.",
    danger: true,
    done: retryNow,
  };
  return <span class="row-buttons above"><VerbButton verb={retry} small /><Menu small label={`Actions on ${cut(plain(group.kind ?? ""), 60)}`} verbs={[retry, remove]} /></span>;
}

const many = (count: number, noun: string): string => `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
