// Bundles src/ into dist/, which is committed: a build of the server needs no Node. The same sources give the same bytes.
import { copyFileSync, mkdirSync, readFileSync, readdirSync } from "node:fs";
import { gzipSync } from "node:zlib";
import { build, context } from "esbuild";

/** All files together, compressed: a page that opens at once on a slow line. */
const MOST = 80_000;

export const options = {
  entryPoints: { app: "src/main.tsx", live: "src/live/worker.ts" },
  outdir: "dist",
  bundle: true,
  minify: true,
  format: "iife",
  target: ["chrome111", "firefox115", "safari16.4"],
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "none",
  charset: "utf8",
  logLevel: "warning",
};

export async function bundle() {
  mkdirSync("dist", { recursive: true });
  await build(options);
  await build({ ...options, entryPoints: { app: "src/style.css" } });
  copyFileSync("src/index.html", "dist/index.html");
  copyFileSync("src/icon.svg", "dist/icon.svg");
}

export function size() {
  const files = readdirSync("dist").sort();
  const sizes = files.map((name) => [name, gzipSync(readFileSync(`dist/${name}`), { level: 9 }).length]);
  const all = sizes.reduce((sum, [, bytes]) => sum + bytes, 0);
  for (const [name, bytes] of sizes) console.log(`${name.padEnd(12)}${String(bytes).padStart(8)}`);
  console.log(`${"together".padEnd(12)}${String(all).padStart(8)} of ${MOST} bytes, compressed`);
  return all;
}

export { context };

if (import.meta.url === `file://${process.argv[1]}`) {
  await bundle();
  if (size() > MOST) {
    console.error("the page is too large");
    process.exit(1);
  }
}
