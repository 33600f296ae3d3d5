// The questions of a new user, each answered from the start page with few clicks.
import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { startBrowser } from "./parts/browser.mjs";
import { startServer } from "./parts/server.mjs";

const MAX_CLICKS = 4;
const token = "admin-token-c3f9a1b2d4e5f607";
const shop = `domain: shop
descriptors:
  - key: tenant
    rate_limit: { unit: hour, requests_per_unit: 2 }
`;

let root, server, browser;
before(async () => {
  root = mkdtempSync(join(tmpdir(), "tidegate-questions-"));
  mkdirSync(join(root, "config"));
  writeFileSync(join(root, "config", "shop.yaml"), shop);
  [server, browser] = await Promise.all([startServer({ settings: { RUNTIME_ROOT: root }, tokens: `admin ada ${token}\n` }), startBrowser()]);
  const request = { domain: "shop", descriptors: [{ entries: [{ key: "tenant", value: "acme" }] }] };
  for (let at = 0; at < 4; at++) await server.decide(request);
  await server.put("v1/limits/overrides", { domain: "shop", entries: [["tenant", "blue"]], pause: true, for: "1h", reason: "they are down" });
  for (const [kind, count] of [["CardDeclined", 3], ["Timeout", 1]]) {
    for (let at = 0; at < count; at++) await server.create({ name: "order", jobs: [{ name: "charge", handler: "bank.charge", queue: kind }] });
    const claimed = await server.claim(kind, count);
    await server.post("v1/jobs/extend", { leases: [], notes: claimed.map(({ lease }) => ({ lease, log: [`${kind}: calls the bank`] })) });
    await server.report(...claimed.map(({ lease }) => ({ lease, outcome: "failed", error: { kind, message: "no" }, retry: "never" })));
  }
});
after(async () => {
  await browser?.close();
  server?.stop();
  if (root) rmSync(root, { recursive: true });
});

/** The start page, and a click that is counted. */
async function start() {
  const page = await browser.open(server.page);
  await page.getByLabel("Token").fill(token);
  await page.getByRole("button", { name: "Sign in" }).click();
  let clicks = 0;
  return {
    page,
    attention: page.getByRole("region", { name: "Needs attention" }),
    click: async (target) => {
      clicks += 1;
      await target.click();
    },
    /** Presses the button that has the focus. */
    enter: async (target) => {
      clicks += 1;
      await target.focus();
      await page.keyboard.press("Enter");
    },
    end: () => {
      assert.ok(clicks <= MAX_CLICKS, `${clicks} clicks`);
      assert.deepEqual(page.mistakes, []);
    },
  };
}

test("why was a request refused, and where is that limit written", async () => {
  const { page, click, end } = await start();
  const row = page.locator('[aria-label="Refused"] tbody tr', { hasText: "tenant=acme" });
  await click(row.getByRole("link", { name: "tenant=acme" }));
  await page.locator("dl.facts", { hasText: "2 per hour" }).first().waitFor();
  await page.locator('[aria-label="Definition"]').getByText("shop.yaml:3").waitFor();
  await page.locator('[aria-label="Refused"] tbody tr', { hasText: "tenant=acme" }).waitFor();
  end();
});

test("which job failed, and its log", async () => {
  const { page, attention, click, end } = await start();
  await click(attention.locator("li", { hasText: "Timeout" }).getByRole("link", { name: "charge" }));
  await click(page.getByRole("tab", { name: /^Log/ }));
  await page.getByRole("tabpanel").getByText("Timeout: calls the bank").waitFor();
  end();
});

test("who paused a key, and until when", async () => {
  const { attention, end } = await start();
  const line = attention.locator("li", { hasText: "tenant=blue is paused" });
  await line.waitFor();
  assert.match(await line.innerText(), /Paused by ada for jobs until .*\d\d:\d\d.*\(in \d+m .*they are down/);
  end();
});

test("retry all failures of one error", async () => {
  const { page, attention, click, enter, end } = await start();
  await click(attention.getByRole("link", { name: "All failures" }));
  const row = page.locator('[aria-label="Failures"] tbody tr', { hasText: "CardDeclined" });
  await enter(row.getByRole("button", { name: "Retry all" }));
  await enter(page.getByRole("button", { name: "Retry 3 workflows" }));
  await page.getByText("Retried the failed jobs of 3 workflows.").waitFor();
  await row.waitFor({ state: "detached" });
  const { by_status } = await server.get("v1/workflows:count");
  assert.deepEqual([by_status.failed, by_status.running], [1, 3]);
  end();
});
