// The pages of operators: overview, limits, queues, workers and failures, each as the demo fills it, and each of their actions.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { checkPage, startBrowser } from "./parts/browser.mjs";
import { startServer } from "./parts/server.mjs";

let server, demo, browser;
before(async () => {
  [server, demo, browser] = await Promise.all([startServer(), startServer({ command: ["demo"] }), startBrowser()]);
  for (let at = 0; at < 3; at++) {
    await server.create({ name: "broken", jobs: [{ name: "a", handler: "bank.charge", queue: "broken" }] });
  }
  const failed = ({ lease }) => ({ lease, outcome: "failed", error: { kind: "CardDeclined", message: "no" }, retry: "never" });
  await server.report(...(await server.claim("broken", 3)).map(failed));
  await server.create({ name: "still", jobs: [{ name: "a", handler: "h", queue: "mail" }, { name: "b", handler: "h", queue: "mail" }] });
  await server.claim("mail", 1);
});
after(async () => {
  await browser?.close();
  server?.stop();
  demo?.stop();
});

const confirm = (page) => page.locator("dialog button[type=submit]").click();
const table = (page, label) => page.locator(`[aria-label="${label}"]`).last();
const item = async (path, name) => (await server.get(path)).items.find((one) => one.name === name);

/** Waits until the server has the new state: the page alone could show it without a call. */
async function become(what, condition) {
  for (let tries = 0; tries < 100; tries++) {
    if (await condition()) return;
    await new Promise((end) => setTimeout(end, 100));
  }
  assert.fail(`it never became so: ${what}`);
}

for (const [place, sign] of [
  ["overview", (page) => page.locator('[aria-label="Busiest keys"]').getByText("shop route=/search").first()],
  ["limits", (page) => page.locator('[aria-label="Busiest keys"]').getByText("shop route=/search").first()],
  ["queues", (page) => table(page, "Queues").getByText("default").first()],
  ["workers", (page) => table(page, "Workers").getByText("demo-12")],
]) {
  test(`${place} looks right`, async () => {
    const page = await browser.open(`${demo.page}#/${place}`);
    await sign(page).waitFor({ timeout: 20_000 });
    await checkPage(page, place);
    assert.deepEqual(page.mistakes, []);
  });
}

test("a limit is seen to refuse, in the overview", async () => {
  const page = await browser.open(`${demo.page}#/overview`);
  await page.getByRole("heading", { name: "Refused" }).waitFor();
  await page.locator("tr", { hasText: "request" }).filter({ hasText: "shop plan=free" }).first().waitFor({ timeout: 20_000 });
  assert.deepEqual(page.mistakes, []);
});

test("a queue is paused and resumed", async () => {
  const page = await browser.open(`${server.page}#/queues`);
  const row = table(page, "Queues").locator("tr", { hasText: "mail" });
  await row.getByRole("button", { name: "Pause", exact: true }).click();
  await become("paused", async () => (await item("v1/queues", "mail")).paused);
  await page.getByRole("button", { name: "Undo" }).click();
  await become("not paused", async () => !(await item("v1/queues", "mail")).paused);
  await row.getByRole("button", { name: "Pause", exact: true }).click();
  await become("paused again", async () => (await item("v1/queues", "mail")).paused);
  await row.getByRole("button", { name: "Resume", exact: true }).click();
  await become("resumed", async () => !(await item("v1/queues", "mail")).paused);
  assert.deepEqual(page.mistakes, []);
});

test("a worker is drained and gets jobs again", async () => {
  const page = await browser.open(`${server.page}#/workers`);
  const row = table(page, "Workers").locator("tr", { hasText: "tests-1" });
  await row.getByRole("button", { name: "Drain", exact: true }).click();
  await become("draining", async () => (await item("v1/workers", "tests-1")).draining_since);
  await row.getByRole("button", { name: "Undrain", exact: true }).click();
  await become("not draining", async () => !(await item("v1/workers", "tests-1")).draining_since);
  assert.deepEqual(page.mistakes, []);
});

test("a queue has a drawer with what runs, its limits and weights, and leads to its workers", async () => {
  await server.put("v1/queues/mail/limits", { limits: [{ domain: "vendor", entries: [["tenant", "acme"]] }] });
  await server.put("v1/queues/mail/weights", { weights: [{ entries: [["tenant", "acme"]], weight: 5 }] });
  const page = await browser.open(`${server.page}#/queues`);
  await table(page, "Queues").getByRole("link", { name: "mail" }).click();
  const drawer = page.getByRole("complementary", { name: "Queue" });
  await drawer.getByRole("heading", { name: "mail" }).waitFor();
  assert.equal(await page.title(), "mail - Tidegate");
  await drawer.getByText("vendor tenant=acme").waitFor();
  await drawer.getByText("5 for tenant=acme").waitFor();
  await drawer.getByRole("link", { name: "a", exact: true }).waitFor();
  await checkPage(page, "queue");
  await drawer.getByRole("button", { name: "Queue before" }).click();
  await drawer.getByRole("heading", { name: "broken" }).waitFor();
  await drawer.getByRole("button", { name: "Next queue" }).click();
  await drawer.getByRole("button", { name: "Pause", exact: true }).click();
  await drawer.locator(".pill.paused").waitFor();
  await drawer.getByRole("button", { name: "Resume", exact: true }).click();
  await become("resumed", async () => !(await item("v1/queues", "mail")).paused);
  await drawer.getByRole("link", { name: "tests-1" }).click();
  await page.getByRole("complementary", { name: "Worker" }).getByRole("heading", { name: "tests-1" }).waitFor();
  assert.deepEqual(page.mistakes, []);
});

test("a worker has a drawer with its jobs and their progress, and a name that is not there says so", async () => {
  await server.create({ name: "slow", jobs: [{ name: "half", handler: "h.slow", queue: "slow" }] });
  const [{ lease }] = await server.claim("slow", 1, { worker: "tests-2" });
  await server.post("v1/jobs/extend", { leases: [], notes: [{ lease, progress: { percent: 50, text: "half" } }] });
  const page = await browser.open(`${server.page}#/workers/tests-2`);
  const drawer = page.getByRole("complementary", { name: "Worker" });
  await drawer.getByText("50%").waitFor();
  await checkPage(page, "worker");
  await drawer.getByRole("link", { name: "half" }).click();
  await page.getByRole("complementary", { name: "Job" }).getByRole("link", { name: "tests-2" }).click();
  await page.keyboard.press("Escape");
  await drawer.waitFor({ state: "detached" });
  await page.goto(`${server.page}#/workers/nothing`);
  await drawer.getByText("Not found. It may have been removed.").waitFor();
  assert.deepEqual(page.mistakes, []);
});

test("the key / goes to the filter of each page", async () => {
  const { items } = await server.get("v1/workflows?name=still");
  const page = await browser.open(`${server.page}#/limits`);
  const cases = [
    ["limits", "Filter", "search"], ["queues", "Filter", "search"], ["workers", "Filter", "search"], ["failures", "Filter", "search"],
    ["workflows", "Filter", "search"], [`workflows/${items[0].id}`, "", "search"],
  ];
  for (const [place, label, type] of cases) {
    await page.goto(`${server.page}#/${place}`);
    await page.locator("[data-filter]").first().waitFor();
    await page.locator("h1").click();
    await page.keyboard.press("/");
    const got = await page.evaluate(() => [document.activeElement.ariaLabel ?? document.activeElement.closest("label")?.innerText.trim(), document.activeElement.type]);
    assert.equal(got[1], type, place);
    if (label) assert.equal(got[0], label, place);
  }
  await page.goto(`${server.page}#/queues`);
  await page.getByLabel("Filter").fill("MAI");
  await table(page, "Queues").getByText("broken").waitFor({ state: "detached" });
  await table(page, "Queues").getByText("mail").waitFor();
  await page.getByLabel("Filter").fill("nowhere");
  await page.getByText("no row has this text in it").waitFor();
  assert.deepEqual(page.mistakes, []);
});

test("keys act on the drawer and not on the list behind it", async () => {
  const page = await browser.open(`${demo.page}#/workers/demo-9`);
  await page.getByRole("complementary", { name: "Worker" }).getByRole("button", { name: "Drain", exact: true }).waitFor();
  for (const key of ["j", "m", "Enter"]) await page.keyboard.press(key);
  const draining = async () => (await demo.get("v1/workers")).items.filter((one) => one.draining_since).map(({ name }) => name);
  await become("drained", async () => (await draining()).length > 0);
  assert.deepEqual(await draining(), ["demo-9"]);
  await page.getByRole("complementary", { name: "Worker" }).getByText("Draining").waitFor();
  await demo.post("v1/workers/demo-9:undrain", {});
  assert.deepEqual(page.mistakes, []);
});

test("the filter is emptied and then left for the list", async () => {
  const page = await browser.open(`${server.page}#/queues`);
  const filter = page.getByLabel("Filter");
  await table(page, "Queues").getByText("mail").waitFor();
  await page.keyboard.press("/");
  await page.keyboard.type("mail");
  await page.keyboard.press("Escape");
  assert.equal(await filter.inputValue(), "");
  assert.ok(await filter.evaluate((one) => one === document.activeElement));
  await page.keyboard.press("Escape");
  assert.equal(await page.evaluate(() => document.activeElement.closest("tr") !== null), true);
  for (const key of ["/", "ArrowDown", "/", "Enter", "g", "f"]) await page.keyboard.press(key);
  await page.getByRole("heading", { name: "Failures", exact: true }).waitFor();
  assert.deepEqual(page.mistakes, []);
});

/** The dialog that pauses or scales, opened without a limit. */
async function openPause(page) {
  await page.getByRole("button", { name: "Pause a limit" }).click();
  return page.locator("dialog");
}

test("a pause names its subject, can be for requests, too, and is undone", async () => {
  const page = await browser.open(`${server.page}#/limits`);
  const ask = async () => (await server.decide({ domain: "sample", descriptors: [{ entries: [{ key: "client", value: "gateway" }] }] })).overallCode;
  for (const [requests, warning, toast, code] of [[false, "Requests still pass", "Paused for jobs.", "OK"], [true, "Requests are refused", "Paused for jobs and requests.", "OVER_LIMIT"]]) {
    const form = await openPause(page);
    await form.getByLabel("domain").fill("sample");
    await form.getByLabel("entries").fill("client");
    await form.getByText("is not a key with a value").waitFor();
    await form.getByRole("button", { name: "Pause", exact: true }).click();
    assert.ok(await form.isVisible());
    await form.getByLabel("entries").fill("client=gateway");
    await form.getByLabel("also requests").setChecked(requests);
    await form.getByText(warning).waitFor();
    assert.match(await form.locator("pre.curl").innerText(), /"entries":\[\["client","gateway"\]\]/);
    await form.getByRole("button", { name: "Pause", exact: true }).click();
    await page.getByText(toast, { exact: true }).waitFor();
    await page.getByText(requests ? "for requests and jobs until" : "for jobs until").first().waitFor();
    assert.equal((await server.get("v1/limits/overrides")).items[0].gateway, requests);
    assert.equal(await ask(), code);
  }
  await page.locator("tr.why").getByRole("button", { name: "Resume" }).click();
  await become("resumed", async () => (await server.get("v1/limits/overrides")).items.length === 0);
  assert.equal(await ask(), "OK");
  await page.locator(".toast", { hasText: "Resumed." }).getByRole("button", { name: "Undo" }).click();
  await become("paused again", async () => (await server.get("v1/limits/overrides")).items[0]?.gateway === true);
  await page.locator("tr.why").getByRole("button", { name: "Resume" }).click();
  await become("resumed again", async () => (await server.get("v1/limits/overrides")).items.length === 0);
  assert.deepEqual(page.mistakes, []);
});

test("a check knows an unconfigured name from a limit that has room, and refuses a text that is no pair", async () => {
  const page = await browser.open(`${server.page}#/limits`);
  const check = page.getByRole("region", { name: "Test a request" });
  const sendCheck = async (domain, entries) => {
    await check.getByLabel("domain").fill(domain);
    await check.getByLabel("entries").fill(entries);
    await check.getByRole("button", { name: "Test", exact: true }).click();
  };
  const answer = check.getByRole("status", { name: "Answer" });
  await sendCheck("sampel", "client=me");
  await answer.getByText("No limit applies: no domain 'sampel'; did you mean 'sample'?").waitFor();
  assert.equal(await answer.locator(".pill").count(), 0);
  await sendCheck("sample", "clinet=me");
  await answer.getByText("did you mean 'client'?").waitFor();
  await sendCheck("sample", "client=me, path");
  await check.locator(".problem", { hasText: "'path' is not a key with a value" }).waitFor();
  await sendCheck("sample", "client=me");
  await answer.getByText("Would be allowed").waitFor();
  assert.deepEqual(page.mistakes, []);
});

test("a key is paused for a while and resumed, and a request is checked without charging it", async () => {
  const page = await browser.open(`${server.page}#/limits`);
  const form = await openPause(page);
  await form.getByLabel("domain").fill("sample");
  await form.getByLabel("entries").fill("client=me");
  await form.getByLabel("reason").fill("they are down");
  await form.getByRole("button", { name: "Pause", exact: true }).click();
  await become("paused", async () => (await server.get("v1/limits/overrides")).items.some((one) => one.domain === "sample"));
  await page.locator("tr.why", { hasText: "they are down" }).getByRole("button", { name: "Resume" }).click();
  await page.getByText("Resumed.").waitFor();
  await become("resumed", async () => (await server.get("v1/limits/overrides")).items.length === 0);
  const check = page.getByRole("region", { name: "Test a request" });
  const answer = check.getByRole("status", { name: "Answer" });
  await check.getByLabel("domain").fill("sample");
  await check.getByLabel("entries").fill("client=me");
  for (let times = 0; times < 7; times++) {
    await check.getByRole("button", { name: "Test", exact: true }).click();
    await answer.getByText("Would be allowed").waitFor();
  }
  // The limit is five a minute: a check that charged would be refused by now.
  assert.match(await answer.innerText(), /of 5\s+5 per minute/);
  assert.match(await answer.innerText(), /Answered by sample \/ client=\*, \S+/);
  assert.deepEqual(page.mistakes, []);
});

test("failures stand together by error, and are retried and removed together", async () => {
  const page = await browser.open(`${server.page}#/failures`);
  const row = table(page, "Failures").locator("tbody tr", { hasText: "CardDeclined" });
  await row.waitFor();
  await row.getByRole("button", { name: "Retry all" }).waitFor();
  await checkPage(page, "failures");
  const menu = row.getByRole("button", { name: "Actions on CardDeclined" });
  const line = page.locator(".menu pre.curl");
  await menu.click();
  const filter = `"filter":{"status":"failed","error":"CardDeclined","handler":"bank.charge","created_before":"`;
  const retry = await line.innerText();
  assert.ok(retry.includes(`{"action":"retry",${filter}`));
  assert.match(retry, /"created_before":"([^"]+)"\},"as_of":"\1"/);
  await page.keyboard.press("ArrowDown");
  await line.filter({ hasText: `{"action":"delete",${filter}` }).waitFor();
  await page.keyboard.press("Escape");
  await row.getByRole("button", { name: "Retry all" }).click();
  await page.getByRole("heading", { name: "Retry 3 workflows?" }).waitFor();
  await page.locator("dialog").getByRole("button", { name: "Retry 3 workflows" }).click();
  await become("retried", async () => (await server.get("v1/workflows:count?status=failed")).total === 0);
  const failed = ({ lease }) => ({ lease, outcome: "failed", error: { kind: "CardDeclined", message: "no" }, retry: "never" });
  await server.report(...(await server.claim("broken", 3)).map(failed));
  await row.waitFor({ timeout: 20_000 });
  // What fails after the page was drawn is not what the reader saw.
  const drawn = await server.get("v1/failures?range=24h");
  await page.route(/\/v1\/failures/, (route) => route.fulfill({ json: drawn }));
  await page.goto(`${server.page}#/overview`);
  await page.goto(`${server.page}#/failures`);
  const later = await server.create({ name: "later", jobs: [{ name: "charge", handler: "bank.charge", queue: "broken" }] });
  await server.report(...(await server.claim("broken", 1)).map(failed));
  await menu.click();
  await row.getByRole("menuitem", { name: "Remove all with this error" }).click();
  await page.getByRole("heading", { name: "Remove 3 workflows?" }).waitFor();
  await confirm(page);
  await become("removed", async () => (await server.get("v1/workflows:count?name=broken")).total === 0);
  assert.equal((await server.get(`v1/workflows/${later.id ?? later}`)).status, "failed");
  assert.deepEqual(page.mistakes, []);
});

test("workers stand in the order of their numbers", async () => {
  const page = await browser.open(`${demo.page}#/workers`);
  await table(page, "Workers").getByText("demo-12").waitFor();
  const names = await table(page, "Workers").locator("tbody th").allInnerTexts();
  assert.deepEqual(names, Array.from({ length: 12 }, (_, at) => `demo-${at + 1}`));
});

test("the last answer before the server was gone is not shown as current", async () => {
  const own = await startServer();
  try {
    const page = await browser.open(`${own.page}#/overview`);
    const health = page.getByRole("region", { name: "Health" });
    await health.getByText("Rate limits: Healthy").waitFor();
    await page.getByText("All clear").waitFor();
    await own.crash();
    await page.getByText("Server unreachable since").waitFor({ timeout: 20_000 });
    await health.getByText("Rate limits: Unknown").waitFor();
    assert.doesNotMatch(await health.innerText(), /Healthy/);
    for (const [place, label] of [["queues", "Queues"], ["workers", "Workers"], ["failures", "Failures"], ["workflows", "Workflows"], ["limits", "Limits"]]) {
      await page.goto(`${own.page}#/${place}`);
      await page.getByRole("heading", { name: label, exact: true }).waitFor();
      await page.getByText("Server unreachable since").waitFor();
      await page.getByText("Not known: the server did not answer").first().waitFor();
      await page.getByText("Loading…").waitFor({ state: "detached", timeout: 20_000 });
    }
    assert.deepEqual(page.mistakes, []);
  } finally {
    own.stop();
  }
});
