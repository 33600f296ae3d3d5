// What is drawn of a graph, and where it is found again: without a screen, so it can be measured.
import type { Box, Graph } from "../../model";

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
  private readonly nodes: Grid;
  private readonly edges: Grid;
  /** The block of each job; -1 for none. */
  readonly blockOf: Int32Array;
  readonly states: States;
  /** Where the points of each line begin, and where those of the last end. */
  private readonly begins: Uint32Array;
  /** The lines of jobs that were looked at. */
  private readonly lines = new Map<number, readonly number[]>();

  constructor(readonly graph: Graph) {
    const { width, height, nodes, blocks, edges } = graph;
    this.states = new States(nodes.length);
    this.blockOf = new Int32Array(nodes.length).fill(-1);
    blocks.forEach((block, at) => block.jobs.forEach((job) => (this.blockOf[job] = at)));
    this.nodes = new Grid(width, height, nodes.length);
    nodes.forEach((node, at) => {
      this.nodes.add(at, areaOf(node));
      this.states.set(at, node.blocked && node.state === "waiting" ? "blocked" : node.state);
    });
    const { lengths, points } = edges;
    this.begins = new Uint32Array(lengths.length + 1);
    this.edges = new Grid(width, height, lengths.length);
    lengths.forEach((length, edge) => {
      const begin = this.begins[edge] ?? 0;
      const end = begin + 2 * length;
      this.begins[edge + 1] = end;
      // By its pieces: the frame around a long line holds most of the picture.
      for (let at = begin + 2; at < end; at += 2) {
        this.piece(edge, points[at - 2] ?? 0, points[at - 1] ?? 0, points[at] ?? 0, points[at + 1] ?? 0, 0);
      }
    });
  }

  /** A slanted line is cut in halves until its frames are small. */
  private piece(edge: number, ax: number, ay: number, bx: number, by: number, depth: number): void {
    const [wide, high] = [Math.abs(ax - bx), Math.abs(ay - by)];
    if (depth < 4 && wide > 400 && high > 400) {
      const [x, y] = [(ax + bx) / 2, (ay + by) / 2];
      this.piece(edge, ax, ay, x, y, depth + 1);
      this.piece(edge, x, y, bx, by, depth + 1);
    } else {
      this.edges.add(edge, { left: Math.min(ax, bx), top: Math.min(ay, by), right: Math.max(ax, bx), bottom: Math.max(ay, by) });
    }
  }

  eachNode(area: Area, take: (node: number) => void): void {
    this.nodes.each(area, take);
  }

  eachEdge(area: Area, take: (edge: number) => void): void {
    this.edges.each(area, take);
  }

  /** The lines that begin or end at a job: found once, for it is asked in each frame. */
  linesOf(job: number): readonly number[] {
    let found = this.lines.get(job);
    if (found === undefined) {
      const { ends, lengths } = this.graph.edges;
      const own: number[] = [];
      lengths.forEach((_, edge) => {
        if (ends[2 * edge] === job || ends[2 * edge + 1] === job) own.push(edge);
      });
      this.lines.set(job, (found = own));
    }
    return found;
  }

  /** Adds a line to a path, moved by `x` and `y`. The number of its points. */
  trace(path: CanvasRenderingContext2D, edge: number, x: number, y: number, scale: number): number {
    const { points } = this.graph.edges;
    const [begin, end] = [this.begins[edge] ?? 0, this.begins[edge + 1] ?? 0];
    for (let at = begin; at < end; at += 2) {
      const [px, py] = [(points[at] ?? 0) * scale + x, (points[at + 1] ?? 0) * scale + y];
      if (at === begin) path.moveTo(px, py);
      else path.lineTo(px, py);
    }
    return (end - begin) / 2;
  }

  jobAt(x: number, y: number): number | null {
    let found: number | null = null;
    this.nodes.each({ left: x, top: y, right: x, bottom: y }, (at) => {
      const node = this.graph.nodes[at];
      if (node && x >= node.x && x <= node.x + node.width && y >= node.y && y <= node.y + node.height) found = at;
    });
    return found;
  }

  blockAt(x: number, y: number): number | null {
    const at = this.graph.blocks.findIndex((box) => x >= box.x && x <= box.x + box.width && y >= box.y && y <= box.y + box.height);
    return at < 0 ? null : at;
  }

  /** The job that one reaches from `from` with an arrow key: the nearest in that direction, rather straight ahead. */
  next(from: number, dx: number, dy: number): number | null {
    const start = this.graph.nodes[from];
    if (!start) return null;
    const [x, y] = [start.x + start.width / 2, start.y + start.height / 2];
    let [best, least]: [number | null, number] = [null, Infinity];
    this.graph.nodes.forEach((node, at) => {
      const [right, down] = [node.x + node.width / 2 - x, node.y + node.height / 2 - y];
      const [ahead, sideways] = dx !== 0 ? [right * dx, Math.abs(down)] : [down * dy, Math.abs(right)];
      if (ahead <= 4) return;
      const far = ahead + 3 * sideways;
      if (far < least) [best, least] = [at, far];
    });
    return best;
  }
}
