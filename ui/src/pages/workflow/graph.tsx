// The graph of a workflow on a canvas. For readers who cannot see it, the table of jobs is below, and the focused job is announced.
import { effect, signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import type { Graph } from "../../model";
import { cut, plain } from "../../parts/text";
import { colours } from "../../theme";
import { Drawing } from "./drawing";
import { Scene } from "./scene";

const ARROWS: Readonly<Record<string, readonly [number, number]>> = {
  ArrowLeft: [-1, 0],
  ArrowRight: [1, 0],
  ArrowUp: [0, -1],
  ArrowDown: [0, 1],
};
/** A finger or mouse that moved less, in pixels, has clicked. */
const CLICK_DISTANCE = 5;

export interface GraphViewProps {
  readonly graph: Graph;
  /** Given once: the states are changed in it as they happen. */
  readonly onScene: (scene: Scene, redraw: () => void) => void;
  /** The name of the job whose drawer is open. */
  readonly open: string | null;
  readonly onOpen: (name: string) => void;
}

export function GraphView({ graph, onScene, open, onOpen }: GraphViewProps) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const frame = useRef<HTMLDivElement>(null);
  const [drawing, setDrawing] = useState<Drawing | null>(null);
  const [announced] = useState(() => signal(""));
  useEffect(() => {
    const [own, place] = [canvas.current, frame.current];
    if (!own || !place) return;
    const scene = new Scene(graph);
    const made = new Drawing(own, scene);
    const size = (): void => made.resize(place.clientWidth, place.clientHeight);
    size();
    made.begin();
    const sizes = new ResizeObserver(size);
    sizes.observe(place);
    const recolour = effect(() => {
      colours.value;
      made.recolour();
    });
    onScene(scene, () => made.later());
    setDrawing(made);
    return () => {
      sizes.disconnect();
      recolour();
      made.end();
    };
  }, [graph]);
  useEffect(() => {
    if (!drawing) return;
    const at = open === null ? -1 : graph.nodes.findIndex((node) => node.name === open);
    drawing.open = at < 0 ? null : at;
    drawing.focus = drawing.open ?? drawing.focus;
    const node = graph.nodes[at];
    if (node) drawing.show(node, 0);
    else drawing.later();
  }, [drawing, open]);
  usePointer(canvas, drawing, (name) => {
    frame.current?.focus({ preventScroll: true });
    onOpen(name);
  });

  const show = (job: number): void => {
    const node = drawing?.scene.graph.nodes[job];
    if (!drawing || !node) return;
    drawing.focus = job;
    drawing.show(node);
    announced.value = `${cut(plain(node.name), 80)}, ${drawing.scene.states.get(job)}`;
  };
  const keys = (event: KeyboardEvent): void => {
    if (!drawing || event.ctrlKey || event.metaKey || event.altKey) return;
    const arrow = ARROWS[event.key];
    if (arrow && event.shiftKey) drawing.pan(-80 * arrow[0], -80 * arrow[1]);
    else if (arrow) {
      const next = drawing.focus === null ? 0 : drawing.scene.next(drawing.focus, arrow[0], arrow[1]);
      if (next !== null) show(next);
    } else if (event.key === "+" || event.key === "=") drawing.zoom(1.25);
    else if (event.key === "-") drawing.zoom(0.8);
    else if (event.key === "0") drawing.fit();
    else if (event.key === "Enter" && drawing.focus !== null) onOpen(graph.nodes[drawing.focus]?.name ?? "");
    else return;
    event.preventDefault();
  };
  return (
    <div class="panel graph">
      <div ref={frame} class="graph-frame" role="application" aria-label="Graph of the jobs" aria-describedby="graph-keys" tabIndex={0} onKeyDown={keys}>
        <canvas ref={canvas} aria-hidden="true" />
      </div>
      <footer>
        <button class="small" onClick={() => drawing?.zoom(1.25)} aria-label="Larger">+</button>
        <button class="small" onClick={() => drawing?.zoom(0.8)} aria-label="Smaller">−</button>
        <button class="small" onClick={() => drawing?.fit()}>Fit</button>
        {graph.undrawn > 0 ? <span class="dim">{graph.undrawn.toLocaleString("en")} lines are not drawn</span> : null}
        <span id="graph-keys" class="keys">Arrows: next job · Enter: open · Shift+arrows: move · + − 0: size</span>
        <span class="hide" role="status">{announced}</span>
      </footer>
    </div>
  );
}

/** Moving with a mouse or one finger, size with the wheel or two fingers, opening with a click. */
function usePointer(canvas: { current: HTMLCanvasElement | null }, drawing: Drawing | null, onOpen: (name: string) => void): void {
  const opened = useRef(onOpen);
  opened.current = onOpen;
  useEffect(() => {
    const own = canvas.current;
    if (!own || !drawing) return;
    const fingers = new Map<number, [number, number]>();
    let moved = 0;
    const at = (event: MouseEvent): [number, number] => {
      const box = own.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    };
    const click = (x: number, y: number): void => {
      const [sx, sy] = drawing.toScene(x, y);
      const { scene } = drawing;
      const block = drawing.folded ? scene.blockAt(sx, sy) : null;
      if (block !== null) {
        const [first] = scene.graph.blocks[block]?.jobs ?? [];
        const box = first === undefined ? undefined : scene.graph.nodes[scene.jobAt(sx, sy) ?? first];
        // Large enough that the frame opens.
        if (box) drawing.show(box, 0.6);
        return;
      }
      const job = scene.jobAt(sx, sy);
      if (job === null) return;
      drawing.focus = job;
      opened.current(scene.graph.nodes[job]?.name ?? "");
    };
    const down = (event: PointerEvent): void => {
      own.setPointerCapture(event.pointerId);
      if (fingers.size === 0) moved = 0;
      fingers.set(event.pointerId, at(event));
    };
    const move = (event: PointerEvent): void => {
      const was = fingers.get(event.pointerId);
      const [x, y] = at(event);
      if (!was) {
        const [sx, sy] = drawing.toScene(x, y);
        const hit = drawing.scene.jobAt(sx, sy);
        own.style.cursor = hit === null ? "grab" : "pointer";
        own.title = hit === null ? "" : `${cut(plain(drawing.scene.graph.nodes[hit]?.name ?? ""), 200)} · ${drawing.scene.states.get(hit)}`;
        return;
      }
      const [dx, dy] = [x - was[0], y - was[1]];
      moved += Math.abs(dx) + Math.abs(dy);
      if (fingers.size === 1) drawing.pan(dx, dy);
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
      if (fingers.delete(event.pointerId) && fingers.size === 0 && moved < CLICK_DISTANCE && event.type === "pointerup") click(...at(event));
    };
    const wheel = (event: WheelEvent): void => {
      // With ctrl (two fingers on a pad) or while the graph has the keyboard; else the page scrolls.
      if (!event.ctrlKey && !own.parentElement?.contains(document.activeElement)) return;
      event.preventDefault();
      drawing.zoom(Math.exp(-Math.max(-60, Math.min(60, event.deltaY)) / 200), ...at(event));
    };
    own.addEventListener("pointerdown", down);
    own.addEventListener("pointermove", move);
    own.addEventListener("pointerup", up);
    own.addEventListener("pointercancel", up);
    own.addEventListener("wheel", wheel, { passive: false });
    return () => {
      own.removeEventListener("pointerdown", down);
      own.removeEventListener("pointermove", move);
      own.removeEventListener("pointerup", up);
      own.removeEventListener("pointercancel", up);
      own.removeEventListener("wheel", wheel);
    };
  }, [drawing]);
}
