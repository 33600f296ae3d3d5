// Draws a scene on a canvas: only what is in view, lines a part a frame, so that moving stays smooth at any size.
import type { Job } from "../../model";
import { iconPath, type IconName } from "../../parts/icon";
import { stateColour, stateFill, stateIcon, word } from "../../parts/state";
import { plain } from "../../parts/text";
import { now, span } from "../../parts/time";
import { token } from "../../theme";
import type { Frame, GraphItem } from "./arrange";
import { began, ended, stateOf } from "./jobs";
import type { Area, Scene } from "./scene";

/** Names stay legible: the smallest text is 10 px high. */
const MIN_SCALE = 0.8;
const MAX_SCALE = 2;
/** Space around the graph. */
export const MARGIN = 16;
/** Lines that are drawn in one frame of the screen: some 5 ms where nothing but the processor draws. */
const MAX_LINES = 1500;
/** Lines up to this number are drawn each time, and show where nothing will go on. */
const MAX_DRAWN_LINES = 400;
/** The order of states in the bar and the words of a stack. */
const ORDER = ["failed", "running", "retrying", "limited", "ready", "scheduled", "waiting", "blocked", "succeeded", "skipped", "cancelled"];
const BAR = ["succeeded", "skipped", "cancelled", "failed", "running", "retrying", "limited"];

export class Drawing {
  private x = MARGIN;
  private y = MARGIN;
  private scale = 1;
  private width = 1;
  private height = 1;
  private ratio = 1;
  private due = 0;
  private readonly font = token("sans");
  private readonly context: CanvasRenderingContext2D;
  private readonly lines = new Lines();
  private colours = new Map<string, string>();
  private readonly icons = new Map<IconName, Path2D>();
  private dots: CanvasPattern | null = null;
  /** The item that has the ring, and the job whose drawer is open. */
  focus: number | null = null;
  open: number | null = null;
  /** Times and attempts of jobs, as far as they are known. */
  private jobs: ReadonlyMap<number, Job> = new Map();
  /** Jobs for whose state the page may have a finer word than the events. */
  private refined: readonly number[] = [];
  private readonly members = new WeakMap<GraphItem, ReadonlySet<number>>();
  /** It stands where it was put first, until the reader moves it. */
  private whole = true;

  constructor(
    private readonly canvas: HTMLCanvasElement,
    public scene: Scene,
  ) {
    this.context = canvas.getContext("2d", { alpha: false }) as CanvasRenderingContext2D;
    this.recolour();
  }

  recolour(): void {
    this.colours = new Map();
    this.dots = null;
    this.lines.forget();
    this.later();
  }

  know(jobs: ReadonlyMap<number, Job>): void {
    this.jobs = jobs;
    this.refined = [...jobs.keys()].filter((job) => ["limited", "retrying"].includes(stateOf(jobs.get(job) as Job)));
    this.later();
  }

  /** Shows another arrangement of the same graph. */
  replace(scene: Scene): void {
    this.scene = scene;
    this.focus = null;
    this.lines.forget();
    if (this.whole) this.fit();
    else this.keep();
    this.later();
  }

  private colour(name: string): string {
    let found = this.colours.get(name);
    if (found === undefined) {
      found = token(name);
      this.colours.set(name, found);
    }
    return found;
  }

  resize(width: number, height: number): void {
    this.ratio = Math.min(devicePixelRatio, 2);
    [this.width, this.height] = [Math.max(1, width), Math.max(1, height)];
    this.canvas.width = Math.round(this.width * this.ratio);
    this.canvas.height = Math.round(this.height * this.ratio);
    this.lines.forget();
    if (this.whole) this.fit();
    else this.keep();
    this.draw();
  }

  /** The scale at which the whole width is seen, as far as names stay legible. */
  scaleFor(width: number): number {
    return Math.max(MIN_SCALE, Math.min(1, (width - 2 * MARGIN) / Math.max(1, this.scene.picture.width)));
  }

  fit(): void {
    this.whole = true;
    this.scale = this.scaleFor(this.width);
    [this.x, this.y] = [MARGIN, MARGIN];
    this.keep();
    this.later();
  }

  /** Whether there was anything to move that way. */
  pan(dx: number, dy: number): boolean {
    const [x, y] = [this.x, this.y];
    this.x += dx;
    this.y += dy;
    this.keep();
    const moved = Math.abs(this.x - x) + Math.abs(this.y - y) > 0.5;
    if (moved) {
      this.whole = false;
      this.later();
    }
    return moved;
  }

  zoom(by: number, x = this.width / 2, y = this.height / 2): void {
    const to = Math.max(MIN_SCALE, Math.min(MAX_SCALE, this.scale * by));
    this.x = x - ((x - this.x) * to) / this.scale;
    this.y = y - ((y - this.y) * to) / this.scale;
    this.scale = to;
    this.whole = false;
    this.keep();
    this.later();
  }

  /** No further than the edges of the graph; a small one stays in the middle of the height. */
  private keep(): void {
    const { width, height } = this.scene.picture;
    const bound = (at: number, has: number, wants: number, centred: boolean): number => {
      const room = has - wants;
      if (room >= 2 * MARGIN) return centred ? room / 2 : MARGIN;
      return Math.max(room - MARGIN, Math.min(MARGIN, at));
    };
    this.x = bound(this.x, this.width, width * this.scale, this.scene.picture.down);
    this.y = bound(this.y, this.height, height * this.scale, true);
  }

  /** Moves a box into view. */
  show(box: { x: number; y: number; width: number; height: number }): void {
    const area = this.area(-8);
    const inside = box.x >= area.left && box.y >= area.top && box.x + box.width <= area.right && box.y + box.height <= area.bottom;
    if (!inside) {
      this.whole = false;
      this.x = this.width / 2 - (box.x + box.width / 2) * this.scale;
      this.y = this.height / 2 - (box.y + box.height / 2) * this.scale;
      this.keep();
    }
    this.later();
  }

  toScene(x: number, y: number): [number, number] {
    return [(x - this.x) / this.scale, (y - this.y) / this.scale];
  }

  private area(more: number): Area {
    const [left, top] = this.toScene(-more, -more);
    const [right, bottom] = this.toScene(this.width + more, this.height + more);
    return { left, top, right, bottom };
  }

  later(): void {
    this.due ||= requestAnimationFrame(() => this.draw());
  }

  end(): void {
    cancelAnimationFrame(this.due);
    this.due = -1;
  }

  private draw(): void {
    if (this.due > 0) cancelAnimationFrame(this.due);
    this.due = 0;
    const { context, scene } = this;
    context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    context.fillStyle = this.colour("surface");
    context.fillRect(0, 0, this.width, this.height);
    context.fillStyle = this.dots ??= this.dotted();
    context.fillRect(0, 0, this.width, this.height);
    let more = false;
    if (scene.picture.lines.ends.length / 2 <= MAX_DRAWN_LINES) this.fewLines();
    else {
      const view = { x: this.x, y: this.y, scale: this.scale, width: this.width, height: this.height, ratio: this.ratio };
      more = this.lines.draw(context, scene, view, this.colour("control"));
    }
    this.own();
    // All that follows is drawn in the measures of the scene.
    context.setTransform(this.ratio * this.scale, 0, 0, this.ratio * this.scale, this.ratio * this.x, this.ratio * this.y);
    for (const frame of scene.picture.frames) this.frame(frame);
    const area = this.area(4);
    const open = this.open === null ? null : scene.itemOf(this.open);
    scene.eachItem(area, (at) => this.box(at, at === open));
    if (more) this.later();
  }

  private dotted(): CanvasPattern {
    const tile = document.createElement("canvas");
    tile.width = tile.height = 18;
    const context = tile.getContext("2d") as CanvasRenderingContext2D;
    context.fillStyle = this.colour("line");
    context.fillRect(8, 8, 1.5, 1.5);
    return this.context.createPattern(tile, "repeat") as CanvasPattern;
  }

  /** Lines to what will not run are dashed. */
  private fewLines(): void {
    const { context, scene } = this;
    const { ends } = scene.picture.lines;
    context.strokeStyle = this.colour("control");
    context.lineWidth = 1.2;
    for (const stopped of [false, true]) {
      context.setLineDash(stopped ? [4, 3] : []);
      context.beginPath();
      for (let line = 0; line < ends.length / 2; line++) {
        const to = ends[2 * line + 1] ?? -1;
        const item = to < 0 ? undefined : scene.item(to);
        const blocked = item?.kind === "job" && scene.states.get(item.jobs[0] ?? 0) === "blocked";
        if (blocked === stopped) scene.trace(context, line, this.x, this.y, this.scale);
      }
      context.stroke();
    }
    context.setLineDash([]);
  }

  /** The lines of the item that has the ring, or is open, above all others. */
  private own(): void {
    const { context, scene } = this;
    context.lineWidth = 1.6;
    context.strokeStyle = this.colour("accent");
    if (this.focus === null || scene.picture.lines.ends.length / 2 <= MAX_DRAWN_LINES) return;
    context.beginPath();
    scene.linesOf(this.focus).slice(0, 2000).forEach((line) => scene.trace(context, line, this.x, this.y, this.scale));
    context.stroke();
  }

  private rect(x: number, y: number, width: number, height: number, radius: number): void {
    this.context.beginPath();
    this.context.roundRect(x, y, width, height, radius);
  }

  private frame({ x, y, width, height, stack }: Frame): void {
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
    const left = this.words(item.name, x + 12, y + 20, 600, 13, "text", width / 3);
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

  private membersOf(item: GraphItem): ReadonlySet<number> {
    let found = this.members.get(item);
    if (!found) this.members.set(item, (found = new Set(item.jobs)));
    return found;
  }

  /** The state that the page says of a job: events know fewer words. */
  private state(job: number): string {
    const state = this.scene.states.get(job);
    const row = this.jobs.get(job);
    return row?.state === state && row.state !== "waiting" ? stateOf(row) : state;
  }

  private box(at: number, open: boolean): void {
    const { context, scene } = this;
    const item = scene.item(at);
    const { x, y, width, height, kind } = item;
    if (open || at === this.focus) {
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
    if (state === "blocked") context.setLineDash([4, 3]);
    context.stroke();
    context.setLineDash([]);
    const row = this.jobs.get(job);
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
    for (const off of [6, 3, 0]) {
      this.rect(x + off + 0.5, y + off + 0.5, width - 1, height - 1, 6);
      context.fill();
      context.lineWidth = state === "failed" && off === 0 ? 2 : 1;
      context.strokeStyle = this.colour(off > 0 ? "line-2" : state === "failed" ? "bad-fill" : "line-2");
      context.stroke();
    }
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

  private icon(name: IconName, x: number, y: number, colour: string): void {
    const { context } = this;
    let path = this.icons.get(name);
    if (!path) this.icons.set(name, (path = new Path2D(iconPath(name))));
    context.save();
    context.translate(x, y);
    context.scale(0.75, 0.75);
    context.lineWidth = 2;
    context.lineCap = context.lineJoin = "round";
    context.strokeStyle = this.colour(colour);
    context.stroke(path);
    context.restore();
  }

  /** A line of text, cut to its width. The width that it took. */
  private words(text: string, x: number, y: number, weight: number, size: number, colour: string, width: number, align: "left" | "right" = "left"): number {
    const { context } = this;
    context.font = `${weight} ${size}px ${this.font}`;
    context.textBaseline = "middle";
    context.textAlign = align;
    context.fillStyle = this.colour(colour);
    const shown = this.fitted(text, width);
    context.fillText(shown, x, y);
    return align === "right" || weight === 600 ? context.measureText(shown).width : 0;
  }

  /** Names of jobs that are alike differ at their end: the middle goes. */
  private fitted(text: string, width: number): string {
    const shown = plain(text.slice(0, 200));
    // Most texts fit; to measure is the dearest thing here.
    if (shown.length * 5 < width || this.context.measureText(shown).width <= width) return shown;
    const signs = [...shown];
    let kept = Math.max(2, Math.floor((signs.length * width) / this.context.measureText(shown).width));
    const cut = (): string => `${signs.slice(0, Math.ceil(kept / 2)).join("")}…${signs.slice(signs.length - Math.floor(kept / 2)).join("")}`;
    while (kept > 2 && this.context.measureText(cut()).width > width) kept--;
    return cut();
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

interface View {
  readonly x: number;
  readonly y: number;
  readonly scale: number;
  readonly width: number;
  readonly height: number;
  readonly ratio: number;
}

interface LinePicture {
  readonly canvas: HTMLCanvasElement;
  readonly view: View;
  /** Lines that are not drawn yet. */
  readonly left: number[];
}

/** The lines in and around the view, kept as a picture: they do not change, and are the most of a large graph. */
class Lines {
  private shown: LinePicture | null = null;
  private next: LinePicture | null = null;
  /** A canvas that shows nothing now. Each takes megabytes, which browsers free late. */
  private spare: HTMLCanvasElement | null = null;

  forget(): void {
    this.spare = this.shown?.canvas ?? this.next?.canvas ?? this.spare;
    this.shown = null;
    this.next = null;
  }

  /** Draws what there is. True when there will be more. */
  draw(context: CanvasRenderingContext2D, scene: Scene, view: View, colour: string): boolean {
    if (this.next && !covers(this.next.view, view, 0)) {
      this.spare = this.next.canvas;
      this.next = null;
    }
    // A new picture is begun before the old one ends, so that nothing is missing while it is made.
    if (!this.next && !(this.shown && covers(this.shown.view, view, -0.15))) this.begin(scene, view);
    if (this.next) this.part(this.next, scene, colour);
    if (this.next?.left.length === 0) {
      this.spare = this.shown?.canvas ?? null;
      this.shown = this.next;
      this.next = null;
    }
    const picture = this.shown ?? this.next;
    if (picture) {
      const has = picture.view;
      const by = view.scale / has.scale;
      // On whole points of the screen, else all lines are blurred.
      const round = (at: number): number => Math.round(at * view.ratio) / view.ratio;
      const [x, y] = [round(view.x - (has.x + has.width / 2) * by), round(view.y - (has.y + has.height / 2) * by)];
      context.drawImage(picture.canvas, x, y, 2 * has.width * by, 2 * has.height * by);
    }
    return this.next !== null;
  }

  private begin(scene: Scene, view: View): void {
    const canvas = this.spare ?? document.createElement("canvas");
    this.spare = null;
    // This clears it, too.
    canvas.width = Math.round(2 * view.width * view.ratio);
    canvas.height = Math.round(2 * view.height * view.ratio);
    const left: number[] = [];
    const [marginX, marginY] = [view.width / 2, view.height / 2];
    const area = {
      left: (-view.x - marginX) / view.scale,
      top: (-view.y - marginY) / view.scale,
      right: (view.width + marginX - view.x) / view.scale,
      bottom: (view.height + marginY - view.y) / view.scale,
    };
    scene.eachLine(area, (line) => left.push(line));
    this.next = { canvas, view, left };
  }

  private part({ view, canvas, left }: LinePicture, scene: Scene, colour: string): void {
    const context = canvas.getContext("2d");
    if (!context) return void (left.length = 0);
    context.setTransform(view.ratio, 0, 0, view.ratio, view.width * view.ratio * 0.5, view.height * view.ratio * 0.5);
    context.strokeStyle = colour;
    context.lineWidth = 1;
    // Boxes are what one looks for: thousands of lines stay behind them.
    context.globalAlpha = scene.picture.lines.ends.length > 10_000 ? 0.3 : 0.7;
    context.beginPath();
    for (const line of left.splice(-MAX_LINES)) scene.trace(context, line, view.x, view.y, view.scale);
    context.stroke();
  }
}

/** Whether a picture of one view, with half a view around it, holds another. */
function covers(has: View, wants: View, slack: number): boolean {
  if (has.ratio !== wants.ratio || has.width !== wants.width || has.height !== wants.height) return false;
  if (Math.abs(has.scale / wants.scale - 1) > 1e-6) return false;
  const maxOffset = 0.5 + slack;
  return Math.abs(has.x - wants.x) <= has.width * maxOffset && Math.abs(has.y - wants.y) <= has.height * maxOffset;
}
