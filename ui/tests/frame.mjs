// The frame around the pages: where one goes, the range, keys, titles, and banners.
import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { checkPage, NARROW, overflow, picture, serious, startBrowser } from "./parts/browser.mjs";
import { startServer } from "./parts/server.mjs";

let root, server, browser;
const write = (unit) => writeFileSync(join(root, "config", "shop.yaml"), `domain: shop\ndescriptors:\n  - key: user\n    rate_limit: { unit: ${unit}, requests_per_unit: 3 }\n`);
before(async () => {
  root = mkdtempSync(join(tmpdir(), "tidegate-frame-"));
  mkdirSync(join(root, "config"));
  write("hour");
  [server, browser] = await Promise.all([startServer({ settings: { RUNTIME_ROOT: root } }), startBrowser()]);
  await server.create({ name: "order", jobs: [{ name: "charge", handler: "h", queue: "frame" }] });
  const [{ lease }] = await server.claim("frame");
  await server.report({ lease, outcome: "failed", error: { kind: "E", message: "no" }, retry: "never" });
  await server.create({ name: "runs", jobs: [{ name: "a", handler: "h", queue: "other" }] });
});
after(async () => {
  await browser?.close();
  server?.stop();
  rmSync(root, { recursive: true });
});

const hash = (page) => page.evaluate(() => location.hash);

test("the rail leads to each page, and counts what runs and what failed", async () => {
  const page = await browser.open(`${server.page}#/overview`);
  const rail = page.locator(".rail");
  for (const name of ["Limits", "Workflows", "Queues", "Workers", "Failures", "Overview"]) {
    await rail.getByRole("link", { name }).click();
    await page.getByRole("heading", { name, exact: true, level: 1 }).waitFor();
    assert.equal(await rail.locator("[aria-current=page]").innerText().then((text) => text.split("\n")[0].trim().split(/\d/)[0]), name);
    assert.equal(await page.title(), `${name} - Tidegate`);
  }
  await rail.locator(".badge.bad", { hasText: "1" }).waitFor();
  await rail.locator(".badge.run", { hasText: "1" }).waitFor();
  await rail.getByText("Healthy").waitFor();
  await page.goto(`${server.page}#/nowhere`);
  await page.getByRole("heading", { name: "Not found" }).waitFor();
  assert.deepEqual(page.mistakes, []);
});

test("the range of time is one for all pages, and stands in the address", async () => {
  const page = await browser.open(`${server.page}#/overview`);
  const range = page.getByRole("group", { name: "Time range" });
  await range.getByRole("button", { name: "1h" }).click();
  assert.equal(await hash(page), "#/overview?range=1h");
  await page.locator(".rail").getByRole("link", { name: "Queues" }).click();
  await page.getByRole("heading", { name: "Queues", exact: true }).waitFor();
  // It stays, and is not shown where nothing is of a range.
  assert.equal(await hash(page), "#/queues?range=1h");
  assert.equal(await range.count(), 0);
  await page.keyboard.press("]");
  await page.locator(".rail").getByRole("link", { name: "Limits" }).click();
  await page.getByRole("heading", { name: "Limits", exact: true }).waitFor();
  assert.equal(await range.locator("[aria-pressed=true]").innerText(), "1h");
  await page.keyboard.press("]");
  assert.equal(await hash(page), "#/limits?range=24h");
  for (const _ of "ab") await page.keyboard.press("[");
  assert.equal(await hash(page), "#/limits");
  assert.deepEqual(page.mistakes, []);
});

test("keys go to pages and show what keys there are, but not while a field has the keyboard", async () => {
  const page = await browser.open(`${server.page}#/overview`);
  await page.locator(".top h1").click();
  for (const [key, name] of [["l", "Limits"], ["w", "Workflows"], ["q", "Queues"], ["k", "Workers"], ["f", "Failures"], ["o", "Overview"]]) {
    await page.keyboard.press("g");
    await page.keyboard.press(key);
    await page.getByRole("heading", { name, exact: true, level: 1 }).waitFor();
  }
  await page.keyboard.press("?");
  await page.getByRole("dialog").getByText("Keyboard shortcuts").waitFor();
  await picture(page, "shortcuts");
  await page.keyboard.press("Escape");
  await page.getByRole("dialog").waitFor({ state: "detached" });
  await page.goto(`${server.page}#/queues`);
  await page.getByLabel("Filter").fill("");
  await page.keyboard.type("gl?[");
  assert.equal(await page.getByLabel("Filter").inputValue(), "gl?[");
  assert.equal(await hash(page), "#/queues?q=gl%3F%5B");
  const { items } = await server.get("v1/workflows?name=order");
  await page.goto(`${server.page}#/workflows/${items[0].id}?job=charge`);
  await page.locator("aside.drawer").waitFor();
  await page.waitForFunction(() => /^order failed - Tidegate$/.test(document.title));
  await page.locator(".top h1").click();
  await page.keyboard.press("Escape");
  await page.locator("aside.drawer").waitFor({ state: "detached" });
  assert.deepEqual(page.mistakes, []);
});

test("the theme is chosen, and stays", async () => {
  const page = await browser.open(`${server.page}#/overview`);
  for (const theme of ["light", "dark"]) {
    await page.getByRole("button", { name: /^Theme/ }).click();
    assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), theme);
  }
  await page.reload();
  await page.getByRole("button", { name: "Theme: dark" }).waitFor();
  await page.getByRole("button", { name: /^Theme/ }).click();
  assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), undefined);
  assert.deepEqual(page.mistakes, []);
});

test("the frame fits every width, with all pages within reach", async () => {
  const page = await browser.open(`${server.page}#/workflows`);
  await page.locator("tbody a").first().waitFor();
  for (const width of [390, 719, 720, 768, 960, 1024, 1100, 1280, 1399, 1440]) {
    await page.setViewportSize({ width, height: 844 });
    assert.deepEqual(await overflow(page), [], `${width}`);
    assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), width);
    if ([390, 768].includes(width)) assert.deepEqual(await serious(page), []);
    await picture(page, `frame-${width}`);
  }
  await page.setViewportSize(NARROW);
  await page.getByRole("button", { name: "More" }).click();
  await page.getByRole("dialog").getByRole("link", { name: "Queues" }).click();
  await page.getByRole("heading", { name: "Queues", exact: true }).waitFor();
  assert.equal(await page.getByRole("dialog").count(), 0);
  assert.deepEqual(page.mistakes, []);
});

test("a configuration that is refused is said on every page, and leads to its mistakes", async () => {
  const page = await browser.open(`${server.page}#/queues`);
  await page.getByRole("heading", { name: "Queues" }).waitFor();
  write("fortnight");
  const banner = page.locator(".banner", { hasText: "The newest configuration was refused" });
  await banner.waitFor({ timeout: 20_000 });
  await page.locator(".rail .dot").waitFor();
  await checkPage(page, "banner-refused");
  await banner.getByRole("link", { name: "Show the mistake" }).click();
  await page.getByText("The latest configuration was refused").waitFor();
  write("hour");
  await banner.waitFor({ state: "detached", timeout: 20_000 });
  assert.deepEqual(page.mistakes, []);
});

test("a server that is gone is said once, before what else is wrong, and actions are off", async () => {
  const own = await startServer();
  try {
    await own.create({ name: "one", jobs: [{ name: "a", handler: "h", queue: "gone" }] });
    const page = await browser.open(`${own.page}#/queues`);
    const pause = page.getByRole("button", { name: "Pause", exact: true });
    await pause.waitFor();
    await own.crash();
    const banner = page.locator(".banner", { hasText: "Server unreachable since" });
    await banner.waitFor({ timeout: 20_000 });
    assert.ok(await pause.isDisabled());
    assert.equal(await page.locator(".banner").count(), 1);
    assert.equal(await page.locator("main .problem").count(), 0);
    await page.locator(".mark", { hasText: "Offline" }).waitFor();
    await page.locator(".rail").getByText("Unreachable").waitFor();
    await banner.getByRole("button", { name: "Try now" }).click();
    await checkPage(page, "banner-unreachable");
    assert.deepEqual(page.mistakes, []);
  } finally {
    own.stop();
  }
});
