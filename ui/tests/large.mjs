// Large graphs: how long until they are drawn, how much work it is to move them, how much memory they take.
// The times hold for a release build on a quiet machine: they are asserted with TIDEGATE_MEASURE=1, and printed always.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, test } from "node:test";
import { picture, startBrowser } from "./parts/browser.mjs";
import { startServer } from "./parts/server.mjs";

const measure = process.env.TIDEGATE_MEASURE === "1";
let server, browser;
before(async () => {
  server = await startServer();
  browser = await startBrowser();
});
after(async () => {
  await browser?.close();
  server?.stop();
});

let seed = 7;
const random = (most) => (seed = (seed * 1103515245 + 12345) % 2147483648) % most;

const graphs = {
  "10,000 jobs and 30,000 lines": Array.from({ length: 10_000 }, (_, at) => {
    const before = new Set();
    while (at >= 100 && before.size < 3) before.add(`j${at - 1 - random(Math.min(at, 400))}`);
    return { name: `j${at}`, handler: ["load", "clean", "join", "mail"][at % 4], queue: "wide", after: [...before] };
  }),
  "a chain of 1,000": Array.from({ length: 1000 }, (_, at) => ({ name: `j${at}`, handler: "h", queue: "chain", after: at ? [`j${at - 1}`] : [] })),
  "9,000 alike": [
    { name: "j0", handler: "split", queue: "map" },
    ...Array.from({ length: 9000 }, (_, at) => ({ name: `part-${at}`, handler: "part.work", queue: "map", after: "j0" })),
    { name: "join", handler: "join", queue: "map", after: Array.from({ length: 9000 }, (_, at) => `part-${at}`) },
  ],
};

/** Memory that only the process of the tab has, in megabytes: the largest of the browser's processes for pages. */
async function renderer(page) {
  const debug = await page.context().browser().newBrowserCDPSession();
  const { processInfo } = await debug.send("SystemInfo.getProcessInfo");
  await debug.detach();
  const own = ({ id }) => {
    const rollup = readFileSync(`/proc/${id}/smaps_rollup`, "utf8");
    return [...rollup.matchAll(/^Private_\w+: +(\d+) kB/gm)].reduce((sum, [, kb]) => sum + Number(kb) / 1000, 0);
  };
  return Math.max(...processInfo.filter(({ type }) => type === "renderer").map(own));
}

/** A click into the minimap moves the view, where the picture is large enough to have one. */
async function moveByMap(page) {
  const canvas = page.locator("canvas");
  const { width, height } = await canvas.boundingBox();
  const shown = () => canvas.evaluate((own) => own.toDataURL());
  const large = (await page.locator(".graph .note").first().innerText()).includes("10,000");
  const before = await shown();
  await canvas.click({ position: { x: width - 20, y: height - 20 } });
  await page.waitForTimeout(500);
  if (large) assert.notEqual(await shown(), before);
}

for (const [name, jobs] of Object.entries(graphs)) {
  test(name, async () => {
    const { id } = await server.create({ name: "large", jobs });
    const page = await browser.open(`${server.page}#/workflows`);
    await page.locator("tbody a").first().waitFor();
    const began = Date.now();
    await page.evaluate((id) => (location.hash = `#/workflows/${id}`), id);
    await page.waitForSelector("canvas");
    await page.evaluate(() => new Promise((end) => requestAnimationFrame(() => requestAnimationFrame(end))));
    const drawn = Date.now() - began;
    await page.locator(".mark.live").waitFor();
    await page.waitForTimeout(1500);
    await picture(page, `large-${name.replaceAll(/[ ,]+/g, "-")}`);
    const debug = await page.context().newCDPSession(page);
    await debug.send("Performance.enable");
    const metric = async (wanted) => (await debug.send("Performance.getMetrics")).metrics.find(({ name }) => name === wanted).value;
    const pan = async () => {
      const box = await page.locator("canvas").boundingBox();
      const [x, y] = [box.x + box.width / 2, box.y + box.height / 2];
      await page.evaluate(() => {
        globalThis.frames_ = 0;
        const count = () => (globalThis.frames_++, requestAnimationFrame(count));
        count();
      });
      const busy = await metric("TaskDuration");
      await page.mouse.move(x, y);
      await page.mouse.down();
      for (let at = 0; at < 60; at++) await page.mouse.move(x + at * (at % 2 ? 8 : 7), y + at);
      await page.mouse.up();
      return ((1000 * ((await metric("TaskDuration")) - busy)) / (await page.evaluate(() => globalThis.frames_))).toFixed(1);
    };
    const whole = await pan();
    await moveByMap(page);
    // Of a graph that is folded, all jobs are the larger picture.
    const all = page.getByRole("button", { name: "All jobs" });
    if (await all.isVisible()) await all.click();
    await page.getByRole("application", { name: "Graph of the jobs" }).press("0");
    for (let at = 0; at < 14; at++) await page.getByRole("button", { name: "larger" }).click();
    await page.waitForTimeout(300);
    await picture(page, `large-${name.replaceAll(/[ ,]+/g, "-")}-near`);
    const near = await pan();
    await page.getByRole("application", { name: "Graph of the jobs" }).press("0");
    const [job] = await server.claim(jobs[0].queue);
    const changed = Date.now();
    await page.locator('[aria-label="Jobs"] .pill.running').first().waitFor();
    const followed = Date.now() - changed;
    const heap = (await metric("JSHeapUsedSize")) / 1e6;
    const memory = await renderer(page);
    console.log(`${name}: drawn after ${drawn} ms; moving: ${whole} and ${near} ms of work a frame; a change after ${followed} ms; the tab takes ${memory.toFixed(0)} MB, of which ${heap.toFixed(0)} MB are its heap`);
    assert.ok(job);
    if (measure) {
      assert.ok(drawn < 1000, `drawn after ${drawn} ms`);
      assert.ok(whole < 20 && near < 20, `${whole} and ${near} ms a frame`);
      assert.ok(memory < 150);
    }
    assert.deepEqual(page.mistakes, []);
    await page.context().close();
  });
}
