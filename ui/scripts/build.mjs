// Bundles src/ into dist/, which is committed: a build of the server needs no Node. The same sources give the same bytes.
// With --compare nothing is written: it fails when dist/ is not what src/ gives.
import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { build, context } from "esbuild";
import { minify } from "terser";

/** All files together, compressed: a page that opens at once on a slow line. */
const MAX_BYTES = 100_000;

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
  plugins: [{ name: "fewer-paths", setup: (of) => void of.onLoad({ filter: /uPlot\.esm\.js$/ }, fewerPaths) }],
};

/** uPlot offers each form of line as a property of its own, which no bundler drops: the page draws straight lines only, which it has without that. */
function fewerPaths({ path }) {
  const text = readFileSync(path, "utf8");
  const contents = text.replace(/let paths = uPlot\.paths = \{[^}]*\};(\s*\(paths\.\w+\s*= \w+\);)+/, "");
  if (contents === text) throw new Error(`${path}: no uPlot.paths: see whether it can be left out in another way`);
  return { contents, loader: "js" };
}

export async function bundle(outdir = "dist") {
  mkdirSync(outdir, { recursive: true });
  const { metafile } = await build({ ...options, outdir, metafile: true });
  for (const name of ["app.js", "live.js"]) await shrink(join(outdir, name));
  writeFileSync(join(outdir, "licenses.txt"), licences(Object.keys(metafile.inputs)));
  await build({ ...options, outdir, entryPoints: { app: "src/style.css" } });
  copyFileSync("src/index.html", join(outdir, "index.html"));
  copyFileSync("src/icon.svg", join(outdir, "icon.svg"));
}

/** Minifies once more, as a second program does better than the first alone: 4 % fewer compressed bytes. */
async function shrink(path) {
  const { code } = await minify(readFileSync(path, "utf8"), { ecma: 2020, compress: { passes: 3, inline: 1 }, mangle: { toplevel: true } });
  writeFileSync(path, code);
}

/** The licences of the packages that are in the bundle, which require a copy of them in every bundle. */
function licences(inputs) {
  const packages = new Set(inputs.map((path) => /^node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(path)?.[1]).filter(Boolean));
  const one = (name) => {
    const { version, license } = JSON.parse(readFileSync(`node_modules/${name}/package.json`, "utf8"));
    return `${name} ${version} (${license})\n\n${readFileSync(`node_modules/${name}/LICENSE`, "utf8").trim()}\n`;
  };
  return `The page of Tidegate contains these packages.\n\n${[...packages].sort().map(one).join(`\n${"-".repeat(80)}\n\n`)}`;
}

/** The names of files that differ between two folders, or are in one of them only. */
function different(one, other) {
  const names = (folder) => readdirSync(folder).sort();
  const both = names(one).filter((name) => names(other).includes(name));
  const same = both.filter((name) => readFileSync(join(one, name)).equals(readFileSync(join(other, name))));
  return [...new Set([...names(one), ...names(other)])].filter((name) => !same.includes(name));
}

async function compare() {
  const built = mkdtempSync(join(tmpdir(), "tidegate-page-"));
  try {
    await bundle(built);
    const names = different(built, "dist");
    if (names.length === 0) return;
    console.error(`dist/ is not what src/ gives: ${names.join(", ")}. Run npm run build in ui, and commit dist/`);
    process.exitCode = 1;
  } finally {
    rmSync(built, { recursive: true });
  }
}

export function size() {
  const files = readdirSync("dist").sort();
  const sizes = files.map((name) => [name, gzipSync(readFileSync(`dist/${name}`), { level: 9 }).length]);
  const all = sizes.reduce((sum, [, bytes]) => sum + bytes, 0);
  for (const [name, bytes] of sizes) console.log(`${name.padEnd(12)}${String(bytes).padStart(8)}`);
  console.log(`${"together".padEnd(12)}${String(all).padStart(8)} of ${MAX_BYTES} bytes, compressed`);
  return all;
}

export { context };

if (import.meta.url === `file://${process.argv[1]}`) {
  if (process.argv.includes("--compare")) await compare();
  else await bundle();
  if (size() > MAX_BYTES) {
    console.error("the page is too large");
    process.exit(1);
  }
}
