// A server for a test, and the folder dist/ before it under a path of its own, as behind a proxy.
import { spawn } from "node:child_process";
import { mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const ui = fileURLToPath(new URL("../..", import.meta.url));
const program = resolve(process.env.TIDEGATE ?? join(ui, "../target/debug/tidegate"));
/** `embedded` tries the files in the program; else dist/ as it is now. */
const embedded = process.env.TIDEGATE_PAGE === "embedded";

/** Resolves with what `pattern` finds in what the program says. */
function outputMatch(child, pattern, name) {
  return new Promise((found, failed) => {
    let text = "";
    const read = (chunk) => {
      text += chunk;
      const match = pattern.exec(text);
      if (match) found(match);
    };
    child.stdout.on("data", read);
    child.stderr.on("data", read);
    child.on("error", failed);
    child.on("exit", (code) => failed(new Error(`${name} ended with ${code}:\n${text}`)));
  });
}

/** `settings` are environment variables; `tokens` the lines of a tokens file; `command` is a command that serves, such as `demo`. */
export async function startServer({ settings = {}, tokens = null, command = [] } = {}) {
  const folder = mkdtempSync(join(tmpdir(), "tidegate-page-"));
  const env = {
    PATH: process.env.PATH,
    TIDEGATE_HTTP_ADDR: "127.0.0.1:0",
    PORT: "0",
    GRPC_PORT: "0",
    DEBUG_PORT: "0",
    TIDEGATE_STORE_URL: "memory",
    TIDEGATE_DATA_DIR: folder,
    ...settings,
  };
  if (tokens) {
    env.TIDEGATE_TOKENS_FILE = join(folder, "tokens");
    writeFileSync(env.TIDEGATE_TOKENS_FILE, tokens, { mode: 0o600 });
  }
  const child = spawn(program, command, { env, cwd: folder, stdio: ["ignore", "pipe", "pipe"] });
  const [, json, address] = await outputMatch(child, /HTTP\s+\S+:(\d+)[^]*API\s+(127\.0\.0\.1:\d+)/, "the server");
  const api = `http://${address}/`;
  let page = api;
  let proxy = null;
  if (!embedded) {
    proxy = spawn(process.execPath, [join(ui, "scripts/dev.mjs"), "0", api.slice(0, -1), "/some/where"], { cwd: ui, stdio: ["ignore", "pipe", "pipe"] });
    [, page] = await outputMatch(proxy, /(http:\S+)/, "the proxy");
  }
  const headers = { "content-type": "application/json" };
  const secret = tokens?.match(/^admin \S+ (\S+)/m)?.[1];
  if (secret) headers.authorization = `Bearer ${secret}`;
  const call = async (method, path, body) => {
    const answer = await fetch(api + path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
    const text = await answer.text();
    if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${text.slice(0, 500)}`);
    return text === "" ? null : JSON.parse(text);
  };
  return {
    api,
    page,
    get: (path) => call("GET", path),
    post: (path, body = {}) => call("POST", path, body),
    put: (path, body) => call("PUT", path, body),
    /** Asks as a gateway does. */
    decide: async (request) => (await fetch(`http://127.0.0.1:${json}/json`, { method: "POST", body: JSON.stringify(request) })).json(),
    create: (definition) => call("POST", "v1/workflows", definition),
    /** Takes jobs of a queue as a worker does. */
    claim: async (queue, limit = 1, more = {}) =>
      (await call("POST", "v1/jobs/claim", { queues: [queue], worker: "tests-1", limit, lease: "5m", ...more })).jobs,
    report: (...reports) => call("POST", "v1/jobs/report", { reports }),
    /** Stops the server as a crash does, and leaves the proxy. */
    crash: () => new Promise((end) => (child.once("exit", end), child.kill("SIGKILL"))),
    /** Keeps the server from doing anything, with all connections open, until `thaw`. */
    freeze: () => child.kill("SIGSTOP"),
    thaw: () => child.kill("SIGCONT"),
    stop: () => {
      proxy?.kill();
      child.kill();
    },
  };
}
