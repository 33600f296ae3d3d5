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
const statusIs = (page, status) => page.locator(`.head .pill.${status}`).waitFor();
const tab = (page, name) => page.locator("aside.drawer").getByRole("tab", { name }).click();
const panel = (page) => page.locator("aside.drawer");
/** Clicks on the first box of the graph once the named job is there: the canvas moves and listens later than the table is there. */
async function clickFirst(page, name) {
  const canvas = page.locator("canvas");
  const position = { x: 90, y: 48 };
  while (!(await canvas.getAttribute("title"))?.startsWith(`${name} · `)) {
    await canvas.hover({ position });
    await page.waitForTimeout(20);
  }
  await canvas.click({ position });
}
/** A button, or else an entry of the menu. */
async function act(place, name) {
  const button = place.getByRole("button", { name, exact: true });
  const menu = place.locator("[aria-haspopup=menu]");
  await button.or(menu).first().waitFor();
  if (await button.isVisible()) await button.click();
  else {
    await menu.click();
    await place.getByRole("menuitem", { name: new RegExp(`^${name}…?$`) }).click();
  }
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
  await page.getByRole("button", { name: "and 29 more" }).click();
  await stateIs(page, "page-29", "ready");
  await page.getByRole("button", { name: "All jobs" }).click();
  await page.waitForTimeout(200);
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
  assert.ok(colours.succeeded > 10 && colours.ready > 50 && colours.failed < 5, JSON.stringify(colours));
  assert.deepEqual(page.mistakes, []);
});

test("the panel of a job has all that is known of it", async () => {
  const { id, failed } = await half("panel");
  const page = await browser.open(`${server.page}#/workflows/${id}?job=fetch`);
  const shown = panel(page);
  await shown.getByText('"bytes": 1256').waitFor();
  for (const text of ["http.get", "2 of 2"]) assert.ok((await shown.innerText()).includes(text), text);
  for (const [name, text] of [["Log", "page 2 of 10"], ["Params", '"url": "https://example.org"']]) {
    await tab(page, name);
    await shown.getByText(text).waitFor();
  }
  await page.keyboard.press("ArrowRight");
  await shown.getByRole("tab", { name: "Definition", selected: true }).waitFor();
  await jobRow(page, failed).getByRole("link").first().click();
  await tab(page, "Error");
  await shown.getByText("line 2").waitFor();
  await shown.getByText("The worker reported this error as final").or(shown.getByText("attempts failed")).first().waitFor();
  await tab(page, "Inputs");
  await shown.locator("summary", { hasText: "fetch" }).click();
  await shown.getByText('"bytes": 1256').waitFor();
  await jobRow(page, "join").getByRole("link").first().click();
  await shown.locator(".warning", { hasText: `Blocked by ${failed}` }).waitFor();
  await page.getByText("Globals", { exact: true }).click();
  await page.getByText('"day": "2026-11-24"').waitFor();
  await shown.getByRole("button", { name: "close the job" }).click();
  await shown.waitFor({ state: "detached" });
  assert.deepEqual(page.mistakes, []);
});

test("a failure is said above, in the table and in the drawer, and the next job is a key away", async () => {
  const { id, failed } = await half("above");
  const page = await browser.open(`${server.page}#/workflows/${id}`);
  await page.locator(".banner.bad", { hasText: `${failed} failed: HTTPError, 503 from upstream` }).waitFor();
  assert.match(await page.locator('[aria-label="Jobs"] tbody tr').first().innerText(), /Failed[^]*HTTPError: 503 from upstream/);
  await page.locator(".banner.bad").getByRole("link", { name: failed }).click();
  await panel(page).getByText("503 from upstream").first().waitFor();
  await page.keyboard.press("Shift+J");
  await panel(page).locator(".pill.running").waitFor();
  await page.keyboard.press("Shift+K");
  await panel(page).getByRole("heading", { name: failed }).waitFor();
  assert.deepEqual(page.mistakes, []);
});

test("a menu is used with keys, and shows the call of the marked verb", async () => {
  const id = await report("menu");
  const page = await browser.open(`${server.page}#/workflows/${id}`);
  const opener = page.getByRole("button", { name: "Other actions" });
  await opener.focus();
  await page.keyboard.press("Enter");
  const line = page.locator(".menu pre.curl");
  await line.filter({ hasText: ":pause'" }).waitFor();
  await page.keyboard.press("ArrowDown");
  await line.filter({ hasText: ":cancel'" }).waitFor();
  await page.keyboard.press("ArrowUp");
  await page.keyboard.press("ArrowUp");
  await line.filter({ hasText: ":expire'" }).waitFor();
  await page.keyboard.press("Escape");
  await line.waitFor({ state: "detached" });
  assert.equal(await opener.evaluate((own) => own === document.activeElement), true);
  await page.evaluate(() => document.activeElement.blur());
  await page.keyboard.press("p");
  await page.keyboard.press("Enter");
  await statusIs(page, "paused");
  await page.getByRole("button", { name: "Undo" }).click();
  await statusIs(page, "running");
  assert.deepEqual(page.mistakes, []);
});

test("equal jobs are a stack, which opens where a job has failed", async () => {
  const id = await report("stack");
  const page = await browser.open(`${server.page}#/workflows/${id}`);
  await page.getByText("33 jobs in 4 steps").waitFor();
  const graph = page.getByRole("application", { name: "Graph of the jobs" });
  const height = async () => (await graph.boundingBox()).height;
  assert.ok((await height()) < 180, `${await height()}`);
  await graph.focus();
  for (const key of ["ArrowRight", "ArrowRight"]) await page.keyboard.press(key);
  await page.locator(".graph [role=status]", { hasText: "page, 30 jobs" }).waitFor({ state: "attached" });
  await page.keyboard.press("Enter");
  const bigger = async (than) => {
    for (let tries = 0; tries < 100 && (await height()) <= than; tries++) await page.waitForTimeout(50);
    assert.ok((await height()) > than);
  };
  await bigger(180);
  const broken = await half("stack-failed");
  await page.goto(`${server.page}#/workflows/${broken.id}`);
  await bigger(180);
  await page.getByRole("button", { name: "All jobs" }).click();
  assert.deepEqual(page.mistakes, []);
});

test("a log and the progress are followed while a job runs", async () => {
  const { id, running } = await half("logs");
  const [job] = running;
  const page = await browser.open(`${server.page}#/workflows/${id}?job=${job.job}`);
  await panel(page).getByText("began").waitFor();
  await panel(page).getByText("40%").waitFor();
  await server.post("v1/jobs/extend", { leases: [], notes: [{ lease: job.lease, progress: { percent: 70, text: "later" }, log: ["a later line"] }] });
  await panel(page).getByText("a later line").waitFor();
  await panel(page).getByText("70%").waitFor();
});

test("a search in the log goes from hit to hit, and following ends while one reads", async () => {
  const { id } = await server.create({ name: "log", jobs: [{ name: "alone", handler: "h", queue: "log-search" }] });
  const [job] = await server.claim("log-search");
  const lines = Array.from({ length: 1200 }, (_, at) => (at % 400 ? `row ${at}` : `region ${at}`));
  for (let at = 0; at < lines.length; at += 100) await server.post("v1/jobs/extend", { leases: [], notes: [{ lease: job.lease, log: lines.slice(at, at + 100) }] });
  const page = await browser.open(`${server.page}#/workflows/${id}?job=alone`);
  const log = panel(page).getByRole("log");
  await log.getByText("200 older lines dropped").waitFor();
  assert.equal(await log.locator(".ln:not(.att)").count(), 1000);
  const top = () => log.evaluate((own) => own.scrollTop);
  const bottom = await top();
  assert.ok(bottom > 1000);
  const follow = panel(page).getByRole("button", { name: "Follow" });
  await panel(page).getByRole("searchbox", { name: "Search the log" }).fill("region");
  await panel(page).getByText("2 hits").waitFor();
  await page.keyboard.press("Enter");
  await panel(page).getByText("1 of 2").waitFor();
  assert.equal(await log.locator("mark.on").count(), 1);
  assert.ok((await top()) < bottom);
  assert.equal(await follow.getAttribute("aria-pressed"), "false");
  await log.focus();
  await page.keyboard.press("n");
  await panel(page).getByText("2 of 2").waitFor();
  await page.keyboard.press("Shift+N");
  await panel(page).getByText("1 of 2").waitFor();
  await page.keyboard.press("f");
  await page.waitForFunction((bottom) => document.querySelector("[role=log]").scrollTop >= bottom, bottom);
  // The jump is a scroll, too, which is heard a moment later.
  await panel(page).locator("button[aria-pressed=true]", { hasText: "Follow" }).waitFor();
  assert.deepEqual(page.mistakes, []);
});

test("the timeline has the critical path, attempts and times in UTC", async () => {
  const queue = "path";
  const jobs = [{ name: "first", handler: "h", queue, retries: 2, backoff: "10ms" }, { name: "short", handler: "h", queue }, { name: "last", handler: "h", queue, after: ["first", "short"] }, { name: "never", handler: "h", queue, after: "last" }, { name: "after-never", handler: "h", queue, after: "never" }];
  const { id } = await server.create({ name: "path", jobs });
  const both = await server.claim(queue, 2);
  const leaseOf = (name, among = both) => among.find(({ job }) => job === name).lease;
  await server.report({ lease: leaseOf("first"), outcome: "failed", error }, { lease: leaseOf("short"), outcome: "succeeded" });
  const again = await server.claim(queue, 1, { wait: "5s" });
  await server.report({ lease: leaseOf("first", again), outcome: "succeeded" });
  const [last] = await server.claim(queue, 1, { wait: "5s" });
  await server.report({ lease: last.lease, outcome: "failed", error, retry: "never" });
  const page = await browser.open(`${server.page}#/workflows/${id}?job=first`);
  const line = (name) => page.locator(".timeline li", { has: page.getByRole("link", { name, exact: true }) });
  // The drawer knows when the attempts before the latest ended.
  await line("first").locator(".piece.failed").waitFor();
  assert.match(await line("first").locator(".piece.failed").getAttribute("title"), /^Failed 0 ms, \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} to \d\d:\d\d:\d\d\.\d{3} UTC$/);
  await page.locator(".timeline .legend", { hasText: "Critical path" }).waitFor();
  assert.deepEqual(await page.locator(".timeline li.critical > .cut").allInnerTexts(), ["first", "last"]);
  assert.deepEqual(page.mistakes, []);
});

test("each action on a job", async () => {
  const { id, running, failed } = await half("act");
  const page = await browser.open(`${server.page}#/workflows/${id}?job=${failed}`);
  const shown = panel(page);
  await act(shown, "Retry job");
  await stateIs(page, failed, "ready");
  await act(shown, "Skip");
  await stateIs(page, failed, "skipped");
  await page.goto(`${server.page}#/workflows/${id}?job=${running[0].job}`);
  await act(shown, "Cancel job");
  await stateIs(page, running[0].job, "cancelled");
  await act(shown, "Mark succeeded");
  await shown.getByRole("textbox").fill('{"n": 12345678901234567890');
  await shown.getByText("not JSON").waitFor();
  await shown.getByRole("textbox").fill('{"n": 12345678901234567890}');
  await act(shown, "Mark as succeeded");
  await stateIs(page, running[0].job, "succeeded");
  await tab(page, "Output");
  await shown.getByText('"n": 12345678901234567890').waitFor();
  await act(shown, "Restart");
  await stateIs(page, running[0].job, "ready");
  await page.goto(`${server.page}#/workflows/${id}?job=fetch`);
  await shown.getByRole("button", { name: "More, and the curl line" }).click();
  await shown.getByRole("menuitem", { name: "Restart with downstream jobs" }).hover();
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
  await act(actions, "Retry failed");
  await statusIs(page, "running");
  await act(actions, "Cancel");
  await statusIs(page, "cancelled");
  await actions.getByRole("button", { name: "Other actions" }).click();
  await actions.getByRole("menuitem", { name: "Keep for" }).click();
  await page.getByLabel("How long it is kept").selectOption("1d");
  await page.locator("dialog button[type=submit]").click();
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

test("a dialog names the verb, and closes when the address changes", async () => {
  const id = await report("dialogs");
  const page = await browser.open(`${server.page}#/workflows`);
  await page.goto(`${server.page}#/workflows/${id}`);
  const actions = page.getByRole("group", { name: "Actions on the workflow" });
  await actions.getByRole("button", { name: "Other actions" }).click();
  await actions.getByRole("menuitem", { name: "Cancel" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Cancel the workflow" }).waitFor();
  await page.goBack();
  await page.getByRole("heading", { name: "Workflows", exact: true }).waitFor();
  assert.equal(await page.locator("dialog").count(), 0);
  assert.equal((await server.get(`v1/workflows/${id}`)).status, "running");
  await page.goto(`${server.page}#/workflows/${id}?job=fetch`);
  await panel(page).getByRole("tab", { name: "Definition" }).waitFor();
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
  await page.locator(".graph [role=status]", { hasText: "page, 30 jobs" }).waitFor({ state: "attached" });
  // Its failed job has opened it already: its cells are below.
  await page.keyboard.press("ArrowDown");
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
  await clickFirst(page, "alone");
  await panel(page).getByText("no worker of this server").first().waitFor();
  assert.ok((await page.evaluate(() => location.hash)).endsWith("?job=alone"));
});

test("it looks right", async () => {
  const { id, failed } = await half("looks");
  const page = await browser.open(`${server.page}#/workflows/${id}`);
  await stateIs(page, "fetch", "succeeded");
  await checkPage(page, "workflow");
  await page.locator(".timeline .piece.succeeded").first().waitFor();
  await page.goto(`${server.page}#/workflows/${id}?job=${failed}`);
  await panel(page).getByText("line 2").waitFor();
  await checkPage(page, "job");
  await panel(page).getByRole("button", { name: "Mark succeeded" }).click();
  await panel(page).getByRole("textbox").waitFor();
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
