// Who may see and do what: tokens, roles, and that a token is kept by the browser only.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { checkPage, startBrowser } from "./parts/browser.mjs";
import { startServer } from "./parts/server.mjs";

const tokens = { read: "read-token-0b5e6f1d2c3a4957", work: "work-token-77a1c2d3e4f50617", admin: "admin-token-c3f9a1b2d4e5f607" };
let server, browser, id, pending;
before(async () => {
  server = await startServer({ tokens: Object.entries(tokens).map(([role, token]) => `${role} ${role}-name ${token}\n`).join("") });
  browser = await startBrowser();
  ({ id } = await server.create({ name: "report", jobs: [{ name: "fetch", handler: "h", queue: "web" }] }));
  ({ id: pending } = await server.create({ name: "later", start: "manual", jobs: [{ name: "fetch", handler: "h", queue: "web" }] }));
});
after(async () => {
  await browser?.close();
  server?.stop();
});

async function signIn(page, token) {
  await page.getByLabel("Token").fill(token);
  await page.getByRole("button", { name: "Sign in" }).click();
}

/** All that changes something. */
const VERBS = ".action, .curl-button, .mark-succeeded, .acts button, .menu-place, .selection, .check, aside footer button";

test("a wrong token is refused, and a right one is never in the page, its address or its storage", async () => {
  const page = await browser.open(`${server.page}#/workflows`);
  const requests = [];
  page.on("request", (request) => requests.push([request.method(), request.url()]));
  await signIn(page, "wrong-token-wrong-token-12");
  await page.locator(".problem", { hasText: "This token is not known" }).waitFor();
  await checkPage(page, "sign-in");
  await signIn(page, tokens.admin);
  await page.getByRole("link", { name: "report" }).click();
  await page.locator(".mark.live").waitFor();
  await page.getByRole("button", { name: "Other actions" }).click();
  const line = await page.locator("pre.curl").innerText();
  assert.ok(line.includes('-H "Authorization: Bearer $TIDEGATE_TOKEN"'), line);
  const kept = await page.evaluate(() => JSON.stringify([document.cookie, { ...localStorage }, { ...sessionStorage }, document.documentElement.outerHTML, location.href]));
  for (const text of [kept, JSON.stringify(requests)]) assert.ok(!text.includes(tokens.admin));
  const [cookie] = await page.context().cookies();
  assert.deepEqual([cookie.httpOnly, cookie.sameSite], [true, "Strict"]);
  await page.keyboard.press("Escape");
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.getByRole("heading", { name: "Sign in to Tidegate" }).waitFor();
  assert.deepEqual(page.mistakes, []);
});

test("an admin acts, and sees a workflow as it changes", async () => {
  const page = await browser.open(`${server.page}#/workflows/${id}`);
  await signIn(page, tokens.admin);
  await page.getByRole("button", { name: "Pause", exact: true }).click();
  await page.locator(".head .pill.paused").waitFor();
  await page.getByRole("button", { name: "Resume", exact: true }).click();
  await page.locator(".head .pill.running").waitFor();
});

test("with a read token there is no action", async () => {
  const page = await browser.open(`${server.page}#/workflows`);
  await signIn(page, tokens.read);
  await page.getByText("read only").waitFor();
  await page.getByRole("link", { name: "report" }).waitFor();
  assert.equal(await page.locator(VERBS).count(), 0);
  for (const one of [`${id}?job=fetch`, pending]) {
    await page.goto(`${server.page}#/workflows/${one}`);
    await page.locator('[aria-label="Jobs"] a').first().waitFor();
    await page.waitForTimeout(300);
    assert.equal(await page.locator(VERBS).count(), 0);
  }
  assert.deepEqual(page.mistakes, []);
});

test("with a work token workflows can be started, and nothing else", async () => {
  const page = await browser.open(`${server.page}#/workflows/${pending}`);
  await signIn(page, tokens.work);
  await page.getByRole("button", { name: "Start", exact: true }).waitFor();
  assert.equal(await page.locator(".acts button").count(), 2);
  await page.getByRole("button", { name: "Other actions" }).click();
  assert.deepEqual(await page.getByRole("menuitem").allInnerTexts(), ["Start"]);
  await page.keyboard.press("Escape");
  await page.getByRole("button", { name: "Start", exact: true }).click();
  await page.locator(".head .pill.running").waitFor();
  assert.equal(await page.locator(VERBS).count(), 0);
});
