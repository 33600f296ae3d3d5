// Serves dist/ and passes all other calls on to a server: node scripts/dev.mjs PORT http://127.0.0.1:7070 [/base/path]
// With --watch, dist/ is bundled again at each change of src/.
import { createServer, request } from "node:http";
import { readFileSync, watch } from "node:fs";
import { bundle } from "./build.mjs";

const words = process.argv.slice(2).filter((word) => !word.startsWith("--"));
const [port = "7080", target = "http://127.0.0.1:7070", base = ""] = words;
const types = { html: "text/html", js: "text/javascript", css: "text/css", svg: "image/svg+xml" };
const policy =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
  "worker-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

if (process.argv.includes("--watch")) {
  await bundle();
  watch("src", { recursive: true }, () => bundle().catch((error) => console.error(error.message)));
}

const server = createServer((ask, answer) => {
  if (!ask.url.startsWith(`${base}/`)) return answer.writeHead(404).end();
  const path = ask.url.slice(base.length);
  const name = path === "/" ? "index.html" : (/^\/assets\/([a-z]+\.[a-z]+)$/.exec(path)?.[1] ?? null);
  if (name !== null) {
    const type = `${types[name.split(".")[1]]}; charset=utf-8`;
    answer.writeHead(200, { "content-type": type, "content-security-policy": policy, "cache-control": "no-cache" });
    return answer.end(readFileSync(`dist/${name}`));
  }
  const headers = { ...ask.headers, host: new URL(target).host };
  // The server compares the two.
  if (headers.origin) headers.origin = target;
  const on = request(target + path, { method: ask.method, headers }, (got) => {
    answer.writeHead(got.statusCode, got.headers);
    got.pipe(answer);
  });
  on.on("error", () => answer.headersSent ? answer.destroy() : answer.writeHead(502).end());
  answer.on("close", () => on.destroy());
  ask.pipe(on);
});
server.listen(Number(port), "127.0.0.1", () => console.log(`http://127.0.0.1:${server.address().port}${base}/`));
