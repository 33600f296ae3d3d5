// A workflow: its graph as it happens, its jobs, and each action.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { checkPage, picture, startBrowser, watchMistakes } from "./parts/browser.mjs";
import { startServer } from "./parts/server.mjs";

let server, browser;
before(async () => {
  server = await startServer();
  browser = await startBrowser();
});
after(async () => {
  await browser?.close();
  server?.stop();
});

const error = { kind: "HTTPError", message: "503 from upstream", trace: "Traceback:\n  line 1\n  line 2" };

/** fetch, 30 pages after it, join; and mail after a rule of its own. */
async function report(queue, more = {}) {
  const pages = Array.from({ length: 30 }, (_, at) => `page-${at}`);
  const { id } = await server.create({
    name: "report",
    tags: ["nightly"],
    globals: { day: "2026-11-24", exact: 1 },
    jobs: [
      { name: "fetch", handler: "http.get", queue, params: { url: "https://example.org" }, retries: 1, backoff: "10ms" },
      ...pages.map((name) => ({ name, handler: "page.render", queue, after: "fetch" })),
      { name: "join", handler: "report.join", queue, after: pages },
      { name: "mail", handler: "mail.send", queue: `${queue}-mail`, after: "join", limits: [{ concurrency: 1, of: "queue" }] },
    ],
    ...more,
  });
  return id;
}

async function half(queue) {
  const id = await report(queue);
  const [first] = await server.claim(queue);
  await server.report({ lease: first.lease, outcome: "failed", error });
  await new Promise((end) => setTimeout(end, 60));
  const [fetch] = await server.claim(queue, 1, { wait: "5s" });
  await server.post("v1/jobs/extend", { leases: [], notes: [{ lease: fetch.lease, log: ["page 1 of 10", "page 2 of 10"] }] });
  await server.report({ lease: fetch.lease, outcome: "succeeded", output: { bytes: 1256, pages: [1, 2, 3] } });
  const pages = await server.claim(queue, 12);
  await server.report(...pages.slice(0, 8).map(({ lease }) => ({ lease, outcome: "succeeded", output: 1 })), { lease: pages[8].lease, outcome: "failed", error, retry: "never" });
  await server.post("v1/jobs/extend", { leases: [], notes: [{ lease: pages[9].lease, progress: { percent: 40, text: "page 4 of 10" }, log: ["began"] }] });
  return { id, running: pages.slice(9), failed: pages[8].job };
}

const jobRow = (page, name) => page.locator('[aria-label="Jobs"] tbody tr', { has: page.locator("th").getByRole("link", { name, exact: true }) });
const stateIs = (page, name, state) => jobRow(page, name).locator(`.pill.${state}`).waitFor();
const statusIs = (page, status) => page.locator(`h1 .pill.${status}`).waitFor();
const panel = (page) => page.locator("aside.drawer");
/** Clicks on the middle of the graph once the named job is there: the canvas moves and listens later than the table is there. */
async function clickCentre(page, name) {
  const canvas = page.locator("canvas");
  while (!(await canvas.getAttribute("title"))?.startsWith(`${name} · `)) {
    await canvas.hover();
    await page.waitForTimeout(20);
  }
  await canvas.click();
}
async function act(place, name) {
  await place.getByRole("button", { name, exact: true }).click();
  const submit = place.page().locator("dialog button[type=submit]");
  await place.page().waitForTimeout(50);
  if (await submit.isVisible()) await submit.click();
}

test("the table and the graph follow what happens within half a second", async () => {
  const id = await report("follow");
  const page = await browser.open(`${server.page}#/workflows/${id}`);
  await stateIs(page, "fetch", "ready");
  await page.locator(".mark.live").waitFor();
  const [job] = await server.claim("follow");
  const began = Date.now();
  await stateIs(page, "fetch", "running");
  assert.ok(Date.now() - began < 1500, `it took ${Date.now() - began} ms`);
  await server.report({ lease: job.lease, outcome: "succeeded" });
  await stateIs(page, "page-29", "ready");
  const colours = await page.locator("canvas").evaluate((canvas) => {
    const context = canvas.getContext("2d");
    const { data } = context.getImageData(0, 0, canvas.width, canvas.height);
    const style = getComputedStyle(document.documentElement);
    const count = (name) => {
      const [r, g, b] = style.getPropertyValue(`--${name}`).trim().slice(1).match(/../g).map((hex) => parseInt(hex, 16));
      let found = 0;
      for (let at = 0; at < data.length; at += 4) if (data[at] === r && data[at + 1] === g && data[at + 2] === b) found++;
      return found;
    };
    return { succeeded: count("ok"), ready: count("dim"), failed: count("bad") };
  });
  assert.ok(colours.succeeded > 50 && colours.ready > 50 && colours.failed < 5, JSON.stringify(colours));
  assert.deepEqual(page.mistakes, []);
});

test("the panel of a job has all that is known of it", async () => {
  const { id, failed } = await half("panel");
  const page = await browser.open(`${server.page}#/workflows/${id}?job=fetch`);
  const shown = panel(page);
  await shown.getByText("page 2 of 10").waitFor();
  for (const text of ["http.get", "2 of 2", '"bytes": 1256', '"url": "https://example.org"', "503 from upstream", "HTTPError"]) {
    assert.ok((await shown.innerText()).includes(text), text);
  }
  await jobRow(page, failed).getByRole("link").first().click();
  await shown.getByText("line 2").waitFor();
  await shown.getByText("fetch", { exact: true }).last().click();
  await shown.getByText('"bytes": 1256').waitFor();
  await jobRow(page, "join").getByRole("link").first().click();
  await shown.getByText("doomed").waitFor();
  await page.getByText("Globals", { exact: true }).click();
  await page.getByText('"day": "2026-11-24"').waitFor();
  await shown.getByRole("button", { name: "close the job" }).click();
  await shown.waitFor({ state: "detached" });
  assert.deepEqual(page.mistakes, []);
});

test("a log and the progress are followed while a job runs", async () => {
  const { id, running } = await half("logs");
  const [job] = running;
  const page = await browser.open(`${server.page}#/workflows/${id}?job=${job.job}`);
  await panel(page).getByText("began").waitFor();
  await panel(page).getByText("40 %").waitFor();
  await server.post("v1/jobs/extend", { leases: [], notes: [{ lease: job.lease, progress: { percent: 70, text: "later" }, log: ["a later line"] }] });
  await panel(page).getByText("a later line").waitFor();
  await panel(page).getByText("70 %").waitFor();
});

test("each action on a job", async () => {
  const { id, running, failed } = await half("act");
  const page = await browser.open(`${server.page}#/workflows/${id}?job=${failed}`);
  const shown = panel(page);
  await act(shown, "Retry");
  await stateIs(page, failed, "ready");
  await act(shown, "Skip");
  await stateIs(page, failed, "skipped");
  await page.goto(`${server.page}#/workflows/${id}?job=${running[0].job}`);
  await act(shown, "Cancel");
  await stateIs(page, running[0].job, "cancelled");
  await shown.getByText("mark succeeded…").click();
  await shown.getByRole("textbox").fill('{"n": 12345678901234567890');
  await shown.getByText("not JSON").waitFor();
  await shown.getByRole("textbox").fill('{"n": 12345678901234567890}');
  await act(shown, "Mark succeeded");
  await stateIs(page, running[0].job, "succeeded");
  await shown.getByText('"n": 12345678901234567890').waitFor();
  await act(shown, "Restart");
  await stateIs(page, running[0].job, "ready");
  await page.goto(`${server.page}#/workflows/${id}?job=fetch`);
  await shown.getByRole("button", { name: "curl: Restart with downstream jobs" }).click();
  assert.match(await page.locator("pre.curl").innerText(), /:restart' .*"jobs":\["fetch"\],"cascade":true,"as_of":/);
  await page.keyboard.press("Escape");
  // Running jobs must be stopped before all can run again.
  for (const { job } of running.slice(1)) await server.post(`v1/workflows/${id}/jobs/${job}:cancel`);
  for (const { name } of (await server.get(`v1/workflows/${id}/jobs?state=ready&limit=100`)).items) await server.post(`v1/workflows/${id}/jobs/${name}:cancel`);
  await act(shown, "Restart with downstream jobs");
  await stateIs(page, "fetch", "ready");
  await stateIs(page, "page-0", "waiting");
  assert.deepEqual(page.mistakes, []);
});

test("each action on a workflow", async () => {
  const id = await report("whole", { start: "manual" });
  const page = await browser.open(`${server.page}#/workflows/${id}`);
  const actions = page.getByRole("group", { name: "Actions on the workflow" });
  await statusIs(page, "pending");
  await act(actions, "Start");
  await statusIs(page, "running");
  await act(actions, "Pause");
  await statusIs(page, "paused");
  await act(actions, "Resume");
  await statusIs(page, "running");
  await act(actions, "Cancel");
  await statusIs(page, "cancelled");
  await act(actions, "Retry");
  await statusIs(page, "running");
  await act(actions, "Cancel");
  await statusIs(page, "cancelled");
  await page.getByLabel("How long it is kept").selectOption("1d");
  await act(actions, "Keep for");
  await page.getByText("kept until").waitFor();
  await act(actions, "Remove");
  await page.getByRole("heading", { name: "Workflows", exact: true }).waitFor();
  await assert.rejects(server.get(`v1/workflows/${id}`), /workflow_not_found/);
  await page.goto(`${server.page}#/workflows/${id}`);
  await page.getByText("Not found. It may have been removed.").waitFor();
  assert.deepEqual(page.mistakes, []);
});

test("an address without a workflow's id shows the refusal, and ends no stream of other tabs", async () => {
  const id = await report("other");
  const context = await browser.context();
  const [other, page] = [await context.newPage(), await context.newPage()];
  for (const one of [other, page]) watchMistakes(one);
  await other.goto(`${server.page}#/workflows/${id}`);
  await other.locator(".mark.live").waitFor();
  for (const wrong of ["undefined", "..%2Fsession", `8${id.slice(1)}`]) {
    await page.goto(`${server.page}#/workflows/${wrong}`);
    await page.locator(".problem", { hasText: "is not a workflow id" }).waitFor();
    assert.doesNotMatch(await page.locator("main").innerText(), /Loading/);
  }
  await server.claim("other");
  await stateIs(other, "fetch", "running");
  assert.deepEqual([...page.mistakes, ...other.mistakes], []);
  await context.close();
});

test("a dialog names the deed, and closes when the address changes", async () => {
  const id = await report("dialogs");
  const page = await browser.open(`${server.page}#/workflows`);
  await page.goto(`${server.page}#/workflows/${id}`);
  const actions = page.getByRole("group", { name: "Actions on the workflow" });
  await actions.getByRole("button", { name: "Cancel", exact: true }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Cancel the workflow" }).waitFor();
  await page.goBack();
  await page.getByRole("heading", { name: "Workflows", exact: true }).waitFor();
  assert.equal(await page.locator("dialog").count(), 0);
  assert.equal((await server.get(`v1/workflows/${id}`)).status, "running");
  await page.goto(`${server.page}#/workflows/${id}?job=fetch`);
  await panel(page).getByText("none yet").waitFor();
  await actions.getByRole("button", { name: "Pause", exact: true }).click();
  await page.locator(".toast.good", { hasText: "Paused." }).waitFor();
  assert.deepEqual(page.mistakes, []);
});

test("the graph is reached with keys alone", async () => {
  const { id } = await half("keys");
  const page = await browser.open(`${server.page}#/workflows/${id}`);
  const graph = page.getByRole("application", { name: "Graph of the jobs" });
  await graph.focus();
  await page.keyboard.press("ArrowRight");
  await page.locator(".graph [role=status]", { hasText: "fetch, succeeded" }).waitFor({ state: "attached" });
  await page.keyboard.press("ArrowRight");
  await page.locator(".graph [role=status]", { hasText: /page-\d+, / }).waitFor({ state: "attached" });
  await page.keyboard.press("Enter");
  await panel(page).waitFor();
  await graph.focus();
  for (const key of ["+", "-", "Shift+ArrowLeft", "0"]) await page.keyboard.press(key);
  assert.deepEqual(page.mistakes, []);
});

test("a click on a box opens its job", async () => {
  const { id } = await server.create({ name: "one", jobs: [{ name: "alone", handler: "h", queue: "click" }] });
  const page = await browser.open(`${server.page}#/workflows/${id}`);
  await stateIs(page, "alone", "ready");
  await clickCentre(page, "alone");
  await panel(page).getByText("no worker of this server").waitFor();
  assert.ok((await page.evaluate(() => location.hash)).endsWith("?job=alone"));
});

test("it looks right", async () => {
  const { id, failed } = await half("looks");
  const page = await browser.open(`${server.page}#/workflows/${id}`);
  await stateIs(page, "fetch", "succeeded");
  await checkPage(page, "workflow");
  await page.getByRole("button", { name: "timeline" }).click();
  await page.locator(".track").first().waitFor();
  await checkPage(page, "timeline");
  await page.goto(`${server.page}#/workflows/${id}?job=${failed}`);
  await panel(page).getByText("line 2").waitFor();
  await checkPage(page, "job");
  await panel(page).getByText("mark succeeded…").click();
  await picture(page, "job-mark-succeeded");
  assert.deepEqual(page.mistakes, []);
});

test("a graph that is refused is asked for again", async () => {
  const id = await report("refused-graph");
  const page = await browser.open(`${server.page}#/workflows`);
  let refusals = 1;
  await page.route("**/graph.json", (route) =>
    refusals-- > 0 ? route.fulfill({ status: 503, contentType: "application/problem+json", body: '{"code":"overloaded","detail":"wait a moment"}' }) : route.continue(),
  );
  await page.evaluate((id) => (location.hash = `#/workflows/${id}`), id);
  await page.getByText("wait a moment").waitFor();
  await page.waitForSelector("canvas");
  assert.equal(await page.getByText("wait a moment").count(), 0);
  await page.context().close();
});

test("what happens while the graph is read anew is newer than the graph", async () => {
  const queue = "late-graph";
  const { id } = await server.create({ name: "late", jobs: ["a", "b"].map((name) => ({ name, handler: "h", queue })) });
  const page = await browser.open(`${server.page}#/workflows`);
  let [reads, release] = [0, null];
  await page.route("**/graph.json", async (route) => {
    if (++reads === 1) return route.continue();
    const response = await route.fetch();
    await new Promise((end) => (release = end));
    await route.fulfill({ response });
  });
  await page.evaluate((id) => (location.hash = `#/workflows/${id}`), id);
  await page.waitForSelector("canvas");
  await page.locator(".mark.live").waitFor();
  const [a, b] = await server.claim(queue, 2);
  await stateIs(page, b.job, "running");
  // A failure makes the page read the graph anew.
  await server.report({ lease: a.lease, outcome: "failed", error, retry: "never" });
  while (!release) await page.waitForTimeout(20);
  await server.report({ lease: b.lease, outcome: "succeeded" });
  await stateIs(page, b.job, "succeeded");
  release();
  await page.waitForTimeout(300);
  await page.getByRole("application", { name: "Graph of the jobs" }).focus();
  await page.keyboard.press("ArrowRight");
  await page.keyboard.press("ArrowDown");
  await page.locator(".graph [role=status]", { hasText: "b, succeeded" }).waitFor({ state: "attached" });
  await page.context().close();
});
