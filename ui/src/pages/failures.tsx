// The inbox of failures: failed jobs of the newest failed workflows, grouped by error.
import { useEffect, useState } from "preact/hooks";
import { get, mayAct, path, ApiError, withQuery, type Call } from "../api";
import { TopBar } from "../frame/top";
import { Empty } from "../parts/empty";
import { FindField, useFind } from "../parts/find";
import { VerbButton, forEachOf, Menu, type Verb } from "../parts/menu";
import { Problem } from "../parts/toasts";
import { Table } from "../parts/table";
import { cut, Name, plain } from "../parts/text";
import { Ago } from "../parts/time";
import { usePoll } from "../poll";
import { href } from "../router";
import type { Job, Page, Workflow } from "../model";

/** Most workflows that are read, and most jobs of each. Only the newest failures are shown. */
const MAX_WORKFLOWS = 100;
const MAX_JOBS = 20;

interface Failure {
  readonly workflow: Workflow;
  readonly job: Job;
}

interface FailureGroup {
  readonly key: string;
  readonly handler: string;
  readonly kind: string;
  readonly message: string;
  readonly failures: readonly Failure[];
}

/** Numbers and ids differ from one failure to the next of the same kind. */
const alike = (text: string): string => text.slice(0, 400).replace(/[0-9a-f]{8,}|[0-9A-Z]{20,}|\d+/gi, "#");

const when = (failure: Failure | undefined): number => Date.parse(failure?.job.finished_at ?? failure?.workflow.finished_at ?? "") || 0;

/** The latest first, of the groups and in each of them. */
function grouped(failures: readonly Failure[]): FailureGroup[] {
  const groups = new Map<string, Failure[]>();
  for (const failure of failures) {
    const { error } = failure.job;
    const key = JSON.stringify([failure.job.handler, error?.kind ?? "", alike(error?.message ?? "")]);
    groups.set(key, [...(groups.get(key) ?? []), failure]);
  }
  return [...groups].map(([key, all]) => {
    const [first] = all.sort((one, other) => when(other) - when(one)) as [Failure];
    const { error } = first.job;
    return { key, handler: first.job.handler, kind: error?.kind ?? "", message: error?.message ?? "", failures: all };
  }).sort((one, other) => when(other.failures[0]) - when(one.failures[0]));
}

export function Failures() {
  const list = usePoll<Page<Workflow>>(withQuery("v1/workflows", { status: "failed", limit: MAX_WORKFLOWS }), 5000);
  const [failures, put] = useState<readonly Failure[] | null>(null);
  const [error, fail] = useState<ApiError | null>(null);
  const workflows = list.data?.items;
  useEffect(() => {
    if (!workflows) return;
    const ended = new AbortController();
    const found: Failure[] = [];
    const readJobs = async (workflow: Workflow): Promise<void> => {
      const jobs = await get<Page<Job>>(withQuery(path("v1/workflows", [workflow.id], "/jobs"), { state: "failed", limit: MAX_JOBS }), ended.signal);
      for (const job of jobs.items) found.push({ workflow, job });
    };
    forEachOf(workflows, (workflow) => readJobs(workflow).catch((problem: unknown) => {
      // It may have been removed meanwhile.
      if (!(problem instanceof ApiError && problem.status === 404)) throw problem;
    })).then(() => (put(found), fail(null)), (problem: unknown) => {
      if (!ended.signal.aborted) fail(problem instanceof ApiError ? problem : new ApiError(0, "unknown", String(problem)));
    });
    return () => ended.abort();
  }, [workflows]);
  const find = useFind(failures ? grouped(failures) : null, (group) => `${group.handler} ${group.kind} ${group.message}`);
  const jobs = failures?.length ?? 0;
  return (
    <>
      <TopBar title="Failures" />
      <Problem error={list.error ?? error} />
      <section class="panel part" aria-label="List of failures">
        <header><FindField find={find} /><span class="note push">{failures === null ? "" : `${many(jobs, "failed job")} of the ${MAX_WORKFLOWS} newest failed workflows`}</span><a class="small" href={href(["workflows"], { status: "failed" })}>All failed workflows</a></header>
        <Table label="Failures" link rows={find.rows} rowKey={(group) => group.key} failed={(list.error ?? error) !== null}
          empty={find.empty ?? <Empty icon="check" title="No failures" text="No workflow that is kept has failed." />} columns={[
          { head: "Error", kind: "wide", names: true, cell: (group) => <><a class="bad" href={where(group.failures[0] as Failure)}><Name text={group.kind || "Unknown"} max={60} /></a> <span class="dim"><Name text={group.message} max={200} /></span></> },
          { head: "Handler", kind: "narrow", cell: (group) => <Name text={group.handler} max={40} /> },
          { head: "Jobs", kind: "number", cell: (group) => <b>{group.failures.length}</b> },
          { head: "First", kind: "number", cell: (group) => <span class="dim"><Ago at={group.failures.at(-1)?.job.finished_at} /></span> },
          { head: "Last", kind: "number", cell: (group) => <span class="dim"><Ago at={group.failures[0]?.job.finished_at} /></span> },
          { head: "Newest", cell: (group) => <Newest of={group.failures[0] as Failure} /> },
          { head: "", cell: (group) => <Buttons group={group} done={list.again} /> },
        ]} />
      </section>
    </>
  );
}

const where = ({ workflow, job }: Failure): string => href(["workflows", workflow.id], { job: job.name });

const Newest = ({ of }: { of: Failure }) => <a href={where(of)}><Name text={`${of.workflow.name} / ${of.job.name}`} max={50} /></a>;

function Buttons({ group, done }: { group: FailureGroup; done: () => void }) {
  if (!mayAct()) return null;
  const { failures } = group;
  // Only this failure: the same call later runs nothing again.
  const retry: Verb = {
    label: `Retry ${failures.length}`,
    icon: "retry",
    call: failures.map(({ workflow, job }): Call => ({
      method: "POST",
      path: path(path("v1/workflows", [workflow.id], "/jobs"), [job.name], ":retry"),
      body: job.finished_at ? { as_of: job.finished_at } : {},
    })),
    toast: (count) => `Retried ${many(count, "job")}.`,
    done,
  };
  const ids = [...new Set(failures.map(({ workflow }) => workflow.id))];
  const remove: Verb = {
    label: `Remove ${many(ids.length, "workflow")}`,
    icon: "trash",
    call: ids.map((id): Call => ({ method: "DELETE", path: path("v1/workflows", [id]) })),
    toast: (count) => `Removed ${many(count, "workflow")}.`,
    confirm: "Their jobs, outputs and logs are deleted. This cannot be undone.",
    danger: true,
    done,
  };
  return <span class="row-buttons above"><VerbButton verb={retry} small /><Menu small label={`Actions on ${cut(plain(group.kind), 60)}`} verbs={[retry, remove]} /></span>;
}

const many = (count: number, noun: string): string => `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
