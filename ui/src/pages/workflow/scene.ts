// What is drawn of a graph, and where it is found again: without a screen, so it can be measured.
import type { Box, Graph } from "../../model";
import type { GraphItem, Picture } from "./arrange";

/** Words for states as they are kept for each job: a later server may have more. */
export class States {
  readonly words: string[] = [];
  readonly of: Uint8Array;
  private readonly places = new Map<string, number>();

  constructor(jobs: number) {
    this.of = new Uint8Array(jobs);
  }

  place(word: string): number {
    let place = this.places.get(word);
    if (place === undefined) {
      place = Math.min(this.words.length, 255);
      this.places.set(word, place);
      this.words[place] = word;
    }
    return place;
  }

  set(job: number, word: string): void {
    if (job < this.of.length) this.of[job] = this.place(word);
  }

  /** Those of a graph as it came. */
  read(graph: Graph): void {
    graph.nodes.forEach((node, job) => this.set(job, node.blocked && node.state === "waiting" ? "blocked" : node.state));
  }

  get(job: number): string {
    return this.words[this.of[job] ?? 0] ?? "waiting";
  }

  count(jobs: readonly number[]): Map<string, number> {
    const counts = new Uint32Array(256);
    for (const job of jobs) {
      const place = this.of[job] ?? 0;
      counts[place] = (counts[place] ?? 0) + 1;
    }
    const found = new Map<string, number>();
    this.words.forEach((word, place) => counts[place] && found.set(word, counts[place]));
    return found;
  }
}

export interface Area {
  readonly left: number;
  readonly top: number;
  readonly right: number;
  readonly bottom: number;
}

/** Squares of the picture, with what lies in each. */
class Grid {
  private readonly cells: (number[] | undefined)[] = [];
  private readonly seen: Uint32Array;
  private turn = 0;
  private readonly columns: number;
  private readonly rows: number;

  constructor(width: number, height: number, items: number) {
    // Some 4,000 squares whatever the form of the picture.
    this.side = Math.max(64, Math.sqrt((Math.max(width, 1) * Math.max(height, 1)) / 4096));
    this.columns = Math.floor(width / this.side) + 1;
    this.rows = Math.floor(height / this.side) + 1;
    this.seen = new Uint32Array(items);
  }

  private readonly side: number;

  private span(area: Area): [number, number, number, number] {
    const place = (at: number, cells: number): number => Math.max(0, Math.min(cells - 1, Math.floor(at / this.side)));
    return [place(area.left, this.columns), place(area.top, this.rows), place(area.right, this.columns), place(area.bottom, this.rows)];
  }

  add(item: number, area: Area): void {
    const [left, top, right, bottom] = this.span(area);
    for (let row = top; row <= bottom; row++) {
      for (let column = left; column <= right; column++) (this.cells[row * this.columns + column] ??= []).push(item);
    }
  }

  /** Every item that may lie in the area, once. */
  each(area: Area, take: (item: number) => void): void {
    const [left, top, right, bottom] = this.span(area);
    this.turn++;
    for (let row = top; row <= bottom; row++) {
      for (let column = left; column <= right; column++) {
        for (const item of this.cells[row * this.columns + column] ?? []) {
          if (this.seen[item] === this.turn) continue;
          this.seen[item] = this.turn;
          take(item);
        }
      }
    }
  }
}

const areaOf = (box: Box): Area => ({ left: box.x, top: box.y, right: box.x + box.width, bottom: box.y + box.height });

export class Scene {
  private readonly items: Grid;
  private readonly lines: Grid;
  /** The lines of items that were looked at. */
  private readonly own = new Map<number, readonly number[]>();

  constructor(
    readonly picture: Picture,
    readonly states: States,
  ) {
    const { width, height, items, lines } = picture;
    this.items = new Grid(width, height, items.length);
    items.forEach((item, at) => this.items.add(at, areaOf(item)));
    const { points } = lines;
    this.lines = new Grid(width, height, points.length / 4);
    for (let at = 0; at < points.length; at += 4) this.piece(at / 4, points[at] ?? 0, points[at + 1] ?? 0, points[at + 2] ?? 0, points[at + 3] ?? 0, 0);
  }

  /** A slanted line is cut in halves until its frames are small. */
  private piece(line: number, ax: number, ay: number, bx: number, by: number, depth: number): void {
    const [wide, high] = [Math.abs(ax - bx), Math.abs(ay - by)];
    if (depth < 4 && wide > 400 && high > 400) {
      const [x, y] = [(ax + bx) / 2, (ay + by) / 2];
      this.piece(line, ax, ay, x, y, depth + 1);
      this.piece(line, x, y, bx, by, depth + 1);
    } else {
      this.lines.add(line, { left: Math.min(ax, bx), top: Math.min(ay, by), right: Math.max(ax, bx), bottom: Math.max(ay, by) });
    }
  }

  eachItem(area: Area, take: (item: number) => void): void {
    this.items.each(area, take);
  }

  eachLine(area: Area, take: (line: number) => void): void {
    this.lines.each(area, take);
  }

  item(at: number): GraphItem {
    return this.picture.items[at] as GraphItem;
  }

  /** The box of a job: its cell when its stack is open. */
  itemOf(job: number): number | null {
    const { items } = this.picture;
    let found: number | null = null;
    items.forEach((item, at) => {
      if (item.jobs.length === 1 ? item.jobs[0] === job : item.jobs.includes(job)) found = at;
    });
    return found;
  }

  /** The lines that begin or end at an item: found once, for it is asked in each frame. */
  linesOf(item: number): readonly number[] {
    let found = this.own.get(item);
    if (found === undefined) {
      const { ends } = this.picture.lines;
      const own: number[] = [];
      ends.forEach((end, at) => end === item && own.push(at >> 1));
      this.own.set(item, (found = own));
    }
    return found;
  }

  /** Adds a line to a path, moved by `x` and `y`: a curve that leaves and arrives straight. */
  trace(path: CanvasRenderingContext2D, line: number, x: number, y: number, scale: number): void {
    const { points } = this.picture.lines;
    const place = (at: number, move: number): number => (points[4 * line + at] ?? 0) * scale + move;
    const [ax, ay, bx, by] = [place(0, x), place(1, y), place(2, x), place(3, y)];
    path.moveTo(ax, ay);
    if (this.picture.down) path.bezierCurveTo(ax, (ay + by) / 2, bx, (ay + by) / 2, bx, by);
    else path.bezierCurveTo((ax + bx) / 2, ay, (ax + bx) / 2, by, bx, by);
  }

  itemAt(x: number, y: number): number | null {
    let found: number | null = null;
    this.items.each({ left: x, top: y, right: x, bottom: y }, (at) => {
      const item = this.item(at);
      if (x >= item.x && x <= item.x + item.width && y >= item.y && y <= item.y + item.height) found = at;
    });
    return found;
  }

  /** The item that one reaches from `from` with an arrow key: the nearest in that direction, rather straight ahead. */
  next(from: number, dx: number, dy: number): number | null {
    const start = this.picture.items[from];
    if (!start) return null;
    const [x, y] = [start.x + start.width / 2, start.y + start.height / 2];
    let [best, least]: [number | null, number] = [null, Infinity];
    this.picture.items.forEach((item, at) => {
      const [right, down] = [item.x + item.width / 2 - x, item.y + item.height / 2 - y];
      const [ahead, sideways] = dx !== 0 ? [right * dx, Math.abs(down)] : [down * dy, Math.abs(right)];
      if (ahead <= 4) return;
      const far = ahead + 3 * sideways;
      if (far < least) [best, least] = [at, far];
    });
    return best;
  }
}
