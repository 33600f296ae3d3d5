// Every action of the page with the keyboard alone.
import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { checkPage, startBrowser } from "./parts/browser.mjs";
import { startServer } from "./parts/server.mjs";

let root, server, browser;
before(async () => {
  root = mkdtempSync(join(tmpdir(), "tidegate-keys-"));
  mkdirSync(join(root, "config"));
  writeFileSync(join(root, "config", "shop.yaml"), "domain: shop\ndescriptors:\n  - key: user\n    rate_limit: { unit: hour, requests_per_unit: 3 }\n");
  [server, browser] = await Promise.all([startServer({ settings: { RUNTIME_ROOT: root } }), startBrowser()]);
});
after(async () => {
  await browser?.close();
  server?.stop();
  rmSync(root, { recursive: true });
});

const failed = ({ lease }) => ({ lease, outcome: "failed", error: { kind: "E", message: "no" }, retry: "never" });

/** A workflow of one job that has failed. */
async function broken(name) {
  const { id } = await server.create({ name, jobs: [{ name: "charge", handler: "h", queue: name }] });
  await server.report(...(await server.claim(name)).map(failed));
  return id;
}

async function become(what, condition) {
  for (let tries = 0; tries < 100; tries++) {
    if (await condition()) return;
    await new Promise((end) => setTimeout(end, 100));
  }
  assert.fail(`it never became so: ${what}`);
}

const press = async (page, ...keys) => {
  for (const key of keys) await page.keyboard.press(key);
};

/** The name of what has the keyboard. */
const focused = (page) => page.evaluate(() => {
  const own = document.activeElement;
  return own?.ariaLabel || own?.innerText?.trim() || own?.getAttribute("name") || own?.tagName;
});

/** Tab until what has the keyboard has this name. */
async function tabTo(page, name) {
  for (let tries = 0; tries < 80; tries++) {
    if (new RegExp(name).test(await focused(page))) return;
    await press(page, "Tab");
  }
  assert.fail(`Tab never came to ${name}`);
}

/** Arrow down to an entry of the palette. */
async function mark(page, pattern) {
  const marked = page.locator("[role=option][aria-selected=true]");
  for (let tries = 0; tries < 40 && !pattern.test(await marked.innerText()); tries++) await press(page, "ArrowDown");
  assert.match(await marked.innerText(), pattern);
}

/** Enter on a verb of the open menu. */
async function choose(page, verb) {
  await page.locator("[role=menu], dialog .menu").waitFor();
  const verbs = await page.locator("[role=menuitem]").allInnerTexts();
  for (let at = 0; at < verbs.length && !(await focused(page)).startsWith(verb); at++) await press(page, "ArrowDown");
  assert.ok((await focused(page)).startsWith(verb), `${verb} of ${verbs}`);
  await press(page, "Enter");
}

/** Enter on a button of the dialog. */
async function answer(page, verb) {
  await page.locator("dialog").waitFor();
  await tabTo(page, `^${verb}`);
  await press(page, "Enter");
  await page.locator("dialog").waitFor({ state: "detached" });
}

const statusOf = async (id) => (await server.get(`v1/workflows/${id}`)).status;
const jobOf = (id) => server.get(`v1/workflows/${id}/jobs/charge`);

test("a workflow: retry, pause, resume, cancel, keep for, remove", async () => {
  const id = await broken("one");
  const page = await browser.open(`${server.page}#/workflows/${id}`);
  await page.getByRole("button", { name: "Retry failed" }).waitFor();
  await press(page, "r");
  assert.equal(await focused(page), "Retry failed");
  await press(page, "Enter");
  await become("running", async () => (await statusOf(id)) === "running");
  for (const [button, status] of [["Pause", "paused"], ["Resume", "running"]]) {
    await page.getByRole("button", { name: button, exact: true }).waitFor();
    await press(page, "p", "Enter");
    await become(status, async () => (await statusOf(id)) === status);
  }
  await page.getByRole("button", { name: "Pause", exact: true }).waitFor();
  await press(page, "m");
  await choose(page, "Cancel");
  await page.locator("dialog").waitFor();
  assert.equal(await focused(page), "Cancel");
  await press(page, "Escape");
  await page.locator("dialog").waitFor({ state: "detached" });
  assert.equal(await focused(page), "Other actions");
  await press(page, "m");
  await choose(page, "Cancel");
  await answer(page, "Cancel the workflow");
  await become("cancelled", async () => (await statusOf(id)) === "cancelled");
  await page.getByRole("button", { name: "Retry failed" }).waitFor();
  const { expires_at } = await server.get(`v1/workflows/${id}`);
  await press(page, "m");
  await choose(page, "Keep for");
  await answer(page, "Keep");
  await become("kept", async () => (await server.get(`v1/workflows/${id}`)).expires_at !== expires_at);
  await press(page, "m");
  await choose(page, "Remove");
  await answer(page, "Remove the workflow");
  await page.getByRole("heading", { name: "Workflows", exact: true }).waitFor();
  assert.equal((await server.get("v1/workflows:count?name=one")).total, 0);
  assert.deepEqual(page.mistakes, []);
});

test("a job: tabs, skip, mark succeeded, retry", async () => {
  const id = await broken("jobs");
  const page = await browser.open(`${server.page}#/workflows/${id}`);
  await page.locator('[aria-label="Jobs"] tbody a').waitFor();
  await press(page, "j", "Enter");
  const drawer = page.getByRole("complementary", { name: "Job" });
  for (const [key, tab] of [["o", "Output"], ["l", "Log"], ["e", "Error"]]) {
    await drawer.getByRole("tab", { name: tab }).waitFor();
    await press(page, key);
    assert.match(await focused(page), new RegExp(`^${tab}`));
    await drawer.locator(`[aria-selected=true]#tab-${tab}`).waitFor();
  }
  await tabTo(page, "^Retry job$");
  await press(page, "Enter");
  await become("ready", async () => (await jobOf(id)).state === "ready");
  await drawer.getByRole("button", { name: "Cancel job" }).waitFor();
  await press(page, "m");
  await choose(page, "Skip");
  await answer(page, "Skip the job");
  await become("skipped", async () => (await jobOf(id)).state === "skipped");
  await drawer.locator(".pill.skipped").waitFor();
  await press(page, "m");
  await choose(page, "Mark succeeded");
  await drawer.getByLabel("Output, as JSON").waitFor();
  await press(page, "Shift+Tab");
  for (let tries = 0; tries < 40 && (await focused(page)) !== "TEXTAREA"; tries++) await press(page, "Shift+Tab");
  await press(page, "Control+a");
  await page.keyboard.type("[1]");
  await tabTo(page, "^Mark as succeeded$");
  await press(page, "Enter");
  await become("succeeded", async () => (await jobOf(id)).state === "succeeded");
  await press(page, "Escape");
  await drawer.waitFor({ state: "detached" });
  assert.equal(await focused(page), "charge");
  assert.deepEqual(page.mistakes, []);
});

test("the log: search, next hit, follow", async () => {
  const { id } = await server.create({ name: "says", jobs: [{ name: "charge", handler: "h", queue: "says" }] });
  const [{ lease }] = await server.claim("says");
  await server.post("v1/jobs/extend", { leases: [], notes: [{ lease, log: ["page 1", "other", "page 2"] }] });
  const page = await browser.open(`${server.page}#/workflows/${id}?job=charge`);
  const drawer = page.getByRole("complementary", { name: "Job" });
  await drawer.getByText("page 2").waitFor();
  await press(page, "/");
  await page.keyboard.type("page");
  await drawer.getByText("2 hits").waitFor();
  const hit = (at) => page.waitForFunction((at) => [...document.querySelectorAll("aside.drawer mark")].findIndex((one) => one.classList.contains("on")) === at, at);
  await press(page, "Enter");
  await hit(0);
  for (const [key, at] of [["n", 1], ["n", 0], ["N", 1]]) {
    await press(page, key);
    await hit(at);
  }
  const follow = drawer.getByRole("button", { name: "Follow" });
  const was = await follow.getAttribute("aria-pressed");
  await press(page, "f");
  await drawer.locator(`button[aria-pressed=${was === "true" ? "false" : "true"}]`, { hasText: "Follow" }).waitFor();
  assert.deepEqual(page.mistakes, []);
});

test("the list: rows, a selection by range, and the menu of a row", async () => {
  for (let at = 0; at < 4; at++) await broken(`row-${at}`);
  const page = await browser.open(`${server.page}#/workflows?status=failed`);
  await page.getByRole("link", { name: "row-0" }).waitFor();
  await press(page, "j");
  assert.equal(await focused(page), "row-3");
  await press(page, "j", "ArrowDown", "k");
  assert.equal(await focused(page), "row-2");
  await press(page, "x", "j", "j", "Shift+X");
  const bar = page.getByRole("region", { name: "Selection" });
  await bar.getByText("3 selected").waitFor();
  await press(page, "x");
  await bar.getByText("2 selected").waitFor();
  await press(page, "m");
  await choose(page, "Retry failed");
  await become("one less", async () => (await server.get("v1/workflows:count?status=failed")).total === 3);
  await page.getByRole("link", { name: "row-0" }).waitFor({ state: "detached" });
  await press(page, "/");
  await page.keyboard.type("xm?");
  await bar.getByText("2 selected").waitFor();
  assert.equal(await page.locator("dialog, [role=menu]").count(), 0);
  assert.deepEqual(page.mistakes, []);
});

test("a queue is paused and resumed, a worker is drained and undrained", async () => {
  await broken("queue-1");
  for (const [place, name, path, verbs] of [
    ["queues", "queue-1", "v1/queues", [["Pause", (one) => one.paused], ["Resume", (one) => !one.paused]]],
    ["workers", "tests-1", "v1/workers", [["Drain", (one) => one.draining_since], ["Undrain", (one) => !one.draining_since]]],
  ]) {
    const page = await browser.open(`${server.page}#/${place}`);
    await page.locator("[data-filter]").waitFor();
    await press(page, "/");
    await page.keyboard.type(name);
    await page.getByRole("link", { name }).waitFor();
    await press(page, "Tab");
    await tabTo(page, `^${name}$`);
    await press(page, "Enter");
    const drawer = page.locator("aside.drawer");
    for (const [verb, is] of verbs) {
      await drawer.getByRole("button", { name: verb, exact: true }).waitFor();
      await press(page, "m");
      await choose(page, verb);
      await become(verb, async () => is((await server.get(path)).items.find((one) => one.name === name)));
    }
    await press(page, "Escape");
    await drawer.waitFor({ state: "detached" });
    assert.equal(await focused(page), name);
    assert.deepEqual(page.mistakes, []);
  }
});

test("a limit: pause, scale, remove both, test a request", async () => {
  const page = await browser.open(`${server.page}#/limits`);
  await page.getByRole("link", { name: "user=*" }).waitFor();
  const overrides = async () => (await server.get("v1/limits/overrides")).items;
  await press(page, "j", "j", "p");
  await answer(page, "Pause");
  await become("paused", async () => (await overrides()).length === 1);
  await press(page, "s");
  await answer(page, "Scale");
  await become("scaled", async () => (await overrides()).length === 2);
  await page.locator("tr.why").nth(1).waitFor();
  for (const left of [1, 0]) {
    await tabTo(page, "^Resume|^Remove");
    await press(page, "Enter");
    await become(`${left} left`, async () => (await overrides()).length === left);
    await page.locator("tr.why").nth(left).waitFor({ state: "detached" });
    await page.evaluate(() => document.activeElement?.blur());
    await press(page, "j", "j");
  }
  await press(page, "t");
  await page.waitForFunction(() => document.activeElement?.getAttribute("name") === "entries");
  await press(page, "Control+a");
  await page.keyboard.type("user=me");
  await press(page, "Enter");
  await page.getByRole("status", { name: "Answer" }).getByText("Would be allowed").waitFor();
  assert.deepEqual(page.mistakes, []);
});

test("the theme and the shortcuts of each page", async () => {
  const page = await browser.open(`${server.page}#/workflows`);
  await page.locator("[data-filter]").waitFor();
  for (const [place, text] of [["workflows", "Select the row"], ["queues", "Next one in the drawer"], ["limits", "Pause, scale or test the limit"], ["overview", "crosshair"]]) {
    await page.goto(`${server.page}#/${place}`);
    await page.getByRole("heading", { name: place, level: 1 }).waitFor();
    await page.waitForTimeout(100);
    await press(page, "?");
    await page.locator("dialog").getByText(text).waitFor();
    await press(page, "Escape");
    await page.locator("dialog").waitFor({ state: "detached" });
  }
  await press(page, "Control+k");
  await page.keyboard.type("theme");
  await press(page, "Enter");
  assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), "light");
  assert.deepEqual(page.mistakes, []);
});

/** Answers of the search that the test gives, each after its time. */
async function searches(page, answers) {
  await page.route(/\/v1\/search\?q=/, async (route) => {
    const q = new URL(route.request().url()).searchParams.get("q");
    const { after = 0, items = [] } = answers[q] ?? {};
    await new Promise((end) => setTimeout(end, after));
    await route.fulfill({ json: { items, more: false } }).catch(() => {});
  });
}

test("the palette goes to pages, does actions, and gives the keyboard back", async () => {
  await broken("jump");
  const page = await browser.open(`${server.page}#/queues`);
  await searches(page, {});
  await page.getByRole("link", { name: "jump" }).waitFor();
  await press(page, "j");
  const before = await focused(page);
  await press(page, "Control+k");
  await page.getByRole("combobox", { name: "Search" }).waitFor();
  await press(page, "Escape");
  await page.locator("dialog").waitFor({ state: "detached" });
  assert.equal(await focused(page), before);
  await press(page, "/", "Control+k");
  await page.keyboard.type("fail");
  await press(page, "Enter");
  await page.getByRole("heading", { name: "Failures", exact: true }).waitFor();
  await press(page, "Control+k");
  assert.match(await page.getByRole("option").first().innerText(), /Failures/);
  await page.keyboard.type("nowhere");
  await page.getByText("Nothing found").waitFor();
  await checkPage(page, "palette-empty");
  await press(page, "Escape");
  await page.goto(`${server.page}#/limits`);
  await page.getByRole("button", { name: "Pause a limit" }).waitFor();
  await press(page, "Control+k");
  await page.keyboard.type("pause a");
  await press(page, "Enter");
  await page.locator("dialog").getByLabel("Domain").waitFor();
  assert.deepEqual(page.mistakes, []);
});

test("the palette shows what the server finds, and no old answer after a newer one", async () => {
  const id = await broken("order");
  const page = await browser.open(`${server.page}#/overview`);
  await page.getByRole("button", { name: "Search or jump to" }).waitFor();
  await searches(page, {
    or: { after: 1500, items: [{ kind: "name", name: "old" }] },
    order: { items: [
      { kind: "workflow", name: "order", id, status: "failed" }, { kind: "tag", name: "orders" }, { kind: "limit", name: "user=o order", domain: "my.shop", entries: [["user", "o"], ["a b", ""]] },
      { kind: "queue", name: "order/1" }, { kind: "worker", name: "order-1" }, { kind: "handler", name: "order.charge" }, { kind: "name", name: "order" },
    ] },
  });
  const options = page.getByRole("option");
  const to = async (down, hash) => {
    await press(page, "Control+k");
    await page.keyboard.type("order");
    await options.filter({ hasText: "order.charge" }).waitFor();
    for (let at = 0; at < down; at++) await press(page, "ArrowDown");
    await press(page, "Enter");
    await page.waitForFunction((wanted) => location.hash === wanted, hash);
    // The change of the address closes what is open.
    await page.waitForTimeout(100);
  };
  await press(page, "Control+k");
  await page.keyboard.type("or");
  await page.waitForTimeout(300);
  await page.keyboard.type("der");
  await options.filter({ hasText: "order.charge" }).waitFor();
  await checkPage(page, "palette");
  await page.waitForTimeout(1500);
  assert.equal(await options.filter({ hasText: "old" }).count(), 0);
  await press(page, "Escape");
  await to(0, `#/workflows/${id}`);
  await to(1, "#/workflows?tag=orders");
  await to(2, "#/limits/my.shop/user%3Do/a%20b");
  await to(3, "#/queues/order%2F1");
  await to(4, "#/workers/order-1");
  await to(5, "#/failures?q=order.charge");
  await page.getByText("No row has this text in it").waitFor();
  await to(6, "#/workflows?name=order");
  assert.deepEqual(page.mistakes, []);
});

test("the palette shows no answer that is of another text, and says an error", async () => {
  const page = await browser.open(`${server.page}#/overview`);
  await page.evaluate(() => localStorage.setItem("tidegate-recent", "[null, 3"));
  await page.reload();
  await page.getByRole("button", { name: "Search or jump to" }).waitFor();
  await searches(page, { or: { items: [{ kind: "queue", name: "oranges" }] }, orz: { after: 3000 } });
  await press(page, "Control+k");
  await page.keyboard.type("or");
  await page.getByRole("option", { name: "oranges" }).waitFor();
  await page.keyboard.type("z");
  await page.getByText("Searching…").waitFor();
  await press(page, "Enter");
  assert.ok(await page.locator("dialog").isVisible());
  await page.unroute(/\/v1\/search\?q=/);
  await page.route(/\/v1\/search\?q=/, (route) => route.fulfill({ status: 422, contentType: "application/json", json: { code: "invalid", detail: "too long" } }));
  await page.keyboard.type("y");
  await page.locator("dialog .problem", { hasText: "too long" }).waitFor();
  assert.deepEqual(page.mistakes, []);
});

// Needs a server with GET /v1/search, whose limits have a domain and entries.
test("the palette finds what is there", async () => {
  const id = await broken("invoice-77");
  const page = await browser.open(`${server.page}#/overview`);
  await page.getByRole("button", { name: "Search or jump to" }).waitFor();
  await press(page, "Control+k");
  await page.keyboard.type("INVOICE-7");
  await page.getByRole("option", { name: /invoice-77.*Failed/ }).waitFor();
  await mark(page, /invoice-77[^]*Failed/);
  await press(page, "Enter");
  await page.waitForFunction((wanted) => location.hash.includes(wanted), id);
  await page.getByRole("heading", { name: "invoice-77" }).waitFor();
  await press(page, "Control+k");
  await page.keyboard.type("user");
  await page.getByRole("option", { name: /user.*limit/ }).waitFor();
  await mark(page, /user[^]*limit/);
  await press(page, "Enter");
  await page.getByRole("button", { name: "Pause", exact: true }).waitFor();
  assert.deepEqual(page.mistakes, []);
});
