// Runs a workflow of two jobs through the generated client. Argument: the address of a server.
import assert from "node:assert/strict";
import createClient from "openapi-fetch";
import type { components, paths } from "./tidegate.js";

type Schemas = components["schemas"];

const client = createClient<paths>({ baseUrl: process.argv[2] ?? "" });

/** The data of an answer that must be a success. */
function found<T>(answer: { data?: T; error?: Schemas["Problem"] }): T {
  assert(answer.data !== undefined, JSON.stringify(answer.error));
  return answer.data;
}

const jobs: Schemas["JobDefinition"][] = [
  { handler: "first", params: { size: 1 } },
  { handler: "second", after: "first" },
];
const created = found(await client.POST("/v1/workflows", { body: { name: "typescript", jobs } }));
assert.deepEqual([created.status, created.existing], ["running", false]);

const claim: Schemas["Claim"] = { queues: ["default"], worker: "typescript" };
const [claimed] = found(await client.POST("/v1/jobs/claim", { body: claim })).jobs;
assert(claimed);
assert.deepEqual([claimed.job, claimed.params, claimed.workflow_id], ["first", { size: 1 }, created.id]);

const report: Schemas["Report"] = { lease: claimed.lease, outcome: "succeeded", output: { bytes: 7 } };
const reported = found(await client.POST("/v1/jobs/report", { body: { reports: [report], claim } }));
assert.deepEqual([reported.reports[0]?.status, reported.reports[0]?.job_state], [200, "succeeded"]);
assert.deepEqual(reported.jobs[0]?.inputs[0]?.output, { bytes: 7 });

const again: Schemas["Report"] = { lease: "nonsense", outcome: "succeeded" };
const [refused] = found(await client.POST("/v1/jobs/report", { body: { reports: [again] } })).reports;
assert.deepEqual([refused?.status, refused?.error?.code], [422, "invalid_field"]);

const place = { path: { id: created.id }, query: { view: "full" as const } };
const shown = found(await client.GET("/v1/workflows/{id}", { params: place }));
assert.deepEqual([shown.job_counts.succeeded, shown.jobs?.[0]?.output, shown.finished_at], [1, { bytes: 7 }, null]);

const page = found(await client.GET("/v1/workflows", { params: { query: { name: "typescript", limit: 10 } } }));
assert.deepEqual([page.items.map((item) => item.id), page.next_cursor], [[created.id], null]);

const wrong = await client.POST("/v1/workflows", { body: { name: "wrong", jobs: [{ handler: "a", after: ["b"] }] } });
assert(wrong.error);
assert.deepEqual([wrong.error.status, wrong.error.code, wrong.error.path], [422, "unknown_dependency", "jobs[0].after[0]"]);
assert.equal(typeof wrong.error.request_id, "string");
