// A browser for tests: it collects mistakes of the page, looks with axe, and keeps pictures in the folder TIDEGATE_PICTURES.
import assert from "node:assert/strict";
import { mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { chromium } from "playwright-core";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const pictures = process.env.TIDEGATE_PICTURES;

export const WIDE = { width: 1440, height: 900 };
export const NARROW = { width: 360, height: 740 };

export async function startBrowser() {
  const browser = await chromium.launch({
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    args: ["--no-sandbox"],
  });
  return {
    close: () => browser.close(),
    /** A browser with its own cookies and its own shared worker. */
    context: (options = {}) => browser.newContext({ viewport: WIDE, colorScheme: "light", ...options }),
    /** A tab in a browser of its own; `mistakes` are what the page did wrong. */
    open: async (address, options = {}) => {
      const context = await browser.newContext({ viewport: WIDE, colorScheme: "light", ...options });
      const page = await context.newPage();
      page.mistakes = [];
      watchMistakes(page);
      page.setDefaultTimeout(10_000);
      await page.goto(address);
      return page;
    },
  };
}

export function watchMistakes(page) {
  page.mistakes ??= [];
  page.on("pageerror", (error) => page.mistakes.push(error.message));
  page.on("console", (message) => {
    // The browser itself says so of each answer that is not 200.
    if (message.type() === "error" && !message.text().startsWith("Failed to load resource")) page.mistakes.push(message.text());
  });
  page.on("dialog", (dialog) => {
    page.mistakes.push(`a script asked: ${dialog.message()}`);
    void dialog.dismiss();
  });
}

/** The serious findings of axe, as lines. The policy of the page lets no other script in, so it comes through the debugger. */
export async function serious(page) {
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
  return violations
    .filter(({ impact }) => impact === "serious" || impact === "critical")
    .map(({ id, nodes }) => `${id}: ${nodes.slice(0, 3).map((node) => node.html.slice(0, 160)).join(" | ")}`);
}

/** Elements that reach beyond the right edge: a narrow screen would scroll sideways. */
export const overflow = (page) =>
  page.evaluate(() => {
    const wide = document.documentElement.clientWidth;
    if (document.documentElement.scrollWidth <= wide) return [];
    return [...document.querySelectorAll("main *, header *")]
      .filter((one) => one.getBoundingClientRect().right > wide + 1 && !one.closest(".scroll, pre, .hide, .skip"))
      .slice(0, 5)
      .map((one) => one.outerHTML.slice(0, 120));
  });

export async function picture(page, name) {
  if (!pictures) return;
  mkdirSync(pictures, { recursive: true });
  await page.screenshot({ path: join(pictures, `${name}.png`) });
}

/** A page in light and dark, wide and narrow: nothing stands out, axe finds nothing serious, and pictures are kept. */
export async function checkPage(page, name) {
  for (const colorScheme of ["light", "dark"]) {
    await page.emulateMedia({ colorScheme });
    for (const [width, size] of [["wide", WIDE], ["narrow", NARROW]]) {
      await page.setViewportSize(size);
      await page.waitForTimeout(250);
      await picture(page, `${name}-${colorScheme}-${width}`);
      assert.deepEqual(await overflow(page), [], `${name} ${colorScheme} ${width}: stands out`);
      assert.deepEqual(await serious(page), [], `${name} ${colorScheme} ${width}: axe`);
    }
  }
  await page.emulateMedia({ colorScheme: "light" });
  await page.setViewportSize(WIDE);
}
