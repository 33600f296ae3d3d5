// Makes the pictures of the documents from `tidegate demo`: node scripts/pictures.mjs FOLDER [PROGRAM]. Takes about two minutes.
import { spawn } from "node:child_process";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { chromium } from "playwright-core";

/** How long the demo runs first, so that there is a past to show. */
const PAST = 25_000;
const WIDE = { width: 1280, height: 800 };
const NARROW = { width: 360, height: 760 };

const [folder, program = "../target/debug/tidegate"] = process.argv.slice(2);
if (!folder) throw new Error("name the folder of the pictures");
mkdirSync(folder, { recursive: true });
const env = { PATH: process.env.PATH, PORT: "0", GRPC_PORT: "0", DEBUG_PORT: "0", TIDEGATE_HTTP_ADDR: "127.0.0.1:0" };
const demo = spawn(program, ["demo"], { env, stdio: ["ignore", "pipe", "inherit"] });
const page = await new Promise((found, failed) => {
  let text = "";
  demo.stdout.on("data", (chunk) => {
    const address = /page\s+(http:\S+)/.exec((text += chunk));
    if (address) found(address[1]);
  });
  demo.on("error", failed);
  demo.on("exit", (code) => failed(new Error(`the demo ended with ${code}`)));
});

const pause = (ms) => new Promise((end) => setTimeout(end, ms));
const first = async (query) => (await (await fetch(`${page}v1/workflows?${query}`)).json()).items[0].id;

/** A graph that runs says more than one that has ended. */
async function waitForReport() {
  for (let tries = 0; tries < 500; tries++) {
    const { items } = await (await fetch(`${page}v1/workflows?name=report&status=running`)).json();
    if (items.some((one) => one.job_counts.succeeded > 40)) return;
    await pause(500);
  }
  throw new Error("no report runs in the demo");
}

async function pictures(browser) {
  const places = {
    overview: async () => "overview",
    limits: async () => "limits",
    workflows: async () => "workflows",
    workflow: async () => `workflows/${await first("name=report")}`,
    queues: async () => "queues",
    workers: async () => "workers",
    failures: async () => "failures",
  };
  const variants = { light: { viewport: WIDE }, dark: { viewport: WIDE, colorScheme: "dark" }, narrow: { viewport: NARROW } };
  for (const [variant, options] of Object.entries(variants)) {
    await waitForReport();
    const tab = await (await browser.newContext(options)).newPage();
    for (const [name, place] of Object.entries(places)) {
      await tab.goto(`${page}#/${await place()}`);
      await pause(2500);
      await tab.screenshot({ path: join(folder, `${name}-${variant}.png`) });
    }
  }
}

const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox"] });
try {
  await pause(PAST);
  await pictures(browser);
} finally {
  await browser.close();
  demo.removeAllListeners("exit");
  demo.kill();
}
