// Where the boxes and lines of a graph stand: layer beside layer, or below it where it is narrow; equal jobs of a layer in one stack.
import type { Box, Graph, GraphNode } from "../../model";

export const NODE = { width: 152, height: 50 } as const;
const STACK_HEIGHT = 64;
const CELL = { width: 134, height: 28, gap: 6 } as const;
const GAP = { layer: 36, tight: 24, row: 24, narrow: 12 } as const;
/** Space around the frame's cells, and its head. */
const FRAME = { inset: 12, head: 38 } as const;
/** Equal jobs of a layer beyond this number are one stack. */
const MAX_EQUAL = 8;
/** Boxes of a layer beyond this number stand in several columns. */
const MAX_COLUMN = 24;

export interface GraphItem extends Box {
  readonly kind: "job" | "stack" | "cell";
  readonly name: string;
  readonly handler: string;
  readonly jobs: readonly number[];
}

/** An opened stack: its cells stand in it. */
export interface Frame {
  readonly x: number;
  readonly y: number;
  readonly width: number;
  readonly height: number;
  readonly stack: number;
}

/** Lines from place to place, four numbers each; `ends` are items, or -1 for frames and junctions. */
export interface Lines {
  readonly ends: readonly number[];
  readonly points: readonly number[];
}

export interface Picture {
  readonly width: number;
  readonly height: number;
  readonly down: boolean;
  readonly items: readonly GraphItem[];
  readonly frames: readonly Frame[];
  readonly lines: Lines;
}

export interface Arrangement {
  readonly folded: boolean;
  /** Keys of opened stacks. */
  readonly open: ReadonlySet<string>;
  readonly down: boolean;
  /** The width of the panel. */
  readonly width: number;
}

/** The name up to its number: `step-4` of `step-4-28`. */
export const stem = (name: string): string => name.replace(/[-_./ ]?\d+$/, "");
const hasNumber = (name: string): boolean => /\d$/.test(name) && stem(name) !== "";

/** Jobs of one layer with the same handler and the same name up to its number. */
export function steps(graph: Graph): Map<string, number[]> {
  const found = new Map<string, number[]>();
  graph.nodes.forEach((node, job) => {
    const key = stepKey(node);
    const list = found.get(key);
    if (list) list.push(job);
    else found.set(key, [job]);
  });
  return found;
}

export const stepKey = (node: GraphNode): string =>
  hasNumber(node.name) ? `${node.layer} ${node.handler} ${stem(node.name)}` : `${node.layer} ${node.index}`;

export const isStack = (jobs: readonly number[]): boolean => jobs.length > MAX_EQUAL;

type Mutable = { -readonly [Key in keyof GraphItem]: GraphItem[Key] };

export function arrange(graph: Graph, how: Arrangement): Picture {
  const { nodes, blocks } = graph;
  const items: Mutable[] = [];
  const itemOf = new Int32Array(nodes.length);
  // Those of a block stay together.
  const order = new Float64Array(nodes.length);
  nodes.forEach((node, job) => (order[job] = node.y + node.height / 2));
  for (const block of blocks) for (const job of block.jobs) order[job] = block.y + block.height / 2;
  const layers: number[][] = [];
  for (const jobs of steps(graph).values()) {
    const alone = !how.folded || !isStack(jobs);
    for (const members of alone ? jobs.map((job) => [job]) : [jobs]) {
      const node = nodes[members[0] ?? 0] as GraphNode;
      const at = items.length;
      items.push({ kind: alone ? "job" : "stack", name: alone ? node.name : stem(node.name), handler: node.handler, jobs: members, x: 0, y: 0, layer: node.layer, width: NODE.width, height: alone ? NODE.height : STACK_HEIGHT });
      for (const job of members) itemOf[job] = at;
      (layers[node.layer] ??= []).push(at);
    }
  }
  const first = (item: number): number => items[item]?.jobs[0] ?? 0;
  for (const layer of layers) layer?.sort((one, other) => (order[first(one)] ?? 0) - (order[first(other)] ?? 0) || first(one) - first(other));
  const size = how.down ? placeDown(items, layers, how.width) : placeRight(items, layers, how.width);
  const lines = connect(graph, items, itemOf, how.down);
  const frames = openFrames(graph, items, how, size);
  return { ...size, down: how.down, items, frames, lines };
}

interface Size {
  width: number;
  height: number;
}

function placeRight(items: Mutable[], layers: readonly number[][], width: number): Size {
  const columns = layers.filter(Boolean).map((layer) => {
    const count = layer.length > MAX_COLUMN ? Math.ceil(Math.sqrt(layer.length / 4)) : 1;
    const gap = layer.length > MAX_EQUAL ? GAP.narrow : GAP.row;
    const pitch = Math.max(...layer.slice(0, 100).map((at) => items[at]?.height ?? 0)) + gap;
    return { layer, count, pitch, height: Math.ceil(layer.length / count) * pitch - gap };
  });
  const height = Math.max(0, ...columns.map((one) => one.height));
  const gapped = NODE.width + GAP.narrow;
  const boxes = columns.reduce((sum, { count }) => sum + count * gapped - GAP.narrow, 0);
  const gap = boxes + (columns.length - 1) * GAP.layer > width ? GAP.tight : GAP.layer;
  let x = 0;
  for (const { layer, count, pitch, height: own } of columns) {
    layer.forEach((at, place) => {
      const item = items[at] as Mutable;
      item.x = x + (place % count) * gapped;
      item.y = (height - own) / 2 + Math.floor(place / count) * pitch;
    });
    x += count * gapped - GAP.narrow + gap;
  }
  return { width: Math.max(0, x - gap), height };
}

function placeDown(items: Mutable[], layers: readonly number[][], width: number): Size {
  const pitch = NODE.width + GAP.narrow;
  const columns = Math.max(1, Math.floor((width + GAP.narrow) / pitch));
  const widest = Math.min(columns, Math.max(1, ...layers.filter(Boolean).map((layer) => Math.min(layer.length, columns))));
  let y = 0;
  for (const layer of layers.filter(Boolean)) {
    for (let from = 0; from < layer.length; from += columns) {
      const row = layer.slice(from, from + columns);
      row.forEach((at, place) => {
        const item = items[at] as Mutable;
        item.x = ((widest - row.length) / 2 + place) * pitch;
        item.y = y;
      });
      y += Math.max(...row.map((at) => items[at]?.height ?? 0)) + (from + columns < layer.length ? GAP.narrow : GAP.row);
    }
  }
  return { width: widest * pitch - GAP.narrow, height: Math.max(0, y - GAP.row) };
}

/** The lines of the server, from box to box. Those that many jobs have in common lead to their block, or meet in a junction. */
function connect(graph: Graph, items: readonly GraphItem[], itemOf: Int32Array, down: boolean): Lines {
  const jobs = graph.nodes.length;
  const junctions = jobs + graph.blocks.length;
  const blocks = graph.blocks.map((block) => around([...new Set(block.jobs.map((job) => itemOf[job] ?? 0))].map((at) => items[at] as GraphItem)));
  const itemAt = (place: number): number => {
    if (place < jobs) return itemOf[place] ?? -1;
    const own = graph.blocks[place - jobs]?.jobs;
    const first = itemOf[own?.[0] ?? 0] ?? -1;
    return own && items[first]?.kind === "stack" && own.every((job) => itemOf[job] === first) ? first : -1;
  };
  const boxAt = (place: number): Size & { x: number; y: number } =>
    place < jobs ? (items[itemAt(place)] as GraphItem) : place < junctions ? (blocks[place - jobs] as GraphItem) : (points.get(place) ?? NOWHERE);
  const points = new Map<number, Size & { x: number; y: number }>();
  const { ends: all } = graph.edges;
  const before = new Map<number, number[]>();
  for (let at = 0; at < all.length; at += 2) {
    const [from, to] = [all[at] ?? 0, all[at + 1] ?? 0];
    if (to >= junctions && from < junctions) {
      const sources = before.get(to);
      if (sources) sources.push(from);
      else before.set(to, [from]);
    }
  }
  for (const [junction, sources] of before) {
    const box = around(sources.map(boxAt));
    points.set(junction, down
      ? { x: box.x + box.width / 2, y: box.y + box.height + GAP.row / 2, width: 0, height: 0 }
      : { x: box.x + box.width + GAP.tight / 2, y: box.y + box.height / 2, width: 0, height: 0 });
  }
  const [ends, coordinates, seen]: [number[], number[], Set<number>] = [[], [], new Set()];
  const places = items.length + all.reduce((most, place) => Math.max(most, place), 0) + 1;
  for (let at = 0; at < all.length; at += 2) {
    const [from, to] = [all[at] ?? 0, all[at + 1] ?? 0];
    const [one, other] = [itemAt(from), itemAt(to)];
    const key = (one < 0 ? items.length + from : one) * places + (other < 0 ? items.length + to : other);
    if ((one >= 0 && one === other) || seen.has(key)) continue;
    seen.add(key);
    const [a, b] = [boxAt(from), boxAt(to)];
    ends.push(one, other);
    if (down) coordinates.push(a.x + a.width / 2, a.y + a.height, b.x + b.width / 2, b.y);
    else coordinates.push(a.x + a.width, a.y + a.height / 2, b.x, b.y + b.height / 2);
  }
  return { ends, points: coordinates };
}

const NOWHERE = { x: 0, y: 0, width: 0, height: 0 };

function around(boxes: readonly (Size & { x: number; y: number })[]): Size & { x: number; y: number } {
  let [left, top, right, bottom] = [Infinity, Infinity, -Infinity, -Infinity];
  for (const box of boxes) {
    [left, top] = [Math.min(left, box.x), Math.min(top, box.y)];
    [right, bottom] = [Math.max(right, box.x + box.width), Math.max(bottom, box.y + box.height)];
  }
  return boxes.length === 0 ? NOWHERE : { x: left, y: top, width: right - left, height: bottom - top };
}

/** Below all of the graph, one after another, each with its cells; `size` grows. */
function openFrames(graph: Graph, items: Mutable[], how: Arrangement, size: Size): Frame[] {
  const frames: Frame[] = [];
  const stacks = items.map((item, at) => ({ item, at })).filter(({ item }) => item.kind === "stack" && how.open.has(stepKey(graph.nodes[item.jobs[0] ?? 0] as GraphNode)));
  for (const { item, at } of stacks) {
    const width = Math.max(Math.min(size.width, how.width / 0.8), Math.min(how.width, 5 * (CELL.width + CELL.gap) + 2 * FRAME.inset), CELL.width + 2 * FRAME.inset);
    const columns = Math.max(1, Math.floor((width - 2 * FRAME.inset + CELL.gap) / (CELL.width + CELL.gap)));
    // Cells take what is left of the width.
    const cell = (width - 2 * FRAME.inset + CELL.gap) / columns - CELL.gap;
    const y = size.height + GAP.layer;
    item.jobs.forEach((job, place) => {
      const node = graph.nodes[job] as GraphNode;
      items.push({
        kind: "cell", name: node.name, handler: node.handler, jobs: [job], layer: node.layer, width: cell, height: CELL.height,
        x: FRAME.inset + (place % columns) * (cell + CELL.gap),
        y: y + FRAME.head + Math.floor(place / columns) * (CELL.height + CELL.gap),
      });
    });
    const height = FRAME.head + Math.ceil(item.jobs.length / columns) * (CELL.height + CELL.gap) - CELL.gap + FRAME.inset;
    frames.push({ x: 0, y, width, height, stack: at });
    size.width = Math.max(size.width, width);
    size.height = y + height;
  }
  return frames;
}
