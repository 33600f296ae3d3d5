// Draws a scene on a canvas: only what is in view, lines a part a frame, so that moving stays smooth at any size.
import type { Job } from "../../model";
import { Boxes } from "./boxes";
import { Lines } from "./lines";
import { drawMinimap } from "./minimap";
import type { Area, Scene } from "./scene";

/** Names stay legible: the smallest text is 10 px high. */
const MIN_SCALE = 0.8;
const MAX_SCALE = 2;
/** Space around the graph. */
export const MARGIN = 16;
/** A picture of more screens than this has a minimap; its sides in pixels. */
const MAX_SCREENS = 2;
const MAP = { width: 160, height: 90, least: 16 } as const;
/** Lines up to this number are drawn each time, and show where nothing will go on. */
const MAX_DRAWN_LINES = 400;
export class Drawing {
  private x = MARGIN;
  private y = MARGIN;
  private scale = 1;
  private width = 1;
  private height = 1;
  private ratio = 1;
  private due = 0;
  private readonly context: CanvasRenderingContext2D;
  private readonly boxes: Boxes;
  private readonly lines = new Lines();
  private dots: CanvasPattern | null = null;
  /** The item that has the ring, and the job whose drawer is open. */
  focus: number | null = null;
  open: number | null = null;
  /** It stands where it was put first, until the reader moves it. */
  private whole = true;

  constructor(
    private readonly canvas: HTMLCanvasElement,
    public scene: Scene,
  ) {
    this.context = canvas.getContext("2d", { alpha: false }) as CanvasRenderingContext2D;
    this.boxes = new Boxes(this.context, scene);
    this.recolour();
  }

  recolour(): void {
    this.boxes.recolour();
    this.dots = null;
    this.lines.forget();
    this.later();
  }

  know(jobs: ReadonlyMap<number, Job>): void {
    this.boxes.know(jobs);
    this.later();
  }

  /** Shows another arrangement of the same graph. */
  replace(scene: Scene): void {
    this.scene = this.boxes.scene = scene;
    this.focus = null;
    this.lines.forget();
    if (this.whole) this.fit();
    else this.keep();
    this.later();
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
    // The first job is in sight, also where its layer is not the highest.
    const [first] = this.scene.picture.items;
    this.x = MARGIN;
    this.y = first ? this.height / 2 - (first.y + first.height / 2) * this.scale : MARGIN;
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

  /** Where the minimap stands: only beside a picture that is larger than two screens. */
  private mapArea(): Area | null {
    const { width, height } = this.scene.picture;
    if (width * height * this.scale ** 2 <= MAX_SCREENS * this.width * this.height) return null;
    const [right, bottom] = [this.width - 8, this.height - 8];
    return { left: right - MAP.width, top: bottom - Math.max(MAP.least, Math.min(MAP.height, (MAP.width * height) / width)), right, bottom };
  }

  /** Moves the view to a place of the minimap; false when there is none there. `held` is a drag that began in it. */
  toMap(x: number, y: number, held: boolean): boolean {
    const map = this.mapArea();
    if (!map || (!held && (x < map.left || x > map.right || y < map.top || y > map.bottom))) return false;
    const { width, height } = this.scene.picture;
    this.x = this.width / 2 - ((x - map.left) / (map.right - map.left)) * width * this.scale;
    this.y = this.height / 2 - ((y - map.top) / (map.bottom - map.top)) * height * this.scale;
    this.whole = false;
    this.keep();
    this.later();
    return true;
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
    context.fillStyle = this.boxes.colour("surface");
    context.fillRect(0, 0, this.width, this.height);
    context.fillStyle = this.dots ??= this.dotted();
    context.fillRect(0, 0, this.width, this.height);
    let more = false;
    if (scene.picture.lines.ends.length / 2 <= MAX_DRAWN_LINES) this.fewLines();
    else {
      const view = { x: this.x, y: this.y, scale: this.scale, width: this.width, height: this.height, ratio: this.ratio };
      more = this.lines.draw(context, scene, view, this.boxes.colour("control"));
    }
    this.own();
    // Boxes are drawn in the measures of the scene.
    context.setTransform(this.ratio * this.scale, 0, 0, this.ratio * this.scale, this.ratio * this.x, this.ratio * this.y);
    for (const frame of scene.picture.frames) this.boxes.frame(frame);
    const area = this.area(4);
    const open = this.open === null ? null : scene.itemOf(this.open);
    scene.eachItem(area, (at) => this.boxes.box(at, at === open || at === this.focus));
    const map = this.mapArea();
    context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    if (map) drawMinimap(this.boxes, scene, map, this.area(0));
    if (more) this.later();
  }

  private dotted(): CanvasPattern {
    const tile = document.createElement("canvas");
    tile.width = tile.height = 18;
    const context = tile.getContext("2d") as CanvasRenderingContext2D;
    context.fillStyle = this.boxes.colour("line");
    context.fillRect(8, 8, 1.5, 1.5);
    return this.context.createPattern(tile, "repeat") as CanvasPattern;
  }

  /** Lines to what will not run are dashed. */
  private fewLines(): void {
    const { context, scene } = this;
    const { ends } = scene.picture.lines;
    context.strokeStyle = this.boxes.colour("control");
    context.lineWidth = 1.2;
    for (const stopped of [false, true]) {
      context.setLineDash(stopped ? [4, 3] : []);
      context.beginPath();
      for (let line = 0; line < ends.length / 2; line++) {
        const to = ends[2 * line + 1] ?? -1;
        if ((to >= 0 && this.boxes.isStopped(scene.item(to))) === stopped) scene.trace(context, line, this.x, this.y, this.scale);
      }
      context.stroke();
    }
    context.setLineDash([]);
  }

  /** The lines of the item that has the ring, or is open, above all others. */
  private own(): void {
    const { context, scene } = this;
    context.lineWidth = 1.6;
    context.strokeStyle = this.boxes.colour("accent");
    if (this.focus === null || scene.picture.lines.ends.length / 2 <= MAX_DRAWN_LINES) return;
    context.beginPath();
    scene.linesOf(this.focus).slice(0, 2000).forEach((line) => scene.trace(context, line, this.x, this.y, this.scale));
    context.stroke();
  }
}
