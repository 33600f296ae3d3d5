// The graph of a workflow on a canvas. For readers who cannot see it, the table of jobs is below, and the focused job is announced.
import { effect, signal } from "@preact/signals";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Graph, Job } from "../../model";
import { Icon } from "../../parts/icon";
import { word } from "../../parts/state";
import { cut, many, plain } from "../../parts/text";
import { now } from "../../parts/time";
import { colours } from "../../theme";
import { arrange, isStack, stepKey, steps, type GraphItem } from "./arrange";
import { Drawing, MARGIN } from "./drawing";
import { Panel } from "./panel";
import { Scene, type States } from "./scene";

const ARROWS: Readonly<Record<string, readonly [number, number]>> = {
  ArrowLeft: [-1, 0],
  ArrowRight: [1, 0],
  ArrowUp: [0, -1],
  ArrowDown: [0, 1],
};
/** A finger or mouse that moved less, in pixels, has clicked. */
const CLICK_DISTANCE = 5;
/** Below this width of the panel, the graph runs downwards. */
const MIN_RIGHT_WIDTH = 520;
const HEIGHT = { min: 96, max: 520 } as const;

export interface GraphViewProps {
  readonly graph: Graph;
  /** Changed as things happen, and then `redraw` is called. */
  readonly states: States;
  readonly onRedraw: (redraw: () => void) => void;
  /** Grows with the states. */
  readonly changes: number;
  /** Times and attempts, as far as they are known, by the number of the job. */
  readonly jobs: ReadonlyMap<number, Job>;
  /** The name of the job whose drawer is open. */
  readonly open: string | null;
  readonly onOpen: (name: string) => void;
}

export function GraphView({ graph, states, onRedraw, changes, jobs, open, onOpen }: GraphViewProps) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const frame = useRef<HTMLDivElement>(null);
  const [drawing, setDrawing] = useState<Drawing | null>(null);
  const [width, setWidth] = useState(0);
  const [folded, fold] = useState(true);
  const [opened, setOpened] = useState<ReadonlySet<string>>(new Set());
  const [full, setFull] = useState(false);
  const [announced] = useState(() => signal(""));
  const byStep = useMemo(() => steps(graph), [graph]);
  const stacks = useMemo(() => [...byStep].filter(([, members]) => isStack(members)), [byStep]);
  const inner = Math.max(1, width - 2 * MARGIN);
  const down = width > 0 && width < MIN_RIGHT_WIDTH;
  const scene = useMemo(() => new Scene(arrange(graph, { folded, open: opened, down, width: inner }), states), [graph, states, folded, opened, down, inner]);

  // A failed job opens its stack by itself, once; so does the job of the drawer.
  const shown = useRef(new Set<string>());
  useEffect(() => {
    const found = stacks.filter(([key, members]) => !shown.current.has(key) && (states.count(members).get("failed") ?? 0) > 0).map(([key]) => key);
    const job = open === null ? undefined : graph.nodes.find((node) => node.name === open);
    const own = job && stepKey(job);
    if (own && byStep.get(own) && isStack(byStep.get(own) ?? []) && !opened.has(own)) found.push(own);
    if (found.length === 0) return;
    for (const key of found) shown.current.add(key);
    setOpened((was) => new Set([...was, ...found]));
  }, [changes, stacks, open]);

  useEffect(() => {
    const [own, place] = [canvas.current, frame.current];
    if (!own || !place) return;
    const made = new Drawing(own, scene);
    const size = (): void => {
      setWidth(place.clientWidth);
      made.resize(place.clientWidth, place.clientHeight);
    };
    size();
    const sizes = new ResizeObserver(size);
    sizes.observe(place);
    const recolour = effect(() => {
      colours.value;
      made.recolour();
    });
    onRedraw(() => made.later());
    setDrawing(made);
    return () => {
      sizes.disconnect();
      recolour();
      made.end();
    };
  }, [graph]);
  useEffect(() => drawing?.replace(scene), [drawing, scene]);
  const runs = [...jobs.values()].some((job) => job.state === "running");
  const clock = runs ? now.value : 0;
  useEffect(() => drawing?.know(jobs), [drawing, jobs, clock]);
  useEffect(() => {
    if (!drawing) return;
    const job = open === null ? -1 : graph.nodes.findIndex((node) => node.name === open);
    drawing.open = job < 0 ? null : job;
    const at = job < 0 ? null : scene.itemOf(job);
    if (at === null) return drawing.later();
    drawing.focus = at;
    drawing.show(scene.item(at));
  }, [drawing, open, scene]);

  const toggle = (item: GraphItem): void => {
    const node = graph.nodes[item.jobs[0] ?? 0];
    if (!node) return;
    const key = stepKey(node);
    setOpened((was) => new Set(was.has(key) ? [...was].filter((one) => one !== key) : [...was, key]));
  };
  const enter = (at: number): void => {
    const item = scene.picture.items[at];
    if (!item) return;
    if (item.kind === "stack") toggle(item);
    else onOpen(item.name);
  };
  usePointer(canvas, drawing, (at, x, y) => {
    frame.current?.focus({ preventScroll: true });
    if (at !== null) return enter(at);
    const head = scene.picture.frames.find((one) => x >= one.x && x <= one.x + one.width && y >= one.y && y <= one.y + 38);
    if (head) toggle(scene.item(head.stack));
  });

  const keys = (event: KeyboardEvent): void => {
    if (!drawing || event.ctrlKey || event.metaKey || event.altKey) return;
    const arrow = ARROWS[event.key];
    if (arrow && event.shiftKey) drawing.pan(-80 * arrow[0], -80 * arrow[1]);
    else if (arrow) {
      const next = drawing.focus === null ? 0 : scene.next(drawing.focus, arrow[0], arrow[1]);
      const item = next === null ? undefined : scene.picture.items[next];
      if (item) {
        drawing.focus = next;
        drawing.show(item);
        announced.value = `${cut(plain(item.name), 80)}, ${item.kind === "stack" ? `${item.jobs.length} jobs` : states.get(item.jobs[0] ?? 0)}`;
      }
    } else if (event.key === "+" || event.key === "=") drawing.zoom(1.25);
    else if (event.key === "-") drawing.zoom(0.8);
    else if (event.key === "0") drawing.fit();
    else if (event.key === "Enter" && drawing.focus !== null) enter(drawing.focus);
    else if (event.key === "Escape" && full) setFull(false);
    else return;
    event.preventDefault();
  };
  const scale = drawing && width > 0 ? drawing.scaleFor(width) : 1;
  const wanted = Math.ceil(scene.picture.height * scale) + 2 * MARGIN + (scene.picture.items.some((item) => item.kind === "stack") ? 6 : 0);
  const height = full ? undefined : `${Math.max(HEIGHT.min, Math.min(HEIGHT.max, wanted))}px`;
  const count = many(graph.nodes.length, "job");
  return (
    <Panel name="Graph" className={full ? "graph full" : "graph"} note={stacks.length > 0 ? `${count} in ${many(byStep.size, "step")}` : count}
      tools={<>
        {graph.undrawn > 0 ? <span class="note">{graph.undrawn.toLocaleString("en")} lines are not drawn</span> : null}
        {stacks.length > 0 ? (
          <span class="seg" role="group" aria-label="Stacks of equal jobs">
            <button aria-pressed={folded} onClick={() => fold(true)}>Folded</button>
            <button aria-pressed={!folded} onClick={() => fold(false)}>All jobs</button>
          </span>
        ) : null}
        <span class="zoom" role="group" aria-label="Size of the graph">
          <button class="small bare square" title="Smaller" aria-label="Smaller" onClick={() => drawing?.zoom(0.8)}><Icon name="minus" /></button>
          <button class="small bare square" title="Larger" aria-label="Larger" onClick={() => drawing?.zoom(1.25)}><Icon name="plus" /></button>
          <button class="small bare square" title={full ? "Back to the page" : "Full screen"} aria-label="Full screen" aria-pressed={full} onClick={() => setFull(!full)}><Icon name={full ? "cross" : "full"} /></button>
        </span>
      </>}>
      <div ref={frame} class="graph-frame" style={height ? { height } : undefined} role="application" aria-label="Graph of the jobs" aria-describedby="graph-keys" tabIndex={0} onKeyDown={keys}>
        <canvas ref={canvas} aria-hidden="true" />
      </div>
      <span id="graph-keys" class="hide">Arrows: next job; Enter: open; Shift and arrows: move; plus, minus and 0: size</span>
      <span class="hide" role="status">{announced}</span>
      {stacks.length > 0 && folded ? (
        <span class="hide">{stacks.map(([key, members]) => {
          const counts = [...states.count(members)].map(([state, number]) => `${number} ${word(state).toLowerCase()}`).join(", ");
          return <span key={key}>{`${members.length} jobs such as ${cut(plain(graph.nodes[members[0] ?? 0]?.name ?? ""), 60)}: ${counts}. `}</span>;
        })}</span>
      ) : null}
    </Panel>
  );
}

/** Moving with a mouse, the wheel or one finger, size with Ctrl and the wheel or two fingers, opening with a click. */
function usePointer(canvas: { current: HTMLCanvasElement | null }, drawing: Drawing | null, onClick: (item: number | null, x: number, y: number) => void): void {
  const clicked = useRef(onClick);
  clicked.current = onClick;
  useEffect(() => {
    const own = canvas.current;
    if (!own || !drawing) return;
    const fingers = new Map<number, [number, number]>();
    let [moved, inMap] = [0, false];
    const at = (event: MouseEvent): [number, number] => {
      const box = own.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    };
    const down = (event: PointerEvent): void => {
      own.setPointerCapture(event.pointerId);
      if (fingers.size === 0) [moved, inMap] = [0, drawing.toMap(...at(event), false)];
      fingers.set(event.pointerId, at(event));
    };
    const move = (event: PointerEvent): void => {
      const was = fingers.get(event.pointerId);
      const [x, y] = at(event);
      if (!was) {
        const hit = drawing.scene.itemAt(...drawing.toScene(x, y));
        const item = hit === null ? null : drawing.scene.item(hit);
        own.style.cursor = item === null ? "grab" : "pointer";
        own.title = item === null ? "" : `${cut(plain(item.name), 200)} · ${item.kind === "stack" ? `${item.jobs.length} jobs` : drawing.scene.states.get(item.jobs[0] ?? 0)}`;
        return;
      }
      const [dx, dy] = [x - was[0], y - was[1]];
      moved += Math.abs(dx) + Math.abs(dy);
      if (inMap) drawing.toMap(x, y, true);
      else if (fingers.size === 1) drawing.pan(dx, dy);
      else {
        const other = [...fingers].find(([id]) => id !== event.pointerId)?.[1];
        if (other) {
          const [before, after] = [Math.hypot(was[0] - other[0], was[1] - other[1]), Math.hypot(x - other[0], y - other[1])];
          if (before > 0) drawing.zoom(after / before, (x + other[0]) / 2, (y + other[1]) / 2);
        }
      }
      fingers.set(event.pointerId, [x, y]);
    };
    const up = (event: PointerEvent): void => {
      if (!fingers.delete(event.pointerId) || fingers.size > 0 || inMap || moved >= CLICK_DISTANCE || event.type !== "pointerup") return;
      const [x, y] = drawing.toScene(...at(event));
      clicked.current(drawing.scene.itemAt(x, y), x, y);
    };
    const wheel = (event: WheelEvent): void => {
      if (event.ctrlKey) {
        event.preventDefault();
        drawing.zoom(Math.exp(-Math.max(-60, Math.min(60, event.deltaY)) / 200), ...at(event));
        return;
      }
      const [x, y] = event.shiftKey ? [event.deltaY, 0] : [event.deltaX, event.deltaY];
      // At its edge, the page scrolls on.
      if (drawing.pan(-x, -y)) event.preventDefault();
    };
    const ended = new AbortController();
    const on = (name: string, listener: (event: never) => void): void =>
      own.addEventListener(name, listener as EventListener, { passive: false, signal: ended.signal });
    on("pointerdown", down);
    on("pointermove", move);
    on("pointerup", up);
    on("pointercancel", up);
    on("wheel", wheel);
    return () => ended.abort();
  }, [drawing]);
}
