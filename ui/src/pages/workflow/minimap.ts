// All of a large graph in a corner: a point for each box, and a frame for what is in view.
import { stateFill } from "../../parts/state";
import type { Pen } from "./pen";
import type { Area, Scene } from "./scene";

/** Least milliseconds between two drawings of all boxes: less than between two reads of the rows, which draw what came meanwhile. */
const INTERVAL = 300;

export class Minimap {
  private readonly canvas = document.createElement("canvas");
  private drawn = -Infinity;

  forget(): void {
    this.drawn = -Infinity;
  }

  draw(pen: Pen, scene: Scene, map: Area, view: Area, ratio: number): void {
    const { context } = pen;
    const [width, height] = [map.right - map.left, map.bottom - map.top];
    const [across, along] = [width / scene.picture.width, height / scene.picture.height];
    if (performance.now() - this.drawn > INTERVAL) this.boxes(pen, scene, Math.ceil(width * ratio), Math.ceil(height * ratio));
    context.setTransform(ratio, 0, 0, ratio, map.left * ratio, map.top * ratio);
    context.globalAlpha = 0.92;
    context.drawImage(this.canvas, 0, 0, width, height);
    context.globalAlpha = 1;
    context.lineWidth = 1;
    context.strokeStyle = pen.colour("control");
    context.strokeRect(-0.5, -0.5, width + 1, height + 1);
    const left = Math.max(0, view.left * across);
    const top = Math.max(0, view.top * along);
    context.lineWidth = 1.5;
    context.strokeStyle = pen.colour("accent");
    context.strokeRect(left, top, Math.min(width, view.right * across) - left, Math.min(height, view.bottom * along) - top);
  }

  private boxes(pen: Pen, scene: Scene, width: number, height: number): void {
    this.drawn = performance.now();
    [this.canvas.width, this.canvas.height] = [width, height];
    const context = this.canvas.getContext("2d") as CanvasRenderingContext2D;
    const [across, along] = [width / scene.picture.width, height / scene.picture.height];
    context.fillStyle = pen.colour("surface");
    context.fillRect(0, 0, width, height);
    for (const { jobs, x, y, width: wide, height: high } of scene.picture.items) {
      context.fillStyle = pen.colour(stateFill(scene.states.get(jobs[0] ?? 0)));
      context.fillRect(x * across, y * along, Math.max(1, wide * across), Math.max(1, high * along));
    }
  }
}
