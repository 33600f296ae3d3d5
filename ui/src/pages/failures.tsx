// The inbox of failures: failed jobs of the newest failed workflows, grouped by error.
import { useEffect, useState } from "preact/hooks";
import { request, get, mayAct, path, ApiError, withQuery, type Call } from "../api";
import { TopBar } from "../frame/top";
import { Curl } from "../parts/action";
import { confirm } from "../parts/dialog";
import { FindField, useFind } from "../parts/find";
import { Problem, showToast, showError } from "../parts/toasts";
import { Table } from "../parts/table";
import { Name } from "../parts/text";
import { Ago } from "../parts/time";
import { usePoll } from "../poll";
import { href } from "../router";
import type { Job, Page, Workflow } from "../model";

/** Most workflows that are read, and most jobs of each. Only the newest failures are shown. */
const MAX_WORKFLOWS = 100;
const MAX_JOBS = 20;
/** Calls that are made at a time. */
const MAX_CALLS = 4;

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

function grouped(failures: readonly Failure[]): FailureGroup[] {
  const groups = new Map<string, Failure[]>();
  for (const failure of failures) {
    const error = failure.job.errors?.at(-1);
    const key = JSON.stringify([failure.job.handler, error?.kind ?? "", alike(error?.message ?? "")]);
    groups.set(key, [...(groups.get(key) ?? []), failure]);
  }
  return [...groups].map(([key, all]) => {
    const first = all[0] as Failure;
    const error = first.job.errors?.at(-1);
    return { key, handler: first.job.handler, kind: error?.kind ?? "", message: error?.message ?? "", failures: all };
  }).sort((one, other) => other.failures.length - one.failures.length);
}

/** Calls `act` for each element, at most `MAX_CALLS` at a time. */
async function forEachOf<T>(all: readonly T[], act: (one: T) => Promise<void>): Promise<void> {
  const left = [...all];
  await Promise.all(Array.from({ length: MAX_CALLS }, async () => {
    for (let one = left.shift(); one !== undefined; one = left.shift()) await act(one);
  }));
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
      await forEachOf(jobs.items, async (job) => {
        const whole = await get<Job>(path(path("v1/workflows", [workflow.id], "/jobs"), [job.name]), ended.signal);
        found.push({ workflow, job: whole });
      });
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
  return (
    <>
      <TopBar title="Failures" />
      <p class="filters dim">Failed jobs of the {MAX_WORKFLOWS} newest failed workflows, grouped by error. <a href={href(["workflows"], { status: "failed" })}>All failed workflows</a></p>
      <FindField find={find} />
      <Problem error={list.error ?? error} />
      <Table label="Failures" rows={find.rows} rowKey={(group) => group.key} failed={(list.error ?? error) !== null} empty={find.empty ?? "No workflow has failed"} columns={[
        { head: "Jobs", kind: "number", cell: (group) => group.failures.length },
        { head: "Handler", names: true, cell: (group) => <Name text={group.handler} max={40} /> },
        { head: "Error", kind: "wide", cell: (group) => <><b><Name text={group.kind} max={60} /></b> <Name text={group.message} max={200} /></> },
        { head: "Newest", cell: (group) => <Latest group={group} /> },
        { head: "", cell: (group) => <Buttons group={group} done={list.again} /> },
      ]} />
    </>
  );
}

function Latest({ group }: { group: FailureGroup }) {
  return <>{group.failures.slice(0, 3).map(({ workflow, job }) => (
    <div key={`${workflow.id} ${job.name}`}>
      <a href={href(["workflows", workflow.id], { job: job.name })}><Name text={`${workflow.name} / ${job.name}`} max={50} /></a> <Ago at={workflow.finished_at} />
    </div>
  ))}</>;
}

function Buttons({ group, done }: { group: FailureGroup; done: () => void }) {
  const [busy, setBusy] = useState(false);
  if (!mayAct()) return null;
  const act = (verb: string, question: string, calls: readonly Call[], summary: (count: number) => string) => async (): Promise<void> => {
    if (!(await confirm(verb, question, verb))) return;
    setBusy(true);
    let count = 0;
    try {
      await forEachOf(calls, async (call) => {
        await request(call).then(() => count++, (problem: unknown) => {
          // Another user has done it.
          if (!(problem instanceof ApiError && (problem.status === 409 || problem.status === 404))) throw problem;
        });
      });
      showToast(summary(count));
    } catch (problem) {
      showError(problem);
    }
    setBusy(false);
    done();
  };
  // Only this failure: the same call later runs nothing again.
  const retry = group.failures.map(({ workflow, job }): Call => ({
    method: "POST",
    path: path(path("v1/workflows", [workflow.id], "/jobs"), [job.name], ":retry"),
    body: job.finished_at ? { as_of: job.finished_at } : {},
  }));
  const ids = [...new Set(group.failures.map(({ workflow }) => workflow.id))];
  const remove = ids.map((id): Call => ({ method: "DELETE", path: path("v1/workflows", [id]) }));
  const [jobs, workflows] = [many(retry.length, "job"), many(remove.length, "workflow")];
  return (
    <span class="buttons">
      <span class="action">
        <button disabled={busy} onClick={act(`Retry ${jobs}`, "They run again, and their workflows go on.", retry, (count) => `Retried ${many(count, "job")}.`)}>Retry</button>
        <Curl call={retry} label="Retry" />
      </span>
      <span class="action">
        <button class="danger" disabled={busy} onClick={act(`Remove ${workflows}`, "Their jobs, outputs and logs are deleted. This cannot be undone.", remove, (count) => `Removed ${many(count, "workflow")}.`)}>Remove</button>
        <Curl call={remove} label="Remove" />
      </span>
    </span>
  );
}

const many = (count: number, noun: string): string => `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
