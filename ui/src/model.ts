// What the API answers about workflows and jobs: those fields that the page shows (docs/openapi.json has all).

export type JobCounts = Readonly<Record<string, number>> & { readonly total: number };

export interface Workflow {
  readonly id: string;
  readonly name: string;
  readonly tags: readonly string[];
  readonly status: string;
  readonly created_at: string;
  readonly started_at: string | null;
  readonly finished_at: string | null;
  readonly expires_at: string | null;
  readonly job_counts: JobCounts;
  /** The job that failed first, and names of jobs that run: lists of at most 100 have them. */
  readonly error?: { readonly job: string; readonly kind: string | null; readonly message: string | null };
  readonly running?: readonly string[];
}

export interface Page<Item> {
  readonly items: readonly Item[];
  readonly next_cursor: string | null;
  readonly incomplete?: { readonly partitions: readonly number[]; readonly reason: string };
}

export interface Limit {
  readonly domain?: string;
  readonly hits?: number;
  readonly concurrency?: number;
  readonly of?: string;
  readonly entries: readonly (readonly string[])[];
}

export interface Holder {
  readonly workflow: string;
  readonly job?: string;
  readonly index: number;
  readonly until: string;
}

export interface WhyNotRunning {
  readonly reason: string;
  readonly text: string;
  readonly until?: string;
  readonly jobs?: readonly string[];
  readonly limit?: Limit;
  readonly holders?: readonly Holder[];
}

export interface AttemptError {
  readonly at: string;
  readonly attempt: number;
  readonly kind: string;
  readonly message: string;
  readonly trace: string | null;
  readonly worker: string | null;
}

export interface Job {
  readonly name: string;
  readonly index: number;
  readonly handler: string;
  readonly queue: string;
  readonly priority: number;
  readonly state: string;
  readonly attempt: number;
  readonly lost: number;
  readonly after: readonly string[];
  readonly before: readonly string[];
  readonly rule: string;
  readonly blocked: boolean;
  readonly ready_at: string | null;
  readonly started_at: string | null;
  readonly finished_at: string | null;
  readonly due_at: string | null;
  readonly lease_expires_at: string | null;
  readonly worker: string | null;
  readonly timeout_ms: number | null;
  readonly retries: number;
  readonly wait_ms: number;
  readonly why_not_running: WhyNotRunning | null;
  readonly limits?: readonly Limit[];
  readonly errors?: readonly AttemptError[];
  /** The last error, in pages of jobs. */
  readonly error?: { readonly kind: string; readonly message: string };
  readonly progress?: { readonly percent: number; readonly text: string; readonly at: string; readonly attempt: number };
}

export interface LogPage {
  readonly items: readonly { readonly at: string; readonly attempt: number; readonly text: string }[];
  readonly next: string;
  readonly dropped: number;
}

export interface Box {
  readonly x: number;
  readonly y: number;
  readonly width: number;
  readonly height: number;
  readonly layer: number;
}

export interface GraphNode extends Box {
  readonly index: number;
  readonly name: string;
  readonly handler: string;
  readonly state: string;
  readonly blocked: boolean;
}

/** All lines, in lists of numbers. */
export interface Edges {
  /** Two places for each line: a node below the number of nodes, else a block or a junction. */
  readonly ends: readonly number[];
  /** How many points each line has. */
  readonly lengths: readonly number[];
  /** The x and y of every point, line after line. */
  readonly points: readonly number[];
}

export interface Graph {
  readonly id: string;
  readonly width: number;
  readonly height: number;
  readonly nodes: readonly GraphNode[];
  readonly blocks: readonly (Box & { readonly jobs: readonly number[] })[];
  readonly edges: Edges;
  readonly undrawn: number;
}

/** A limit in words: `vendor tenant=acme` or `10 at a time of queue tenant=acme`. */
export function limitWords(limit: Limit): string {
  const entries = limit.entries.map(([key, value]) => (value === undefined ? key : `${key}=${value}`)).join(" ");
  if (limit.concurrency !== undefined) return `${limit.concurrency} at a time of ${limit.of ?? "queue"} ${entries}`;
  return `${limit.domain ?? ""} ${entries}${(limit.hits ?? 1) === 1 ? "" : `, ${limit.hits} hits`}`;
}
