// Answers that are polled while the page is visible.
import { signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError, text } from "./api";

export interface Polled<T> {
  /** The latest answer, also when the latest call failed. */
  readonly data: T | null;
  readonly error: ApiError | null;
  /** Reads now. */
  readonly again: () => void;
}

/** Whether the server shows limits only: what is about jobs is not read. */
export const limitsOnly = signal(false);
/** Paths about workflows, workers, queues, failures and jobs that wait. */
const JOBS = /^v1\/(wo|q|f|limits\?)/;

/** When the latest call that failed is made again. */
export const retryAt = signal(0);

/** Makes all calls at once. */
export const retryNow = (): boolean => dispatchEvent(new Event("retry"));

/** Milliseconds before another try, also of what is asked for more often. */
const AFTER_FAILURE = 3000;

/** A day: for what is read once. */
export const NEVER = 86_400_000;

/** Reads `path` at once and then every `interval` milliseconds; null reads nothing. An answer to another path is never shown. */
export function usePoll<T>(path: string | null, interval = 2000, parse: (text: string) => T = JSON.parse): Polled<T> {
  const [got, put] = useState<{ path: string | null; data: T | null; error: ApiError | null }>({ path, data: null, error: null });
  const kick = useRef<() => void>(() => {});
  const reader = useRef(parse);
  reader.current = parse;
  useEffect(() => {
    if (path === null || (limitsOnly.value && JOBS.test(path))) return;
    const ended = new AbortController();
    let timer = 0;
    let busy = false;
    // Whether another read was wanted during a call, whose answer may be older than the wanted state.
    let wanted = false;
    let last: string | null = null;
    let every = interval;
    const turn = async (): Promise<void> => {
      clearTimeout(timer);
      if (busy) return void (wanted = true);
      busy = true;
      wanted = false;
      const began = performance.now();
      let failed = false;
      try {
        const answer = await text({ method: "GET", path }, ended.signal);
        // An unchanged text is not drawn again.
        if (answer !== last) {
          last = answer;
          const data = reader.current(answer);
          put({ path, data, error: null });
          // The server read as many workflows as it may: that is not done again by itself.
          every = (data as { older?: boolean } | null)?.older ? NEVER : interval;
        } else put((was) => (was.error ? { ...was, error: null } : was));
      } catch (error) {
        if (ended.signal.aborted) return;
        failed = true;
        const refused = error instanceof ApiError ? error : new ApiError(0, "unknown", String(error));
        put((was) => ({ path, data: was.path === path ? was.data : null, error: refused }));
      }
      busy = false;
      // A slow server is read less often. One that was gone is soon noticed to be back.
      const took = performance.now() - began;
      const pause = failed ? Math.max(every, AFTER_FAILURE) : wanted ? took : Math.max(every, 4 * took);
      if (failed) retryAt.value = Date.now() + pause;
      if (!document.hidden) timer = window.setTimeout(turn, pause);
    };
    const seen = (): void => {
      if (!document.hidden) void turn();
    };
    kick.current = () => void turn();
    void turn();
    document.addEventListener("visibilitychange", seen);
    addEventListener("retry", seen);
    return () => {
      ended.abort();
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", seen);
      removeEventListener("retry", seen);
    };
  }, [path, interval, limitsOnly.value]);
  const own = got.path === path;
  return { data: own ? got.data : null, error: own ? got.error : null, again: () => kick.current() };
}
