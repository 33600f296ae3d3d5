// Texts of others do no harm: scripts, a megabyte, other directions, deep JSON.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { checkPage, startBrowser } from "./parts/browser.mjs";
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

const script = `"><img src=x onerror=alert(1)><script>alert(2)</script>`;
const names = {
  script,
  turned: "abc \u202etxt.exe \u2066 \u05d0\u05d1\u05d2 \u0645\u0631\u062d\u0628\u0627",
  path: "../../a/b?x=1#y&z=%2e:retry",
  long: "w".repeat(190),
  zeroWidth: "a\u200bb\ufeffc",
  unseen: "a\u00adb\u{e0041}c",
  marks: `a${"\u0301".repeat(90)}`,
};
const deep = (levels) => "[".repeat(levels) + "]".repeat(levels);

test("names, params, outputs, errors and logs are texts", async () => {
  const jobs = Object.values(names).map((name) => ({ name, handler: script, queue: "hostile", params: { [script]: script } }));
  const { id } = await server.create({ name: script, tags: [script, names.turned], globals: { g: script }, jobs });
  const claimed = await server.claim("hostile", 10);
  for (const { lease } of claimed) {
    await server.post("v1/jobs/extend", { leases: [], notes: [{ lease, progress: { percent: 1, text: script }, log: [script, "\u001b[31mred\u001b[0m", names.turned] }] });
  }
  await server.report(
    { lease: claimed[0].lease, outcome: "failed", retry: "never", error: { kind: script, message: script.repeat(300), trace: `${script}\n`.repeat(200) } },
    ...claimed.slice(1).map(({ lease }) => ({ lease, outcome: "succeeded", output: script })),
  );
  const page = await browser.open(`${server.page}#/workflows`);
  await page.getByRole("link", { name: "onerror" }).first().click();
  for (const name of Object.values(names)) {
    await page.goto(`${server.page}#/workflows/${id}?job=${encodeURIComponent(name)}`);
    await page.locator("aside dl.facts").first().waitFor();
    for (const tab of await page.locator("aside [role=tab]").all()) await tab.click();
    await page.locator("aside").getByRole("tab", { name: "Log" }).click();
    await page.locator("aside .log").waitFor();
    assert.equal(await page.locator("aside .problem").count(), 0, name);
    assert.ok((await page.locator("aside .log").innerText()).includes("\\u001b[31mred"));
    const shown = await page.locator("main").innerText();
    assert.ok(!/[\u202e\u00ad\u{e0041}]/u.test(shown), "signs that are not seen are named");
    assert.ok(!/\u0301{5}/.test(shown), "marks do not pile up");
  }
  await page.getByText("Globals", { exact: true }).click();
  assert.equal(await page.locator("main img, main script, iframe").count(), 0);
  await checkPage(page, "hostile");
  await page.goto(`${server.page}#/workflows`);
  await page.locator("tbody tr a").first().waitFor();
  await checkPage(page, "hostile-list");
  await page.goto(`${server.page}#/workflows?name=${encodeURIComponent(script)}&tag=${encodeURIComponent(names.turned)}&page=x&cursor=${encodeURIComponent(script)}`);
  await page.locator(".problem", { hasText: "invalid_cursor" }).waitFor();
  assert.deepEqual(page.mistakes, []);
});

test("a megabyte and deep JSON are shown a part at a time", async () => {
  const { id } = await server.create({ name: "large", jobs: [{ name: "line", handler: "h", queue: "large" }, { name: "deep", handler: "h", queue: "large" }, { name: "many", handler: "h", queue: "large" }] });
  const outputs = { line: "x".repeat(1_000_000), deep: JSON.parse(deep(90)), many: Array.from({ length: 90_000 }, (_, at) => at) };
  for (const { lease, job } of await server.claim("large", 3)) await server.report({ lease, outcome: "succeeded", output: outputs[job] });
  const page = await browser.open(`${server.page}#/workflows/${id}`);
  for (const name of Object.keys(outputs)) {
    await page.goto(`${server.page}#/workflows/${id}?job=${name}`);
    const output = page.getByRole("region", { name: "output" });
    await output.waitFor();
    assert.ok((await output.innerText()).length < 5000, name);
    const more = page.getByRole("button", { name: /^Show all/ });
    if (name !== "deep") await more.click();
    for (let at = 0; at < 3 && name === "line"; at++) await page.getByRole("button", { name: "show more" }).click();
    assert.ok((await output.innerText()).length <= 400_000);
    await page.getByRole("button", { name: "close the job" }).click();
  }
  assert.deepEqual(page.mistakes, []);
});
