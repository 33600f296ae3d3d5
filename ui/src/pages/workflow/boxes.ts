// Draws the boxes of a graph: jobs, stacks of equal jobs, and the frames of opened stacks.
import type { Job } from "../../model";
import { stateColour, stateFill, stateIcon, word } from "../../parts/state";
import { now, span } from "../../parts/time";
import type { Frame, GraphItem } from "./arrange";
import { began, ended, stateOf } from "./jobs";
import { Pen } from "./pen";
import type { Scene } from "./scene";

/** The order of states in the bar and the words of a stack. */
const ORDER = ["failed", "running", "retrying", "limited", "ready", "scheduled", "waiting", "blocked", "succeeded", "skipped", "cancelled"];
const BAR = ["succeeded", "skipped", "cancelled", "failed", "running", "retrying", "limited"];

export class Boxes extends Pen {
  /** Times and attempts of jobs, as far as they are known. */
  private jobs: ReadonlyMap<number, Job> = new Map();
  /** Jobs for whose state the page may have a finer word than the events. */
  private refined: readonly number[] = [];
  private readonly members = new WeakMap<GraphItem, ReadonlySet<number>>();

  constructor(
    context: CanvasRenderingContext2D,
    public scene: Scene,
  ) {
    super(context);
  }

  know(jobs: ReadonlyMap<number, Job>): void {
    this.jobs = jobs;
    this.refined = [...jobs.keys()].filter((job) => ["limited", "retrying", "blocked"].includes(stateOf(jobs.get(job) as Job)));
  }

  frame({ x, y, width, height, stack }: Frame): void {
    const { context, scene } = this;
    const item = scene.item(stack);
    context.strokeStyle = this.colour("control");
    context.lineWidth = 1;
    context.setLineDash([4, 3]);
    context.beginPath();
    context.moveTo(item.x + item.width / 2, item.y + item.height + 6);
    context.lineTo(item.x + item.width / 2, y);
    context.stroke();
    context.setLineDash([]);
    this.rect(x + 0.5, y + 0.5, width - 1, height - 1, 8);
    context.fillStyle = this.colour("bg");
    context.fill();
    context.strokeStyle = this.colour("line-2");
    context.stroke();
    this.words(item.name, x + 12, y + 20, 600, 13, "text", width / 3);
    const left = Math.min(context.measureText(item.name.slice(0, 200)).width, width / 3);
    const counts = this.counts(item).map(([state, count]) => `${count.toLocaleString("en")} ${word(state).toLowerCase()}`).join(", ");
    this.words(`${item.handler}, ${item.jobs.length.toLocaleString("en")} jobs: ${counts}`, x + 20 + left, y + 20, 400, 12, "dim", width - left - 90);
    this.words("Fold", x + width - 12, y + 20, 400, 12, "dim", 60, "right");
  }

  private counts(item: GraphItem): [string, number][] {
    const place = (state: string): number => (ORDER.indexOf(state) + 99) % 99;
    const counts = this.scene.states.count(item.jobs);
    for (const job of this.refined) {
      if (!this.membersOf(item).has(job)) continue;
      const [was, is] = [this.scene.states.get(job), this.state(job)];
      if (was === is) continue;
      counts.set(is, (counts.get(is) ?? 0) + 1);
      const left = (counts.get(was) ?? 0) - 1;
      if (left > 0) counts.set(was, left);
      else counts.delete(was);
    }
    return [...counts].sort((one, other) => place(one[0]) - place(other[0]));
  }

  /** Whether it will not run until a failed job before it is retried or skipped; of a stack, its first and its last job. */
  isStopped({ jobs }: GraphItem): boolean {
    const stopped = (job: number): boolean => this.state(job) === "blocked" || this.jobs.get(job)?.why_not_running?.reason === "doomed";
    return stopped(jobs[0] ?? 0) && stopped(jobs.at(-1) ?? 0);
  }

  private membersOf(item: GraphItem): ReadonlySet<number> {
    let found = this.members.get(item);
    if (!found) this.members.set(item, (found = new Set(item.jobs)));
    return found;
  }

  /** The state that the page says of a job: events know fewer words. */
  private state(job: number): string {
    const state = this.scene.states.get(job);
    const row = this.jobs.get(job);
    return row?.state === (state === "blocked" ? "waiting" : state) ? stateOf(row) : state;
  }

  box(at: number, ring: boolean): void {
    const { context, scene } = this;
    const item = scene.item(at);
    const { x, y, width, height, kind } = item;
    if (ring) {
      this.rect(x - 4, y - 4, width + 8, height + 8, 9);
      context.strokeStyle = this.colour("accent");
      context.lineWidth = 2;
      context.stroke();
    }
    if (kind === "stack") return this.stack(item);
    const job = item.jobs[0] ?? 0;
    const state = this.state(job);
    const bold = state === "failed" ? 2 : state === "running" || state === "limited" || state === "retrying" ? 1.4 : 1;
    this.rect(x + bold / 2, y + bold / 2, width - bold, height - bold, kind === "cell" ? 5 : 6);
    context.fillStyle = this.colour("raised");
    context.fill();
    context.lineWidth = bold;
    context.strokeStyle = this.colour(bold > 1 ? stateFill(state) : state === "blocked" ? "control" : "line-2");
    if (this.isStopped(item)) context.setLineDash([4, 3]);
    context.stroke();
    context.setLineDash([]);
    const row = this.jobs.get(job);
    if (state === "running" && row?.progress && row.progress.attempt === row.attempt) {
      context.fillStyle = this.colour("run-fill");
      context.fillRect(x + 4, y + height - 3, ((width - 8) * row.progress.percent) / 100, 2);
    }
    const ran = row && row.state === scene.states.get(job) ? took([row]) : "";
    const right = ran ? this.words(ran, x + width - 12, y + (kind === "cell" ? height / 2 : 19), 400, 12, "dim", 60, "right") + 8 : 0;
    const colour = stateColour(state);
    if (kind === "cell") {
      this.icon(stateIcon(state), x + 9, y + height / 2 - 6, colour);
      this.words(item.name, x + 27, y + height / 2, 400, 12, "text", width - 39 - right);
      return;
    }
    this.words(item.name, x + 12, y + 19, 600, 13, "text", width - 24 - right);
    this.icon(stateIcon(state), x + 12, y + 29, colour);
    const attempts = row && row.retries > 0 && ["failed", "running", "retrying"].includes(state) && row.attempt > 0 ? `, ${row.attempt} of ${row.retries + 1}` : "";
    const by = state === "blocked" && row?.why_not_running?.jobs?.length === 1 ? ` by ${row.why_not_running.jobs[0]}` : "";
    this.words(`${word(state)}${attempts}${by}`, x + 29, y + 35.5, 400, 12, colour, width - 40);
  }

  private stack(item: GraphItem): void {
    const { context } = this;
    const { x, y, width, height } = item;
    context.fillStyle = this.colour("raised");
    const counts = this.counts(item);
    const [state, count] = counts[0] ?? ["waiting", 0];
    if (this.isStopped(item)) context.setLineDash([4, 3]);
    for (const off of [6, 3, 0]) {
      this.rect(x + off + 0.5, y + off + 0.5, width - 1, height - 1, 6);
      context.fill();
      context.lineWidth = state === "failed" && off === 0 ? 2 : 1;
      context.strokeStyle = this.colour(off > 0 ? "line-2" : state === "failed" ? "bad-fill" : "line-2");
      context.stroke();
    }
    context.setLineDash([]);
    const total = item.jobs.length;
    const right = this.words(`${total.toLocaleString("en")} jobs`, x + width - 12, y + 17, 400, 12, "dim", 80, "right") + 8;
    this.words(item.name, x + 12, y + 17, 600, 13, "text", width - 24 - right);
    const done = state === "succeeded" && count === total;
    this.icon(stateIcon(state), x + 12, y + 28, stateColour(state));
    const rows = item.jobs.map((job) => this.jobs.get(job)).filter((job) => job !== undefined);
    const ran = rows.length === total ? took(rows) : "";
    const left = ran ? this.words(ran, x + width - 12, y + 34, 400, 12, "dim", 60, "right") + 8 : 0;
    this.words(done ? "Done" : `${count.toLocaleString("en")} ${word(state).toLowerCase()}`, x + 29, y + 34, 400, 12, stateColour(state), width - 41 - left);
    const bar = width - 24;
    context.fillStyle = this.colour("sunken");
    context.fillRect(x + 12, y + 48, bar, 5);
    let at = x + 12;
    for (const one of BAR) {
      const share = counts.find(([name]) => name === one)?.[1] ?? 0;
      if (share === 0) continue;
      const part = Math.max((bar * share) / total, 1);
      context.fillStyle = this.colour(stateFill(one));
      context.fillRect(at, y + 48, part, 5);
      at += part;
    }
  }
}

/** From the first start to the last end. */
function took(jobs: readonly Job[]): string {
  let [from, to] = [Infinity, -Infinity];
  for (const job of jobs) {
    const start = began(job);
    if (start === null) continue;
    from = Math.min(from, start);
    to = Math.max(to, ended(job) ?? (job.state === "running" ? Math.max(now.peek(), start) : start));
  }
  return to >= from ? span(to - from) : "";
}
