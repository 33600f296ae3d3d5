// Draws texts, icons and boxes on a canvas, in the colours and the font of the page.
import { iconPath, type IconName } from "../../parts/icon";
import { plain } from "../../parts/text";
import { token } from "../../theme";

export class Pen {
  private readonly font = token("sans");
  private colours = new Map<string, string>();
  private readonly icons = new Map<IconName, Path2D>();

  constructor(readonly context: CanvasRenderingContext2D) {}

  recolour(): void {
    this.colours = new Map();
  }

  colour(name: string): string {
    let found = this.colours.get(name);
    if (found === undefined) {
      found = token(name);
      this.colours.set(name, found);
    }
    return found;
  }

  rect(x: number, y: number, width: number, height: number, radius: number): void {
    this.context.beginPath();
    this.context.roundRect(x, y, width, height, radius);
  }

  icon(name: IconName, x: number, y: number, colour: string): void {
    const { context } = this;
    let path = this.icons.get(name);
    if (!path) this.icons.set(name, (path = new Path2D(iconPath(name))));
    // No save and restore: each leaves 300 bytes to the collector, for each box of each frame.
    context.translate(x, y);
    context.scale(0.75, 0.75);
    context.lineWidth = 2;
    context.lineCap = context.lineJoin = "round";
    context.strokeStyle = this.colour(colour);
    context.stroke(path);
    context.lineCap = "butt";
    context.scale(4 / 3, 4 / 3);
    context.translate(-x, -y);
  }

  /** A line of text, cut to its width. The width that it took, if it is a number: to measure each is dear. */
  words(text: string, x: number, y: number, weight: number, size: number, colour: string, width: number, align: "left" | "right" = "left"): number {
    const { context } = this;
    context.font = `${weight} ${size}px ${this.font}`;
    context.textBaseline = "middle";
    context.textAlign = align;
    context.fillStyle = this.colour(colour);
    const shown = this.fitted(text, width);
    context.fillText(shown, x, y);
    return 7 * shown.length;
  }

  /** Names of jobs that are alike differ at their end: the middle goes. */
  private fitted(text: string, width: number): string {
    const shown = plain(text.slice(0, 200));
    // Most texts fit; to measure is the dearest thing here.
    if (shown.length * 5 < width || this.context.measureText(shown).width <= width) return shown;
    const signs = [...shown];
    let kept = Math.max(2, Math.floor((signs.length * width) / this.context.measureText(shown).width));
    const cut = (): string => `${signs.slice(0, Math.ceil(kept / 2)).join("")}…${signs.slice(signs.length - Math.floor(kept / 2)).join("")}`;
    while (kept > 2 && this.context.measureText(cut()).width > width) kept--;
    return cut();
  }
}
