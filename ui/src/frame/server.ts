// What the frame knows of the server: its health, its configuration, and the numbers of the badges.
import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { unreachable, withQuery } from "../api";
import type { Load } from "../pages/limits/model";
import { limitsOnly, usePoll } from "../poll";
import { rangeMs } from "./range";

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
  /** `ok`, `degraded` or `draining`; servers of before do not say it. */
  readonly state?: string;
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
/** Workflows that run, and those of the range that failed. */
export const running = signal(0);
export const failures = signal(0);

export type Health = "Healthy" | "Degraded" | "Draining" | "Unreachable" | "Unknown";

export function health(): Health {
  const now = status.value;
  if (unreachable.value) return "Unreachable";
  if (!now) return "Unknown";
  if (now.state === "draining") return "Draining";
  const { open, reads, writes, reason } = now.workflows;
  const stores = reason === null && (!open || (reads === "yes" && writes === "yes"));
  return now.limits === "yes" && stores ? "Healthy" : "Degraded";
}

/** Reads them while the frame is shown. */
export function useServer(): void {
  const latest = usePoll<Status>("v1/status", 5000).data;
  const configuration = usePoll<{ readonly load?: Load }>("v1/limits/configuration?limit=1", 5000).data?.load;
  const runs = usePoll<Counts>("v1/workflows:count?status=running", 5000).data;
  // Whole minutes: the same address as long as possible.
  const from = new Date(Math.floor((Date.now() - rangeMs()) / 60_000) * 60_000).toISOString();
  const failed = usePoll<Counts>(withQuery("v1/workflows:count", { status: "failed", created_after: from }), 5000).data;
  useEffect(() => {
    if (latest) {
      status.value = latest;
      limitsOnly.value = latest.workflows.enabled === false;
    }
    if (configuration) load.value = configuration;
    if (runs) running.value = runs.by_status["running"] ?? 0;
    if (failed) failures.value = failed.by_status["failed"] ?? 0;
  }, [latest, configuration, runs, failed]);
}
