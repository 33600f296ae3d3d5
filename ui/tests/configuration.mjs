// The configuration on the page of limits: its tree, live hits, mistakes of a load that was refused, and its buttons.
import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { checkPage, startBrowser } from "./parts/browser.mjs";
import { startServer } from "./parts/server.mjs";

const script = `"><img src=x onerror=alert(1)>`;
const shop = `domain: shop
descriptors:
  - key: user
    rate_limit: { unit: hour, requests_per_unit: 3, name: per-user }
  - key: path
    value: /api/*
    share_threshold: true
    rate_limit: { unit: hour, requests_per_unit: 100 }
    shadow_mode: true
  - key: plan
    value: free
    descriptors:
      - key: region
        descriptors:
          - { key: tenant, rate_limit: { unit: day, requests_per_unit: 1000 }, detailed_metric: true }
      - { key: admin, rate_limit: { unlimited: true } }
`;
const hostile = `domain: ${JSON.stringify(script)}
descriptors:
  - { key: ${JSON.stringify(script)}, value: "a,b=c \\u202Etxt", rate_limit: { unit: hour, requests_per_unit: 5, name: ${JSON.stringify(script)} } }
  - { key: ${"w".repeat(190)}, value: ${"x".repeat(600)}, rate_limit: { unit: hour, requests_per_unit: 5 } }
`;

let root, server, large, browser;
const write = (name, text) => writeFileSync(join(root, "config", name), text);

before(async () => {
  root = mkdtempSync(join(tmpdir(), "tidegate-configuration-"));
  mkdirSync(join(root, "config"));
  write("shop.yaml", shop);
  write("zoo.yaml", hostile);
  const many = mkdtempSync(join(root, "many-"));
  mkdirSync(join(many, "config"));
  const rows = Array.from({ length: 50_000 }, (_, at) => `  - { key: tenant, value: t${at}, rate_limit: { unit: hour, requests_per_unit: ${at} } }`);
  writeFileSync(join(many, "config", "many.yaml"), `domain: many\ndescriptors:\n${rows.join("\n")}\n`);
  writeFileSync(join(many, "config", "other.yaml"), "domain: other\ndescriptors:\n  - { key: k, rate_limit: { unit: hour, requests_per_unit: 1 } }\n");
  [server, large, browser] = await Promise.all([
    startServer({ settings: { RUNTIME_ROOT: root } }),
    startServer({ settings: { RUNTIME_ROOT: many } }),
    startBrowser(),
  ]);
});
after(async () => {
  await browser?.close();
  server?.stop();
  large?.stop();
  rmSync(root, { recursive: true });
});

const tree = (page) => page.getByRole("treegrid", { name: "Configuration" });
/** The row whose first cell begins so. */
const row = (page, name) => tree(page).locator("tr[aria-level]").filter({ has: page.locator("th", { hasText: name }) }).first();
const cells = async (page, name) => (await row(page, name).locator("td").allInnerTexts()).map((text) => text.replaceAll(/\s+/g, " ").trim());
const decide = (user) => server.decide({ domain: "shop", descriptors: [{ entries: [{ key: "user", value: user }] }] });

async function become(what, condition) {
  for (let tries = 0; tries < 150; tries++) {
    if (await condition()) return;
    await new Promise((end) => setTimeout(end, 100));
  }
  assert.fail(`it never became so: ${what}`);
}

test("the tree shows each limit with its marks, and its hits as they come", async () => {
  const page = await browser.open(`${server.page}#/limits`);
  await row(page, "tenant").waitFor();
  assert.match((await cells(page, "user"))[0], /^3 \/ h ?per-user$/);
  assert.match((await cells(page, "path=/api/*"))[0], /^100 \/ h ?shadow$/);
  assert.equal((await cells(page, "admin"))[0], "unlimited");
  assert.equal(await row(page, "tenant").getAttribute("aria-level"), "4");
  assert.equal((await cells(page, "tenant")).at(-2), "config/shop.yaml:15");
  for (let at = 0; at < 5; at++) await decide("ada");
  await become("five hits, two refused", async () => {
    const [, used, busiest, hits, refused, share, , state] = await cells(page, "user");
    return used === "3 of 3" && busiest === "ada, of 1" && Number(hits) > 0 && Number(refused) > 0 && share === "40%" && state === "1 full";
  });
  for (const [chip, count] of [["Refusing", 1], ["Near", 1], ["Paused", 0]]) {
    await page.getByRole("button", { name: new RegExp(`^${chip}`) }).click();
    await become(`chosen by ${chip}`, async () => (await page.getByRole("treegrid", { name: "Chosen" }).locator("tr[aria-level]").count()) === count);
  }
  await page.getByRole("button", { name: /^All/ }).click();
  await checkPage(page, "configuration");
  await tree(page).scrollIntoViewIfNeeded();
  assert.equal(await page.locator("main img, main script").count(), 0);
  assert.ok(!(await page.locator("main").innerText()).includes("\u202e"));
  assert.deepEqual(page.mistakes, []);
});

test("a row has the hits of the last minutes as a line, and a limit's page has them as a chart", async () => {
  const page = await browser.open(`${server.page}#/limits`);
  // Two steps of ten seconds make a line.
  await row(page, "user").locator(".spark path[d*=L]").first().waitFor({ state: "attached", timeout: 40_000 });
  await page.goto(`${server.page}#/limits/shop/user`);
  await page.getByRole("group", { name: /^Hits:/ }).waitFor();
  assert.match(await page.locator("figure", { hasText: "Allowed" }).innerText(), /Refused/);
  assert.deepEqual(page.mistakes, []);
});

test("rows fold and open with a button and with the keys of a tree", async () => {
  const page = await browser.open(`${server.page}#/limits`);
  await row(page, "tenant").waitFor();
  await row(page, "shop").getByRole("button", { name: "fold shop" }).click();
  await row(page, "tenant").waitFor({ state: "detached" });
  await page.keyboard.press("ArrowRight");
  await row(page, "tenant").waitFor();
  await page.keyboard.press("ArrowDown");
  const focused = () => page.evaluate(() => document.activeElement.innerText);
  assert.match(await focused(), /^user/);
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("ArrowDown");
  assert.match(await focused(), /plan=free/);
  await page.keyboard.press("ArrowLeft");
  await row(page, "tenant").waitFor({ state: "detached" });
  await page.keyboard.press("ArrowLeft");
  assert.match(await focused(), /shop/);
  await page.keyboard.press("End");
  assert.match(await focused(), /^w/);
  await row(page, "plan=free").getByRole("button", { name: "open plan=free" }).click();
  assert.deepEqual(page.mistakes, []);
});

const menu = async (page, name) => {
  await row(page, name).getByRole("button", { name: "Actions of" }).click();
  return page.locator("dialog");
};

test("a limit fills the forms", async () => {
  const page = await browser.open(`${server.page}#/limits`);
  await (await menu(page, "path=/api/*")).getByRole("button", { name: "Test a request" }).click();
  const check = page.getByRole("region", { name: "Test a request" });
  assert.equal(await check.getByLabel("domain").inputValue(), "shop");
  assert.equal(await check.getByLabel("entries").inputValue(), "path=/api/*");
  await (await menu(page, "a,b=c")).getByRole("button", { name: "Test a request" }).click();
  await check.getByRole("button", { name: "Test", exact: true }).click();
  await check.getByRole("status", { name: "Answer" }).getByText("5 per hour").waitFor();
  await (await menu(page, "user")).getByRole("button", { name: "Pause…" }).click();
  const form = page.locator("dialog");
  assert.equal(await form.getByLabel("or all keys of").inputValue(), "shop.user");
  await form.getByRole("button", { name: "Pause", exact: true }).click();
  await become("paused", async () => (await server.get("v1/limits/overrides")).items[0]?.rule === "shop.user");
  await tree(page).getByText("Paused by anonymous for jobs until").waitFor();
  await page.locator(".toast").getByRole("button", { name: "Undo" }).click();
  await become("resumed", async () => (await server.get("v1/limits/overrides")).items.length === 0);
  assert.deepEqual(page.mistakes, []);
});

test("a refusal leads to its limit in one click, which says where it is written", async () => {
  for (let at = 0; at < 5; at++) await decide("cleo");
  const page = await browser.open(`${server.page}#/overview`);
  await page.locator('[aria-label="Refused"] a', { hasText: "user=cleo" }).click();
  await page.getByRole("heading", { name: /shop \/ user=\*/ }).waitFor();
  await page.getByText("config/shop.yaml:3").first().waitFor();
  await page.locator('[aria-label="Keys of the limit"] tr.on', { hasText: "cleo" }).waitFor();
  await checkPage(page, "limit");
  await page.getByRole("button", { name: "Pause", exact: true }).click();
  assert.equal(await page.locator("dialog").getByLabel("entries").inputValue(), "user=cleo");
  await page.keyboard.press("Escape");
  for (const place of ["shop/nothing", "nothing/user", "shop/[1]", "shop"]) {
    await page.goto(`${server.page}#/limits/${place}`);
    await page.getByText("Not found. It may have been removed.").waitFor();
    await page.goto(`${server.page}#/limits`);
    await row(page, "user").waitFor();
  }
  assert.deepEqual(page.mistakes, []);
});

test("keys open a limit and its actions", async () => {
  const page = await browser.open(`${server.page}#/limits`);
  await row(page, "path=/api/*").focus();
  await page.keyboard.press("m");
  await page.locator("dialog").getByRole("link", { name: "Open the limit" }).waitFor();
  await page.keyboard.press("Escape");
  await row(page, "path=/api/*").focus();
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: /path=\/api\/\*/ }).waitFor();
  assert.deepEqual(page.mistakes, []);
});

test("the charts share one crosshair, and a drag selects a range", async () => {
  const page = await browser.open(`${server.page}#/overview`);
  const plots = page.locator(".plot[tabindex]");
  await plots.nth(2).waitFor();
  await plots.first().focus();
  await page.keyboard.press("ArrowLeft");
  await page.locator(".tip").getByText("UTC").waitFor();
  assert.equal(await page.locator(".cross").count(), 3);
  assert.equal(await page.locator(".tip").count(), 1);
  const box = await plots.first().boundingBox();
  const span = () => page.evaluate(() => document.querySelectorAll(".drag").length);
  await page.mouse.move(box.x + 200, box.y + 80);
  await page.mouse.down();
  await page.mouse.move(box.x + 400, box.y + 80);
  assert.equal(await span(), 1);
  await page.mouse.up();
  assert.equal(await span(), 0);
  await page.mouse.dblclick(box.x + 200, box.y + 80);
  assert.deepEqual(page.mistakes, []);
});

test("a mistake stands where it is until it is repaired, and the limits before it are in force", async () => {
  const page = await browser.open(`${server.page}#/limits`);
  await row(page, "user").waitFor();
  write("shop.yaml", shop.replace("unit: hour", "unit: fortnight").replace("requests_per_unit: 1000", "requests_per_unit: many"));
  const alert = page.getByRole("alert").filter({ hasText: "was refused" });
  await alert.waitFor({ timeout: 20_000 });
  const alertText = await alert.innerText();
  assert.match(alertText, /config\/shop\.yaml:4:\d+ invalid rate limit unit 'fortnight'/);
  assert.match(alertText, /stays in force/);
  assert.match(await row(page, "shop").innerText(), /Not loaded: config\/shop\.yaml:4:\d+/);
  assert.match((await cells(page, "user"))[0], /^3 \/ h/);
  await checkPage(page, "configuration-refused");
  write("shop.yaml", shop.replace("requests_per_unit: 3", "requests_per_unit: 7"));
  await alert.waitFor({ state: "detached", timeout: 20_000 });
  await become("the new limit", async () => /^7 \/ h/.test((await cells(page, "user"))[0]));
  assert.doesNotMatch(await row(page, "shop").innerText(), /Not loaded/);
  assert.deepEqual(page.mistakes, []);
});

test("a large configuration is folded, and is shown a page at a time", async () => {
  const page = await browser.open(`${large.page}#/limits`);
  await row(page, "other").waitFor();
  assert.equal(await tree(page).locator("tr[aria-level]").count(), 2);
  await row(page, "many").getByRole("button", { name: "open many" }).click();
  await row(page, "tenant=t99").waitFor();
  assert.ok((await tree(page).locator("tr[aria-level]").count()) <= 102);
  await tree(page).getByRole("button", { name: "Next" }).click();
  await row(page, "tenant=t150").waitFor();
  await tree(page).getByRole("button", { name: "Previous" }).click();
  await row(page, "tenant=t0").waitFor();
  await checkPage(page, "configuration-large");
  await page.getByLabel("Filter").fill("49999");
  const found = page.getByRole("treegrid", { name: "Found in the configuration" });
  await found.getByText("many tenant=t49999").waitFor();
  assert.equal(await found.locator("tr[aria-level]").count(), 1);
  await page.getByLabel("Filter").fill("");
  await row(page, "tenant=t0").waitFor();
  assert.deepEqual(page.mistakes, []);
});
