// All of a large graph in a corner: its boxes, and a frame around what is in view.
import type { Box } from "../../model";
import { STATES, stateFill } from "../../parts/state";
import type { Pen } from "./pen";
import type { Area, Scene, States } from "./scene";

type Rect = Omit<Box, "layer">;

/** Of more boxes, every second, third and so on is drawn: they are smaller than a point there. */
const MAX_BOXES = 1000;

/** The state of a box; of a stack, the worst that one of its jobs has. */
function worst(states: States, jobs: readonly number[]): string {
  const [first = 0] = jobs;
  if (jobs.length < 2) return states.get(first);
  const counts = states.count(jobs);
  return STATES.find((state) => counts.has(state)) ?? states.get(first);
}

/** In the measures of the screen. */
export function drawMinimap(pen: Pen, { picture, states }: Scene, { left, top, right, bottom }: Area, view: Area): void {
  const { context } = pen;
  const { items } = picture;
  const [across, along] = [(right - left) / picture.width, (bottom - top) / picture.height];
  pen.rect(left, top, right - left, bottom - top, 0);
  context.save();
  context.clip();
  context.fillStyle = pen.colour("surface");
  context.fill();
  const step = Math.ceil(items.length / MAX_BOXES);
  const draw = ({ x, y, width, height }: Rect, state: string): void => {
    context.fillStyle = pen.colour(stateFill(state));
    context.fillRect(left + x * across, top + y * along, Math.max(1, width * across), Math.max(1, height * along));
  };
  // Failures are never left out, and are drawn above all others.
  const failed: Rect[] = [];
  items.forEach((item, at) => {
    const state = worst(states, item.jobs);
    if (state === "failed") failed.push(item);
    else if (at % step === 0) draw(item, state);
  });
  for (const item of failed) draw(item, "failed");
  context.lineWidth = 3;
  context.strokeStyle = pen.colour("control");
  context.stroke();
  context.strokeStyle = pen.colour("accent");
  context.strokeRect(left + view.left * across, top + view.top * along, (view.right - view.left) * across, (view.bottom - view.top) * along);
  context.restore();
}
