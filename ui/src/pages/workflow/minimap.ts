// All of a large graph in a corner: its boxes, and a frame around what is in view.
import { stateFill } from "../../parts/state";
import type { Pen } from "./pen";
import type { Area, Scene } from "./scene";

/** Of more boxes, every second, third and so on is drawn: they are smaller than a point there. */
const MAX_BOXES = 1000;

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
  items.forEach(({ jobs, x, y, width, height }, at) => {
    if (at % step > 0) return;
    context.fillStyle = pen.colour(stateFill(states.get(jobs[0] ?? 0)));
    context.fillRect(left + x * across, top + y * along, Math.max(1, width * across), Math.max(1, height * along));
  });
  context.lineWidth = 3;
  context.strokeStyle = pen.colour("control");
  context.stroke();
  context.strokeStyle = pen.colour("accent");
  context.strokeRect(left + view.left * across, top + view.top * along, (view.right - view.left) * across, (view.bottom - view.top) * along);
  context.restore();
}
