// Measures the page in a browser: lists of 1,000,000 workflows, and what readers cost a server that decides.
//
//   node scripts/measure.mjs SERVER BENCH [WORKFLOWS] [lists|readers]
//
// SERVER and BENCH are the programs tidegate and tidegate-bench of a release build. The page is that in the program.
import { spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { get } from "node:http";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { chromium } from "playwright-core";

const [server, load, count = "1000000", only] = process.argv.slice(2);
const [program, bench] = [resolve(server), resolve(load)];
const folder = mkdtempSync(join(tmpdir(), "tidegate-measure-"));
const READERS = 100;
/** Pairs of turns without and with readers, and how long one takes. */
const [PAIRS, TURN] = [15, "4s"];
const RATE = 10_000;

const sleep = (ms) => new Promise((end) => setTimeout(end, ms));
const median = (numbers) => [...numbers].sort((a, b) => a - b)[numbers.length >> 1];
const spread = (numbers, digits = 0) => `${median(numbers).toFixed(digits)} (${Math.min(...numbers).toFixed(digits)}-${Math.max(...numbers).toFixed(digits)})`;
/** The median, and between which of the numbers that of many more would lie, 19 times in 20. */
function confidence(numbers) {
  const [sorted, count] = [[...numbers].sort((a, b) => a - b), numbers.length];
  const below = Math.max(0, Math.floor(count / 2 - 0.98 * Math.sqrt(count)));
  return `${median(numbers).toFixed(3)} (${sorted[below].toFixed(3)}-${sorted[count - 1 - below].toFixed(3)})`;
}

/** A server, its process and its addresses. */
async function start(settings = {}) {
  const env = { PATH: process.env.PATH, TIDEGATE_HTTP_ADDR: "127.0.0.1:0", PORT: "0", GRPC_PORT: "0", DEBUG_PORT: "0", TIDEGATE_DATA_DIR: join(folder, "data"), ...settings };
  const child = spawn(program, [], { env, cwd: folder, stdio: ["ignore", "pipe", "inherit"] });
  let output = "";
  await new Promise((ready, failed) => {
    child.stdout.on("data", (chunk) => ((output += chunk), /curl/.test(output) && ready()));
    child.on("exit", (code) => failed(new Error(`the server ended with ${code}`)));
  });
  const api = `http://${/API\s+(127\.0\.0\.1:\d+)/.exec(output)[1]}/`;
  const grpc = /gRPC\s+\S+:(\d+)/.exec(output)[1];
  return { api, grpc, pid: child.pid, stop: () => new Promise((end) => (child.once("exit", end), child.kill("SIGKILL"))) };
}

async function post(api, path, body) {
  const answer = await fetch(api + path, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });
  if (!answer.ok) throw new Error(`${path}: ${answer.status} ${await answer.text()}`);
  return answer.json();
}

/** Most have ended well, some have failed, some wait. */
async function fill(api, workflows) {
  const one = (at) => ({ name: `flow-${at % 50}`, tags: [`tenant-${at % 100}`], jobs: [{ name: "a", handler: "h", queue: at % 20 === 0 ? "waits" : "work" }] });
  for (let at = 0; at < workflows; at += 1000) {
    const many = Math.min(1000, workflows - at);
    await post(api, "v1/workflows:batch", { workflows: Array.from({ length: many }, (_, more) => one(at + more)) });
    let { jobs } = await post(api, "v1/jobs/claim", { queues: ["work"], worker: "w", limit: 1000 });
    if (jobs.length > 0) {
      const reports = jobs.map(({ lease }, more) => (more % 10 ? { lease, outcome: "succeeded" } : { lease, outcome: "failed", retry: "never", error: { kind: "E", message: "no" } }));
      await post(api, "v1/jobs/report", { reports });
    }
    if (at % 100_000 === 0) console.error(`${at} workflows`);
  }
}

async function lists(browser) {
  const server = await start();
  await fill(server.api, Number(count));
  const page = await browser.newPage();
  const first = [];
  for (let turn = 0; turn < 5; turn++) {
    const began = Date.now();
    await page.goto(`${server.api}?${turn}#/workflows`);
    await page.locator("tbody tr a").first().waitFor();
    first.push(Date.now() - began);
  }
  /** In the page, from the click to the frame that shows other rows. */
  const change = (button, sign = null) =>
    page.evaluate(
      ([name, wanted]) =>
        new Promise((end) => {
          const rows = () => document.querySelector("tbody tr a")?.getAttribute("href");
          const before = rows();
          const began = performance.now();
          const check = () => {
            const now = rows();
            if (now && now !== before && (!wanted || document.querySelector(`tbody tr .pill.${wanted}`))) return end(performance.now() - began);
            requestAnimationFrame(check);
          };
          const buttons = document.querySelectorAll("[aria-label=Pages] button");
          const clicked = wanted ? document.querySelector(`label:has(.pill.${wanted})`) : [...buttons].find((one) => one.textContent === name);
          clicked.click();
          requestAnimationFrame(check);
        }),
      [button, sign],
    );
  const filter = await change(null, "failed");
  const pages = [];
  for (let turn = 0; turn < 20; turn++) pages.push(await change("Next"));
  console.log(`${Number(count).toLocaleString("en")} workflows, SQLite: list ready after ${spread(first)} ms; filter by status ${filter.toFixed(0)} ms; next page ${spread(pages)} ms, 20 times`);
  await page.close();
  await server.stop();
}

function reader(api, workflow) {
  return get(`${api}v1/live?watch=overview,workflow:${workflow}`, (answer) => answer.resume()).on("error", () => {});
}

async function readers(browser) {
  const config = join(folder, "limits/config");
  mkdirSync(config, { recursive: true });
  writeFileSync(join(config, "bench.yaml"), "domain: bench\ndescriptors:\n  - key: key\n    rate_limit: { unit: hour, requests_per_unit: 1000000 }\n");
  const server = await start({ RUNTIME_ROOT: join(folder, "limits"), TIDEGATE_STORE_URL: "memory" });
  const { id } = await post(server.api, "v1/workflows", { name: "watched", jobs: [{ name: "a", handler: "h" }] });
  const file = join(folder, "turn.json");
  const turn = async () => {
    const options = { "--address": `127.0.0.1:${server.grpc}`, "--rate": RATE, "--duration": TURN, "--warmup": "500ms", "--pid": server.pid, "--json": file };
    const load = spawn(bench, ["ratelimit", ...Object.entries(options).flat().map(String)], { stdio: ["ignore", "ignore", "inherit"] });
    await new Promise((end) => load.once("exit", end));
    return JSON.parse(readFileSync(file, "utf8")).server.cost.cpu_us_per_request;
  };
  await turn();
  const ratios = [];
  const [alone, withTab] = [[], []];
  for (let pair = 0; pair < PAIRS; pair++) {
    for (const withReaders of pair % 2 ? [true, false] : [false, true]) {
      const open = withReaders ? Array.from({ length: READERS }, () => reader(server.api, id)) : [];
      const page = withReaders ? await browser.newPage() : null;
      await page?.goto(`${server.api}#/overview`);
      if (withReaders) await sleep(1000);
      (withReaders ? withTab : alone).push(await turn());
      open.forEach((one) => one.destroy());
      await page?.close();
    }
    ratios.push(withTab.at(-1) / alone.at(-1));
  }
  console.log(`${RATE.toLocaleString("en")} decisions a second: ${spread(alone, 2)} us of the server's processor time each; with ${READERS} readers and a tab ${spread(withTab, 2)} us, ${confidence(ratios)} times, the median of ${PAIRS} pairs with its confidence interval of 95 %`);
  await server.stop();
}

const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox"] });
try {
  if (only !== "lists") await readers(browser);
  if (only !== "readers") await lists(browser);
} finally {
  await browser.close();
  rmSync(folder, { recursive: true });
}
