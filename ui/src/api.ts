// Calls of the HTTP API (docs/http-api.md), and the same calls as curl lines. Addresses are relative: any base path works.
import { signal } from "@preact/signals";
import { withoutHidden } from "./parts/control-chars";

export interface Call {
  readonly method: "GET" | "POST" | "PUT" | "DELETE";
  /** Such as `v1/workflows`, with its parameters. */
  readonly path: string;
  readonly body?: unknown;
  /** A body that is JSON already, and is sent as it is. */
  readonly raw?: string;
}

const bodyOf = (call: Call): string | null => call.raw ?? (call.body === undefined ? null : JSON.stringify(call.body));

export interface Session {
  readonly sign_in: boolean;
  readonly role: "read" | "work" | "admin" | null;
  readonly name: string | null;
  readonly version: string | null;
}

/** Null until the server has answered. */
export const session = signal<Session | null>(null);
export const mayAct = (): boolean => session.value?.role === "admin";
/** Creating and starting workflows. */
export const mayStart = (): boolean => mayAct() || session.value?.role === "work";

/** A call that the server refused, or that did not reach it: then `status` is 0. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    detail: string,
    readonly path: string | null = null,
  ) {
    super(detail);
  }
}

/** Since when no call has reached the server, in milliseconds; null while calls reach it. */
export const unreachable = signal<{ readonly since: number } | null>(null);

function noteReach(reached: boolean): void {
  if (reached) unreachable.value = null;
  else unreachable.value ??= { since: Date.now() };
}

/** Answers of a proxy in front of a server that is gone. */
const GATEWAY_ERRORS = [502, 503, 504];

/** How long the answer of a call that changes nothing may take, in milliseconds. */
const READ_TIMEOUT = 15_000;

async function refusal(answer: Response): Promise<ApiError> {
  try {
    const problem = (await answer.json()) as { code?: unknown; detail?: unknown; path?: unknown };
    const path = typeof problem.path === "string" ? problem.path : null;
    return new ApiError(answer.status, String(problem.code), String(problem.detail), path);
  } catch {
    if (GATEWAY_ERRORS.includes(answer.status)) return new ApiError(0, "unreachable", "the server does not answer");
    return new ApiError(answer.status, "unknown", `the server answered ${answer.status}`);
  }
}

/** The answer as text, for what must be shown as it was sent: numbers of JSON can have more digits than those of scripts. */
export async function text(call: Call, signal?: AbortSignal): Promise<string> {
  const headers: Record<string, string> = {};
  const body = bodyOf(call);
  if (body !== null) headers["content-type"] = "application/json";
  // A page of another site cannot send it.
  if (call.method !== "GET") headers["tidegate-page"] = "1";
  const ended = new AbortController();
  const end = (): void => ended.abort();
  signal?.addEventListener("abort", end);
  // A server that stands still looks like a slow one: a call that changes something may have done so, and is waited for.
  const timer = call.method === "GET" ? setTimeout(end, READ_TIMEOUT) : undefined;
  let answer: Response;
  try {
    if (signal?.aborted) end();
    answer = await fetch(call.path, { method: call.method, headers, body, signal: ended.signal, cache: "no-store" });
    if (answer.ok) {
      const got = await answer.text();
      if (got === "" || answer.headers.get("content-type")?.includes("json")) {
        noteReach(true);
        return got;
      }
      throw new ApiError(0, "unreachable", "something else answers at the address of the server");
    }
  } catch (error) {
    if (signal?.aborted) throw error;
    noteReach(false);
    if (error instanceof ApiError) throw error;
    throw new ApiError(0, "unreachable", "the server does not answer");
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener("abort", end);
  }
  const refused = await refusal(answer);
  noteReach(refused.status !== 0);
  if (answer.status === 401 && session.value && !call.path.startsWith("v1/session")) {
    session.value = { ...session.value, sign_in: true, role: null };
  }
  throw refused;
}

export async function request<T>(call: Call, signal?: AbortSignal): Promise<T> {
  const got = await text(call, signal);
  return (got === "" ? null : JSON.parse(got)) as T;
}

export const get = <T>(path: string, signal?: AbortSignal): Promise<T> => request<T>({ method: "GET", path }, signal);

/** `path("v1/queues", [name], ":pause")`, with escapes in the names. */
export function path(before: string, names: readonly string[], after = ""): string {
  return [before, ...names.map((name) => encodeURIComponent(name))].join("/") + after;
}

/** A path with those parameters that have a value. */
export function withQuery(path: string, query: Readonly<Record<string, string | number | null | undefined>>): string {
  const words = new URLSearchParams();
  for (const [key, value] of Object.entries(query)) {
    if (value !== null && value !== undefined && value !== "") words.set(key, String(value));
  }
  const search = words.toString();
  return search ? `${path}?${search}` : path;
}

const quoted = (word: string): string => `'${word.replaceAll("'", "'\\''")}'`;

/** The call for a shell. The token is never in it: the shell takes it from TIDEGATE_TOKEN. */
export function curl(call: Call): string {
  const url = new URL(call.path, document.baseURI.replace(/#.*/, "")).href;
  const words = ["curl", "-s"];
  if (call.method !== "GET") words.push("-X", call.method);
  if (session.value?.sign_in) words.push("-H", '"Authorization: Bearer $TIDEGATE_TOKEN"');
  words.push(quoted(url));
  const body = bodyOf(call);
  if (body !== null) words.push("-H", quoted("content-type: application/json"), "-d", quoted(withoutHidden(body)));
  return words.join(" ");
}
