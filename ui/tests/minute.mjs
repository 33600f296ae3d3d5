// A newcomer's first minute, as the README says it: the server that `make run` starts, the address that it prints, the line to try, and the demo.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { startBrowser } from "./parts/browser.mjs";

const root = fileURLToPath(new URL("../..", import.meta.url));
const program = resolve(process.env.TIDEGATE ?? join(root, "target/debug/tidegate"));
const folder = mkdtempSync(join(tmpdir(), "tidegate-minute-"));
let browser;
before(async () => {
  browser = await startBrowser();
});
after(async () => {
  await browser?.close();
  rmSync(folder, { recursive: true });
});

/** Starts the program without settings, except for ports: other servers may have the usual ones. */
async function start(...command) {
  const ports = { TIDEGATE_HTTP_ADDR: "127.0.0.1:0", PORT: "0", GRPC_PORT: "0", DEBUG_PORT: "0" };
  const child = spawn(program, command, { cwd: folder, env: { PATH: process.env.PATH, HOME: folder, ...ports }, stdio: ["ignore", "pipe", "inherit"] });
  let output = "";
  await new Promise((ready, failed) => {
    child.stdout.on("data", (chunk) => {
      output += chunk;
      if (/curl .*\n/.test(output)) ready();
    });
    child.on("exit", (code) => failed(new Error(`it ended with ${code}: ${output}`)));
  });
  return {
    page: /^ {2}page +(http:\S+)/m.exec(output)[1],
    line: /^ {2}(curl .*)$/m.exec(output)[1],
    stop: () => new Promise((end) => (child.once("exit", end), child.kill("SIGTERM"))),
  };
}

test("make run builds and starts the program, and nothing else", () => {
  const line = execFileSync("make", ["--no-print-directory", "--dry-run", "run"], { cwd: root, encoding: "utf8" }).trim();
  assert.match(line, /^QUICK_BUILD=yes \S*cargo run --profile quick --package tidegate$/);
});

test("the line that the server prints is refused the sixth time, and the page at the address that it prints shows it", async () => {
  const server = await start();
  try {
    const answers = Array.from({ length: 6 }, () => execFileSync("sh", ["-c", server.line], { encoding: "utf8" }));
    assert.deepEqual(answers.map((answer) => /"overallCode":"(\w+)"/.exec(answer)?.[1]), [...Array(5).fill("OK"), "OVER_LIMIT"]);
    const page = await browser.open(server.page);
    await page.locator('[aria-label="Refused"] tr', { hasText: "sample client=me" }).first().waitFor();
    await page.locator(".rail").getByRole("link", { name: "Workflows" }).click();
    await page.getByText("no workflow", { exact: false }).first().waitFor();
    assert.deepEqual(page.mistakes, []);
  } finally {
    await server.stop();
  }
});

test("the demo is alive: from the overview to a job's log, and to a limit that refuses", async () => {
  const server = await start("demo");
  try {
    const page = await browser.open(server.page);
    // The demo begins its first report after twelve seconds.
    page.setDefaultTimeout(60_000);
    await page.locator(".mark.live").waitFor();
    await page.locator('[aria-label="Busiest keys"] tr', { hasText: "shop route=/search" }).first().waitFor();
    await page.locator(".rail").getByRole("link", { name: "Workflows" }).click();
    const running = page.locator("tbody tr", { has: page.locator(".pill.running") }).filter({ hasText: "report" }).first();
    await running.locator("a").first().click();
    await page.locator("canvas").waitFor();
    await page.locator(".head .pill.running").waitFor();
    const job = page.locator('[aria-label="Jobs"] tbody tr', { has: page.locator(".pill.running, .pill.succeeded") }).first();
    const name = (await job.locator("th a").first().innerText()).trim();
    await job.locator("th a").first().click();
    // A job that ended since then opens with its output.
    await page.locator("aside.drawer").getByRole("tab", { name: /^Log/ }).click();
    await page.locator("aside.drawer").getByText(`${name}: attempt 1`).first().waitFor();
    await page.locator(".rail").getByRole("link", { name: "Limits" }).click();
    const refused = page.locator('[aria-label="Configuration"] tr', { hasText: "plan=free" });
    await refused.first().waitFor();
    await page.locator('[aria-label="Refused"] tr', { hasText: "shop plan=free" }).first().waitFor();
    assert.deepEqual(page.mistakes, []);
  } finally {
    await server.stop();
  }
});
