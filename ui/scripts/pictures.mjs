// Makes the pictures of the documents: pages from `tidegate demo`, states from servers of their own.
//
//   node scripts/pictures.mjs FOLDER [PROGRAM]
//
// Takes about fifteen minutes: the demo runs for ten, so that there is a past to show.
import { spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { chromium } from "playwright-core";

const PAST = Number(process.env.PAST_MS ?? 600_000);
const WIDE = { width: 1440, height: 900 };
const NARROW = { width: 390, height: 844 };

const [folder, program = "../target/debug/tidegate"] = process.argv.slice(2);
if (!folder) throw new Error("name the folder of the pictures");
mkdirSync(folder, { recursive: true });
const work = mkdtempSync(join(tmpdir(), "tidegate-pictures-"));
const servers = [];

const pause = (ms) => new Promise((end) => setTimeout(end, ms));

/** Starts a server and returns the address of its page. */
async function start(command, settings = {}) {
  const ports = { PORT: "0", GRPC_PORT: "0", DEBUG_PORT: "0", TIDEGATE_HTTP_ADDR: "127.0.0.1:0" };
  const env = { PATH: process.env.PATH, TIDEGATE_STORE_URL: "memory", ...ports, ...settings };
  const server = spawn(resolve(program), [command], { env, cwd: work, stdio: ["ignore", "pipe", "ignore"] });
  servers.push(server);
  const page = await new Promise((found, failed) => {
    let text = "";
    server.stdout.on("data", (chunk) => {
      const address = /page\s+(http:\S+)/.exec((text += chunk));
      if (address) found(address[1]);
    });
    server.on("error", failed);
    server.on("exit", (code) => failed(new Error(`the server ended with ${code}`)));
  });
  return { page, server };
}

async function shoot(tab, name, wait = 2500) {
  await pause(wait);
  await tab.screenshot({ path: join(folder, `${name}.png`) });
}

/** The pages of a server that works. */
async function pages(browser, page) {
  const first = async (query) => (await (await fetch(`${page}v1/workflows?${query}`)).json()).items[0];
  /** A graph that runs says more than one that has ended. */
  const report = async () => {
    for (let tries = 0; tries < 500; tries++) {
      const one = await first("name=report&status=running");
      if (one?.job_counts.succeeded > 40) return one.id;
      await pause(500);
    }
    throw new Error("no report runs in the demo");
  };
  const failed = async () => (await first("name=order&status=failed")).id;
  const places = {
    overview: async () => "overview",
    limits: async () => "limits",
    limit: async () => "limits/shop/user",
    workflows: async () => "workflows",
    workflow: async () => `workflows/${await report()}`,
    failed: async () => `workflows/${await failed()}?job=charge`,
    queues: async () => "queues",
    queue: async () => "queues/default",
    workers: async () => "workers",
    worker: async () => "workers/demo-3",
    failures: async () => "failures",
  };
  const variants = { light: { viewport: WIDE }, dark: { viewport: WIDE, colorScheme: "dark" }, narrow: { viewport: NARROW } };
  for (const [variant, options] of Object.entries(variants)) {
    const tab = await (await browser.newContext(options)).newPage();
    for (const [name, place] of Object.entries(places)) {
      await tab.goto(`${page}#/${await place()}`);
      await shoot(tab, `${name}-${variant}`);
    }
    if (variant === "narrow") continue;
    await tab.keyboard.press("Control+k");
    await tab.keyboard.type("ord");
    await shoot(tab, `search-${variant}`, 1500);
  }
}

/** States that a server which works does not have. */
async function states(browser) {
  const tab = await (await browser.newContext({ viewport: WIDE })).newPage();
  const open = async (page, place, name) => {
    await tab.goto(`${page}#/${place}`);
    await shoot(tab, `state-${name}`);
  };
  const empty = await start("serve");
  await open(empty.page, "overview", "first-minute");
  await open(empty.page, "workflows", "empty");
  await open(empty.page, "workflows?q=ord", "no-match");
  empty.server.removeAllListeners("exit");
  empty.server.kill("SIGKILL");
  const config = join(work, "limits/config");
  mkdirSync(config, { recursive: true });
  const file = join(config, "shop.yaml");
  writeFileSync(file, "domain: shop\ndescriptors:\n  - {key: user, rate_limit: {unit: minute, requests_per_unit: 60}}\n");
  writeFileSync(join(work, "tokens"), "read eve secret-of-eve\nadmin ada secret-of-ada\n");
  const settings = { RUNTIME_ROOT: join(work, "limits"), RUNTIME_SUBDIRECTORY: "", RUNTIME_WATCH_ROOT: "false" };
  const broken = await start("serve", settings);
  writeFileSync(file, "domain: shop\ndescriptors:\n  - {key: user, rate_limit: {unit: minuet, requests_per_unit: 60}}\n");
  await pause(3000);
  await open(broken.page, "limits", "refused-configuration");
  await tab.goto(`${broken.page}#/overview`);
  await pause(1500);
  broken.server.removeAllListeners("exit");
  broken.server.kill("SIGTERM");
  await shoot(tab, "state-draining", 6500);
  broken.server.kill("SIGKILL");
  await shoot(tab, "state-unreachable", 8000);
  const guarded = await start("serve", { TIDEGATE_TOKENS_FILE: join(work, "tokens") });
  await open(guarded.page, "overview", "signed-out");
  await tab.getByLabel("Token").fill("secret-of-eve");
  await tab.keyboard.press("Enter");
  await shoot(tab, "state-read-only");
}

const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox"] });
try {
  const demo = await start("demo");
  await states(browser);
  await pause(PAST);
  await pages(browser, demo.page);
} finally {
  await browser.close();
  for (const server of servers) {
    server.removeAllListeners("exit");
    server.kill("SIGKILL");
  }
  rmSync(work, { recursive: true });
}
