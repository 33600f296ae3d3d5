// What the frame knows of the server: its health, its configuration, and the numbers of the badges.
import { computed, signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { unreachable, withQuery } from "../api";
import type { Load } from "../pages/limits/model";
import type { Overview } from "../pages/overview";
import { now } from "../parts/time";
import { limitsOnly, usePoll, type Polled } from "../poll";
import { place } from "../router";
import { range, rangeMs } from "./range";

export interface Server {
  readonly id: string;
  readonly address: string;
  readonly version: string;
  readonly answers: boolean;
  readonly heard_at: string; // plain: a field of the API
  readonly home_partitions: readonly number[];
}

export interface Status {
  readonly limits: string;
  /** `ok`, `degraded` or `draining`. */
  readonly state: string;
  readonly drains_until?: string | null;
  readonly workflows: {
    /** False where the server shows limits only. */
    readonly enabled?: boolean;
    readonly ready: boolean;
    readonly open: boolean;
    readonly reason: string | null;
    readonly reads: string;
    readonly writes: string;
    readonly partitions: number;
    readonly risks: readonly string[];
    readonly servers: readonly Server[];
    readonly troubles: readonly { readonly partitions: readonly number[]; readonly reason: string }[];
  };
}

interface Counts {
  readonly by_status: Readonly<Record<string, number>>;
}

export const status = signal<Status | null>(null);
export const load = signal<Load | null>(null);
/** The numbers of the page Overview, and of the badge of workflows: one read for both. */
export const overview = signal<Pick<Polled<Overview>, "data" | "error">>({ data: null, error: null });
/** Workflows that failed in the range. */
export const failures = signal(0);

export type Health = "Healthy" | "Degraded" | "Draining" | "Unreachable" | "Unknown";

export function health(): Health {
  const at = status.value;
  if (unreachable.value) return "Unreachable";
  if (!at) return "Unknown";
  if (at.state === "draining") return "Draining";
  const { open, reads, writes, reason } = at.workflows;
  const stores = reason === null && (!open || (reads === "yes" && writes === "yes"));
  return at.limits === "yes" && stores ? "Healthy" : "Degraded";
}

/** Milliseconds between two reads, by range: about one step of its numbers. */
const OVERVIEW_INTERVALS = { "5m": 2000, "15m": 10_000, "1h": 10_000, "24h": 60_000 };
/** The time after a start in which steps of a second show more than longer ones. */
const FIRST_MS = 60_000;
const young = computed(() => {
  const since = load.value?.counting_since;
  return since !== undefined && now.value - Date.parse(since) < FIRST_MS;
});

/** Reads them while the frame is shown. */
export function useServer(): void {
  const latest = usePoll<Status>("v1/status", 5000).data;
  const configuration = usePoll<{ readonly load?: Load }>("v1/limits/configuration?limit=1", 5000).data?.load;
  const shown = young.value ? "5m" : range.value;
  const here = (place.value.parts[0] ?? "overview") === "overview";
  const polled = usePoll<Overview>(withQuery("v1/overview", { range: shown }), here ? OVERVIEW_INTERVALS[shown] : 5000);
  // Whole minutes: the same address as long as possible.
  const from = new Date(Math.floor((Date.now() - rangeMs()) / 60_000) * 60_000).toISOString();
  const failed = usePoll<Counts>(withQuery("v1/workflows:count", { status: "failed", created_after: from }), 5000).data;
  useEffect(() => {
    if (latest) {
      status.value = latest;
      limitsOnly.value = latest.workflows.enabled === false;
    }
    if (configuration) load.value = configuration;
    overview.value = polled;
    if (failed) failures.value = failed.by_status["failed"] ?? 0;
  }, [latest, configuration, polled.data, polled.error, failed]);
}
