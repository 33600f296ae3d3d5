// The list of workflows: filters, pages, what is new, and actions for all that match.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { checkPage, startBrowser } from "./parts/browser.mjs";
import { startServer } from "./parts/server.mjs";

let server, browser;
before(async () => {
  server = await startServer();
  browser = await startBrowser();
  const jobs = [{ name: "a", handler: "h", queue: "idle" }];
  for (let at = 0; at < 45; at++) {
    await server.create({ name: at % 3 ? "report" : "invoice", tags: at % 5 ? [] : ["nightly"], jobs, start: at % 9 ? "now" : "manual" });
  }
  await server.create({ name: "broken", jobs: [{ name: "a", handler: "h", queue: "broken" }, { name: "b", handler: "h", queue: "broken" }, { name: "c", handler: "h", queue: "broken", after: "a" }] });
  const [one, two] = await server.claim("broken", 2);
  await server.report({ lease: one.lease, outcome: "failed", error: { kind: "E", message: "no" }, retry: "never" }, { lease: two.lease, outcome: "succeeded" });
});
after(async () => {
  await browser?.close();
  server?.stop();
});

const rows = (page) => page.locator('[aria-label="Workflows"] tbody tr:has(a)');
const total = async (status) => (await server.get(`v1/workflows:count?status=${status}`)).total;
const confirm = (page) => page.locator("dialog button[type=submit]").click();

test("pages go forward and back by cursor, and the address keeps the place", async () => {
  const page = await browser.open(`${server.page}#/workflows?limit=20`);
  await rows(page).nth(19).waitFor();
  const first = await rows(page).first().innerText();
  await page.getByRole("button", { name: "Next" }).click();
  await page.getByText("page 2").waitFor();
  await page.waitForFunction((text) => !document.querySelector("tbody")?.innerText.includes(text), first.match(/01\w{8}/)[0]);
  const second = (await rows(page).first().innerText()).match(/01\w{8}/)[0];
  await page.getByRole("button", { name: "Next" }).click();
  await page.getByText("page 3").waitFor();
  await page.waitForFunction(() => document.querySelectorAll('[aria-label="Workflows"] tbody tr').length === 6);
  assert.equal(await page.getByRole("button", { name: "Next" }).isDisabled(), true);
  await page.getByRole("button", { name: "Previous" }).click();
  await page.getByText(second).first().waitFor();
  await page.reload();
  await page.getByText(second).first().waitFor();
  await page.goBack();
  await page.getByRole("button", { name: "First" }).click();
  await page.getByText("page 1").waitFor();
  assert.deepEqual(page.mistakes, []);
});

test("filters stand in the address", async () => {
  const page = await browser.open(`${server.page}#/workflows?status=failed`);
  await page.getByRole("link", { name: "broken" }).waitFor();
  assert.equal(await rows(page).count(), 1);
  await page.getByRole("checkbox", { name: "failed" }).uncheck();
  await page.keyboard.press("/");
  await page.keyboard.type("INVOICE");
  await page.waitForFunction(() => location.hash === "#/workflows?q=INVOICE");
  await page.waitForFunction(() => document.querySelectorAll('[aria-label="Workflows"] tbody tr').length === 15);
  await page.getByLabel("tag").fill("nightly");
  await page.waitForFunction(() => document.querySelectorAll('[aria-label="Workflows"] tbody tr').length === 3);
  await page.getByRole("link", { name: "Clear filters" }).click();
  await page.waitForFunction(() => document.querySelectorAll('[aria-label="Workflows"] tbody tr').length === 46);
  await page.getByText("More filters", { exact: true }).click();
  const id = (await server.get("v1/workflows?limit=1")).items[0].id;
  await page.getByLabel("id begins with").fill(id);
  await page.waitForFunction(() => document.querySelectorAll('[aria-label="Workflows"] tbody tr').length === 1);
  await page.getByLabel("order").selectOption("oldest");
  await page.waitForFunction(() => location.hash.includes("order=oldest"));
  assert.deepEqual(page.mistakes, []);
});

test("a text that is not among the newest is searched for in older ones, and counts say so", async () => {
  const page = await browser.open(`${server.page}#/workflows`);
  await rows(page).first().waitFor();
  const calls = [];
  const empty = { items: [], next_cursor: "older", searched: 10_000, older: true };
  await page.route(/\/v1\/workflows\?.*q=ord/, async (route) => {
    calls.push(route.request().url());
    await route.fulfill({ json: route.request().url().includes("cursor=older") ? { items: [], next_cursor: null, searched: 46, older: false } : empty });
  });
  await page.route(/\/v1\/workflows:count\?.*q=ord/, (route) => route.fulfill({ json: { total: 120, by_status: { failed: 120 }, as_of: new Date().toISOString(), searched: 10_000, older: true } }));
  await page.keyboard.press("/");
  await page.keyboard.type("ord");
  await page.getByText("No workflow matches 'ord' in the newest 10,000").waitFor();
  await page.getByRole("checkbox", { name: "All120+" }).or(page.locator(".chip", { hasText: "120+" })).first().waitFor();
  await page.getByRole("button", { name: "Search older" }).click();
  await page.getByText("No workflow matches 'ord'.").waitFor();
  assert.match(calls.at(-1), /q=ord.*cursor=older/);
  assert.deepEqual(page.mistakes, []);
});

test("a new workflow is there within a second", async () => {
  const page = await browser.open(`${server.page}#/workflows`);
  await rows(page).first().waitFor();
  const { id } = await server.create({ name: "newest", jobs: [{ handler: "h", queue: "idle" }] });
  const began = Date.now();
  await page.locator("tbody a[href*='" + id + "']").waitFor({ timeout: 1000 });
  assert.ok(Date.now() - began < 1000);
});

test("new rows wait while rows are selected, and those that stand there go on", async () => {
  const page = await browser.open(`${server.page}#/workflows?name=held`);
  const create = () => server.create({ name: "held", jobs: [{ handler: "h", queue: "held" }] });
  const { id } = await create();
  await page.getByRole("checkbox", { name: "Select held" }).check();
  await create();
  await create();
  await page.getByRole("button", { name: "2 new" }).waitFor();
  await server.post(`v1/workflows/${id}:cancel`);
  await rows(page).locator(".pill.cancelled").waitFor();
  assert.equal(await rows(page).count(), 1);
  await page.getByRole("button", { name: "2 new" }).click();
  await rows(page).nth(2).waitFor();
  assert.equal(await page.locator("button", { hasText: /^\d+ new$/ }).count(), 0);
  await create();
  await page.getByRole("button", { name: "1 new" }).waitFor();
  await page.getByRole("button", { name: "Clear the selection" }).click();
  await rows(page).nth(3).waitFor();
  assert.deepEqual(page.mistakes, []);
});

test("actions for all that match do no more than was counted", async () => {
  const page = await browser.open(`${server.page}#/workflows?name=invoice`);
  await rows(page).first().waitFor();
  const act = async (action, status, now) => {
    const had = await total(status);
    await page.getByLabel("all that match:").selectOption({ label: action });
    await page.getByRole("button", { name: `${action}…` }).click();
    await confirm(page);
    await page.locator(".toast.good").last().waitFor();
    await page.getByRole("button", { name: "close this note" }).last().click();
    assert.notEqual(await total(status), had, `${action}: ${status}`);
    if (now) assert.ok((await total(now)) > 0, `${action}: ${now}`);
  };
  await page.getByLabel("all that match:").selectOption("cancel");
  await page.getByRole("button", { name: "curl: cancel all that match" }).click();
  const line = await page.locator("pre.curl").innerText();
  assert.match(line, /^curl -s -X POST 'http.*\/v1\/workflows:bulk' -H 'content-type: application\/json' -d '\{"action":"cancel"/);
  await page.keyboard.press("Escape");
  await act("Pause", "running", "paused");
  await act("Resume", "paused", "running");
  await act("Start", "pending", "running");
  await act("Cancel", "running", "cancelled");
  await act("Retry", "cancelled", "running");
  await act("Cancel", "running", "cancelled");
  await page.getByLabel("all that match:").selectOption("expire");
  await page.getByRole("button", { name: "Keep for…" }).click();
  await confirm(page);
  await page.getByText("15 of 15 workflows").waitFor();
  await act("Remove", "cancelled");
  assert.equal((await server.get("v1/workflows:count?name=invoice")).total, 0);
  // Nothing is left to act on.
  await page.getByLabel("all that match:").waitFor({ state: "detached" });
  assert.deepEqual(page.mistakes, []);
});

test("a row says what failed, and all of it leads there", async () => {
  const page = await browser.open(`${server.page}#/workflows`);
  const row = rows(page).filter({ hasText: "broken" });
  await row.getByText("a: E, no").waitFor();
  assert.equal(await page.locator("button.danger").count(), 0);
  await row.getByText("2 of 3").or(row.getByText("1 of 3")).first().click({ force: true });
  await page.getByRole("heading", { name: "broken" }).waitFor();
  assert.deepEqual(page.mistakes, []);
});

test("a selection offers only what is possible for all of it", async () => {
  await server.create({ name: "chosen", jobs: [{ handler: "h", queue: "idle" }] });
  await server.create({ name: "chosen", jobs: [{ handler: "h", queue: "idle" }] });
  const page = await browser.open(`${server.page}#/workflows`);
  const bar = page.getByRole("region", { name: "Selection" });
  const verbs = () => bar.getByRole("button").allInnerTexts();
  await page.getByRole("checkbox", { name: "Select broken" }).check();
  await bar.getByText("1 selected").waitFor();
  assert.deepEqual((await verbs()).filter(Boolean), ["Retry 1", "Keep for", "Remove"]);
  await page.getByRole("checkbox", { name: "Select chosen" }).first().check();
  assert.deepEqual((await verbs()).filter(Boolean), ["Keep for"]);
  await page.getByRole("checkbox", { name: "Select broken" }).uncheck();
  await page.getByRole("checkbox", { name: "Select chosen" }).last().focus();
  await page.keyboard.press("Space");
  await bar.getByRole("button", { name: "Pause 2" }).click();
  await page.locator(".toast.good", { hasText: "Paused 2 workflows." }).waitFor();
  await bar.waitFor({ state: "detached" });
  assert.deepEqual((await server.get("v1/workflows?name=chosen")).items.map(({ status }) => status), ["paused", "paused"]);
  assert.deepEqual(page.mistakes, []);
});

test("an empty list says how to begin", async () => {
  const own = await startServer();
  try {
    const page = await browser.open(`${own.page}#/workflows`);
    await page.getByText("No workflows yet").waitFor();
    await page.getByText("tidegate workflow run report.yaml").waitFor();
    await checkPage(page, "workflows-empty");
    for (const [place, text] of [["queues", "No queues yet"], ["workers", "No workers yet"], ["failures", "No failed jobs now"]]) {
      await page.goto(`${own.page}#/${place}`);
      await page.getByText(text, { exact: true }).waitFor();
    }
    assert.deepEqual(page.mistakes, []);
  } finally {
    own.stop();
  }
});

test("it looks right", async () => {
  const page = await browser.open(`${server.page}#/workflows`);
  await rows(page).first().waitFor();
  await checkPage(page, "workflows");
  await rows(page).first().getByRole("button", { name: /^Actions on/ }).click();
  await checkPage(page, "workflows-menu");
  await page.keyboard.press("Escape");
  await page.getByRole("checkbox", { name: /^Select / }).nth(1).check();
  await page.getByRole("region", { name: "Selection" }).waitFor();
  await checkPage(page, "workflows-selection");
  await page.goto(`${server.page}#/workflows?status=running`);
  await page.getByRole("button", { name: "cancel…" }).click();
  await page.locator("dialog").waitFor();
  await checkPage(page, "workflows-ask");
  assert.deepEqual(page.mistakes, []);
});
