// Draws a scene on a canvas: only what is in view, lines a part a frame, so that moving stays smooth at any size.
import { sign, stateColour, word } from "../../parts/state";
import { cut, plain } from "../../parts/text";
import { token } from "../../theme";
import type { Area, Scene } from "./scene";

/** Scale from which boxes have a name; below, each is one colour. */
const MIN_NAME_SCALE = 0.45;
/** Width below which a job is a square of one colour at any scale, as in frames of thousands of jobs. */
const SQUARE_WIDTH = 40;
/** Scale below which a frame around many jobs is one box with numbers. */
const FOLD_SCALE = 0.5;
/** Pieces of lines that are drawn in one frame of the screen: some 5 ms where nothing but the processor draws. */
const MAX_LINE_PIECES = 3000;
const MIN_SCALE = 0.002;
const MAX_SCALE = 3;

export class Drawing {
  private x = 0;
  private y = 0;
  private scale = 1;
  private width = 1;
  private height = 1;
  private ratio = 1;
  private due = 0;
  private readonly font = token("sans");
  private readonly context: CanvasRenderingContext2D;
  private readonly lines = new Lines();
  private colours = new Map<string, string>();
  /** The job that has the ring, and the one whose drawer is open. */
  focus: number | null = null;
  open: number | null = null;
  /** All is shown, until the reader moves it. */
  private whole = false;
  /** How long the main thread took for the latest frame, in milliseconds. */
  took = 0;

  constructor(
    private readonly canvas: HTMLCanvasElement,
    readonly scene: Scene,
  ) {
    this.context = canvas.getContext("2d", { alpha: false }) as CanvasRenderingContext2D;
    this.recolour();
  }

  recolour(): void {
    this.colours = new Map();
    this.lines.forget();
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
    this.draw();
  }

  /** All of it; small graphs are not made larger than they are. */
  fit(): void {
    this.whole = true;
    const { width, height } = this.scene.graph;
    this.scale = Math.max(MIN_SCALE, Math.min(1, this.width / Math.max(1, width), this.height / Math.max(1, height)));
    this.x = (this.width - width * this.scale) / 2;
    this.y = (this.height - height * this.scale) / 2;
    this.later();
  }

  /** Sets the first view: all of the graph, or of a long chain the place where jobs run. */
  begin(): void {
    this.fit();
    const { width, height, nodes } = this.scene.graph;
    const high = Math.min(1, this.height / Math.max(1, height), this.width / 300);
    const wide = Math.min(1, this.width / Math.max(1, width), this.height / 150);
    const scale = Math.max(high, wide);
    if (scale < 8 * this.scale) return;
    const job = nodes.findIndex((_, at) => ["running", "failed", "ready"].includes(this.scene.states.get(at)));
    const node = nodes[job < 0 ? 0 : job];
    if (!node) return;
    this.whole = false;
    this.scale = scale;
    this.x = Math.min(0, this.width / 3 - node.x * scale);
    this.y = high > wide ? (this.height - height * scale) / 2 : Math.min(0, this.height / 3 - node.y * scale);
    if (high <= wide) this.x = (this.width - width * scale) / 2;
  }

  pan(dx: number, dy: number): void {
    this.x += dx;
    this.y += dy;
    this.keep();
    this.later();
  }

  zoom(by: number, x = this.width / 2, y = this.height / 2): void {
    const to = Math.max(Math.min(MIN_SCALE, this.scale), Math.min(MAX_SCALE, this.scale * by));
    this.x = x - ((x - this.x) * to) / this.scale;
    this.y = y - ((y - this.y) * to) / this.scale;
    this.scale = to;
    this.keep();
    this.later();
  }

  /** Keeps the middle of the view on the picture, so that zooming in there shows a part of it. */
  private keep(): void {
    this.whole = false;
    const { width, height } = this.scene.graph;
    this.x = Math.min(this.width / 2, Math.max(this.width / 2 - width * this.scale, this.x));
    this.y = Math.min(this.height / 2, Math.max(this.height / 2 - height * this.scale, this.y));
  }

  /** Moves a box into view, large enough to be read. */
  show(box: { x: number; y: number; width: number; height: number }, least = MIN_NAME_SCALE + 0.1): void {
    const area = this.area(0);
    const inside = box.x >= area.left && box.y >= area.top && box.x + box.width <= area.right && box.y + box.height <= area.bottom;
    if (inside && this.scale >= least) return this.later();
    this.whole = false;
    this.scale = Math.max(this.scale, least);
    this.x = this.width / 2 - (box.x + box.width / 2) * this.scale;
    this.y = this.height / 2 - (box.y + box.height / 2) * this.scale;
    this.later();
  }

  toScene(x: number, y: number): [number, number] {
    return [(x - this.x) / this.scale, (y - this.y) / this.scale];
  }

  /** Where a job stands on the screen. */
  onScreen(job: number): [number, number] | null {
    const node = this.scene.graph.nodes[job];
    return node ? [(node.x + node.width / 2) * this.scale + this.x, (node.y + node.height / 2) * this.scale + this.y] : null;
  }

  get folded(): boolean {
    return this.scale < FOLD_SCALE;
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
    const began = performance.now();
    const { context } = this;
    context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    context.fillStyle = this.colour("surface");
    context.fillRect(0, 0, this.width, this.height);
    const view = { x: this.x, y: this.y, scale: this.scale, width: this.width, height: this.height, ratio: this.ratio };
    const more = this.lines.draw(context, this.scene, view, this.colour("control"));
    const area = this.area(2);
    this.own();
    this.blocks(area);
    this.boxes(area);
    this.took = performance.now() - began;
    if (more) this.later();
  }

  /** The lines of the job that has the ring, or is open, above all others. */
  private own(): void {
    const { context, scene } = this;
    context.lineWidth = 1.6;
    context.strokeStyle = this.colour("accent");
    for (const job of new Set([this.focus, this.open])) {
      if (job === null) continue;
      context.beginPath();
      scene.linesOf(job).slice(0, 2000).forEach((edge) => scene.trace(context, edge, this.x, this.y, this.scale));
      context.stroke();
    }
  }

  private blocks(area: Area): void {
    const { context, scene, scale } = this;
    for (const block of scene.graph.blocks) {
      if (block.x > area.right || block.y > area.bottom || block.x + block.width < area.left || block.y + block.height < area.top) continue;
      const [x, y, width, height] = [block.x * scale + this.x, block.y * scale + this.y, block.width * scale, block.height * scale];
      context.fillStyle = this.colour("bg");
      context.fillRect(x, y, width, height);
      context.strokeStyle = this.colour("control");
      context.lineWidth = 1;
      context.strokeRect(x, y, width, height);
      if (this.folded) this.folds(block.jobs, x, y, width, height);
    }
  }

  /** Many jobs as one box: what part of them is in each state, and how many. */
  private folds(jobs: readonly number[], x: number, y: number, width: number, height: number): void {
    const { context, scene } = this;
    const counts = [...scene.states.count(jobs)].sort((one, other) => other[1] - one[1]);
    const bar = Math.min(10, height * 0.2);
    let at = x + 1;
    for (const [state, count] of counts) {
      const part = ((width - 2) * count) / jobs.length;
      context.fillStyle = this.colour(stateColour(state));
      context.fillRect(at, y + height - bar - 1, Math.max(part, 1), bar);
      at += part;
    }
    const rows = Math.floor((height - bar - 6) / 15);
    if (width < 60 || rows < 1) return;
    context.save();
    context.beginPath();
    context.rect(x, y, width, height);
    context.clip();
    context.textBaseline = "middle";
    context.font = `600 12px ${this.font}`;
    context.fillStyle = this.colour("text");
    const handler = scene.graph.nodes[jobs[0] ?? 0]?.handler ?? "";
    context.fillText(cut(plain(`${handler} × ${jobs.length.toLocaleString("en")}`), Math.floor(width / 6.5)), x + 6, y + 10);
    context.font = `12px ${this.font}`;
    counts.slice(0, rows - 1).forEach(([state, count], row) => {
      context.fillStyle = this.colour(stateColour(state));
      context.fillText(`${sign(state)} ${count.toLocaleString("en")} ${word(state).toLowerCase()}`, x + 6, y + 26 + row * 15);
    });
    context.restore();
  }

  private boxes(area: Area): void {
    const { context, scene, scale } = this;
    const named = scale >= MIN_NAME_SCALE;
    const byState = new Map<string, number[]>();
    scene.eachNode(area, (at) => {
      if (this.folded && (scene.blockOf[at] ?? -1) >= 0) return;
      const node = scene.graph.nodes[at];
      if (!node || node.x > area.right || node.y > area.bottom || node.x + node.width < area.left || node.y + node.height < area.top) return;
      const state = scene.states.get(at);
      // Squares apart from boxes: the first of a group tells what the others are.
      const key = node.width < SQUARE_WIDTH ? `${state} ` : state;
      const list = byState.get(key);
      if (list) list.push(at);
      else byState.set(key, [at]);
    });
    const size = Math.max(9.5, 13 * scale);
    for (const [key, list] of byState) {
      const state = key.trimEnd();
      const own = this.colour(stateColour(state));
      context.beginPath();
      for (const at of list) {
        const node = scene.graph.nodes[at];
        if (!node) continue;
        context.rect(node.x * scale + this.x, node.y * scale + this.y, Math.max(2, node.width * scale), Math.max(2, node.height * scale));
      }
      const small = (scene.graph.nodes[list[0] ?? 0]?.width ?? 0) < SQUARE_WIDTH;
      context.fillStyle = named && !small ? this.colour("surface") : own;
      context.fill();
      if (!named) continue;
      if (small) {
        for (const at of list) this.square(at);
        continue;
      }
      context.strokeStyle = own;
      context.lineWidth = state === "running" || state === "failed" ? 2 : 1.2;
      context.stroke();
      context.textBaseline = "middle";
      for (const at of list) this.label(at, state, own, size);
    }
    for (const [job, name] of [[this.open, "accent"], [this.focus, "text"]] as const) {
      const node = job === null ? undefined : scene.graph.nodes[job];
      if (!node) continue;
      context.strokeStyle = this.colour(name);
      context.lineWidth = 2.5;
      context.strokeRect(node.x * scale + this.x - 3, node.y * scale + this.y - 3, Math.max(1.5, node.width * scale) + 6, Math.max(1.5, node.height * scale) + 6);
    }
  }

  /** The name, when the square has been made large enough. */
  private square(at: number): void {
    const { context, scene, scale } = this;
    const node = scene.graph.nodes[at];
    if (!node || node.width * scale < 34) return;
    context.textBaseline = "middle";
    context.font = `10px ${this.font}`;
    context.fillStyle = this.colour("surface");
    // Names of jobs that are alike differ at their end.
    const maxChars = Math.floor((node.width * scale - 4) / 6.3);
    const name = plain(node.name.slice(-100));
    const shown = name.length <= maxChars ? name : `…${[...name].slice(1 - maxChars).join("")}`;
    context.fillText(this.fitted(shown, node.width * scale - 4, 10), node.x * scale + this.x + 2, (node.y + node.height / 2) * scale + this.y);
  }

  private label(at: number, state: string, own: string, size: number): void {
    const { context, scene, scale } = this;
    const node = scene.graph.nodes[at];
    if (!node) return;
    const [x, y, width, height] = [node.x * scale + this.x, node.y * scale + this.y, node.width * scale, node.height * scale];
    context.fillStyle = own;
    // A stripe, so that the state is seen from afar.
    context.fillRect(x, y, 4 * Math.min(1, scale) + 1, height);
    const inner = width - 12 * scale;
    const two = height >= 2.4 * size;
    context.font = `600 ${size}px ${this.font}`;
    context.fillStyle = this.colour("text");
    context.fillText(this.fitted(node.name, inner, size), x + 9 * scale, y + (two ? height * 0.32 : height / 2));
    if (!two) return;
    context.font = `${size * 0.88}px ${this.font}`;
    context.fillStyle = own;
    context.fillText(this.fitted(`${sign(state)} ${word(state)}`, inner, size), x + 9 * scale, y + height * 0.72);
  }

  private fitted(text: string, width: number, size: number): string {
    const shown = plain(text.slice(0, 100));
    // Most texts fit; to measure is the dearest thing here.
    if (shown.length * size * 0.5 < width || this.context.measureText(shown).width <= width) return shown;
    let maxChars = Math.max(1, Math.floor(width / (size * 0.62)));
    while (maxChars > 1 && this.context.measureText(cut(shown, maxChars)).width > width) maxChars--;
    return cut(shown, maxChars);
  }
}

interface View {
  readonly x: number;
  readonly y: number;
  readonly scale: number;
  readonly width: number;
  readonly height: number;
  readonly ratio: number;
}

interface Picture {
  readonly canvas: HTMLCanvasElement;
  readonly view: View;
  /** Lines that are not drawn yet. */
  readonly left: number[];
}

/** The lines in and around the view, kept as a picture: they do not change, and are the most of a large graph. */
class Lines {
  private shown: Picture | null = null;
  private next: Picture | null = null;
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
    scene.eachEdge(area, (edge) => left.push(edge));
    this.next = { canvas, view, left };
  }

  private part({ view, canvas, left }: Picture, scene: Scene, colour: string): void {
    const context = canvas.getContext("2d");
    if (!context) return void (left.length = 0);
    context.setTransform(view.ratio, 0, 0, view.ratio, view.width * view.ratio * 0.5, view.height * view.ratio * 0.5);
    context.strokeStyle = colour;
    context.lineWidth = view.scale < 0.2 ? 0.6 : 1;
    // Boxes are what one looks for: thousands of lines stay behind them.
    context.globalAlpha = view.scale >= 0.2 ? 0.9 : scene.graph.edges.lengths.length > 5000 ? 0.22 : 0.6;
    context.beginPath();
    for (let pieces = 0; pieces < MAX_LINE_PIECES && left.length > 0; ) {
      pieces += scene.trace(context, left.pop() as number, view.x, view.y, view.scale);
    }
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
