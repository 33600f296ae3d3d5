// One stream for a browser, whatever the number of its tabs; it comes back by itself.
import assert from "node:assert/strict";
import { connect, createServer } from "node:net";
import { after, before, test } from "node:test";
import { startBrowser, watchMistakes } from "./parts/browser.mjs";
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

/** Passes connections on, until it is cut; counts the streams that are open. */
async function line(target) {
  const { hostname, port } = new URL(target);
  const sockets = new Set();
  const streams = new Set();
  const from = (socket) => {
    const to = connect(Number(port), hostname);
    sockets.add(socket).add(to);
    for (const one of [socket, to]) {
      one.on("error", () => {});
      one.on("close", () => (sockets.delete(one), streams.delete(socket), socket.destroy(), to.destroy()));
    }
    socket.on("data", (data) => data.includes("/v1/live") ? streams.add(socket) : data.includes(" HTTP/1.1") && streams.delete(socket));
    socket.pipe(to).pipe(socket);
  };
  const open = (at) => new Promise((end) => {
    made = createServer(from).listen(at, "127.0.0.1", () => end(made.address().port));
  });
  let made;
  const own = await open(0);
  return {
    page: target.replace(`:${port}`, `:${own}`),
    streams,
    cut: () => {
      made.close();
      for (const socket of sockets) socket.destroy();
    },
    repair: () => open(own),
  };
}

const create = (queue) => server.create({ name: queue, jobs: [{ name: "one", handler: "h", queue }, { name: "two", handler: "h", queue, after: "one" }] });
const stateOf = (page, name, state) =>
  page.locator('[aria-label="Jobs"] tbody tr', { has: page.locator("th").getByRole("link", { name, exact: true }) }).locator(`.pill.${state}`).waitFor();

test("ten tabs share one stream, and all follow", async () => {
  const way = await line(server.page);
  const context = await browser.context();
  const tabs = [];
  for (let at = 0; at < 10; at++) {
    const { id } = await create(`tabs-${at}`);
    const page = await context.newPage();
    watchMistakes(page);
    await page.goto(`${way.page}#/workflows/${id}`);
    tabs.push(page);
  }
  for (const page of tabs) await page.locator(".mark.live").waitFor();
  await new Promise((end) => setTimeout(end, 500));
  assert.ok(way.streams.size <= 2, `${way.streams.size} streams`);
  for (let at = 0; at < 10; at++) await server.claim(`tabs-${at}`);
  for (const page of tabs) await stateOf(page, "one", "running");
  await tabs[0].close();
  const [job] = [await server.claim("tabs-9")];
  assert.deepEqual(job, []);
  for (const page of tabs.slice(1)) assert.deepEqual(page.mistakes, []);
  way.cut();
  await context.close();
});

test("a stream that broke comes back with what was missed", async () => {
  const way = await line(server.page);
  const { id } = await create("breaks");
  const page = await browser.open(`${way.page}#/workflows/${id}`);
  await stateOf(page, "one", "ready");
  await page.locator(".mark.live").waitFor();
  way.cut();
  await page.locator(".mark.reconnecting").waitFor();
  const [job] = await server.claim("breaks");
  await server.report({ lease: job.lease, outcome: "succeeded" });
  await way.repair();
  await page.locator(".mark.live").waitFor({ timeout: 15_000 });
  await stateOf(page, "one", "succeeded");
  await stateOf(page, "two", "ready");
  way.cut();
});

test("without a shared worker each tab reads for itself", async () => {
  const { id } = await create("alone");
  const context = await browser.context();
  await context.addInitScript(() => delete globalThis.SharedWorker);
  const page = await context.newPage();
  watchMistakes(page);
  await page.goto(`${server.page}#/workflows/${id}`);
  await page.locator(".mark.live").waitFor();
  await server.claim("alone");
  await stateOf(page, "one", "running");
  assert.deepEqual(page.mistakes, []);
});

test("a server that stands still is not taken for one where nothing happens", async () => {
  const { id } = await create("frozen");
  const [list, one] = [await browser.open(`${server.page}#/workflows`), await browser.open(`${server.page}#/workflows/${id}`)];
  await list.locator("tbody a").first().waitFor();
  await one.locator(".mark.live").waitFor();
  server.freeze();
  try {
    await list.getByText("Server unreachable since").waitFor({ timeout: 25_000 });
    await one.locator(".mark.reconnecting").waitFor({ timeout: 30_000 });
  } finally {
    server.thaw();
  }
  await one.locator(".mark.live").waitFor({ timeout: 20_000 });
  await list.getByText("Server unreachable since").waitFor({ state: "hidden", timeout: 20_000 });
});
