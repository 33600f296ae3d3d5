// The lines of a large graph, kept as a picture: they do not change, and are the most of what there is to draw.
import type { Scene } from "./scene";

/** Lines that are drawn in one frame of the screen: some 5 ms where nothing but the processor draws. */
const MAX_LINES = 1500;
/** How much of a view's width and height the picture has on each side of it. */
const MARGIN_SHARE = 0.3;

export interface View {
  readonly x: number;
  readonly y: number;
  readonly scale: number;
  readonly width: number;
  readonly height: number;
  readonly ratio: number;
}

interface LinePicture {
  readonly canvas: HTMLCanvasElement;
  readonly view: View;
  /** Lines that are not drawn yet. */
  readonly left: number[];
}

/** The lines in and around the view. */
export class Lines {
  private shown: LinePicture | null = null;
  private next: LinePicture | null = null;
  /** A canvas that shows nothing now. Each takes megabytes, which browsers free late. */
  private spare: HTMLCanvasElement | null = null;

  forget(): void {
    this.spare = this.shown?.canvas ?? this.next?.canvas ?? this.spare;
    this.shown = null;
    this.next = null;
  }

  /** Draws what there is. True when there will be more. */
  draw(context: CanvasRenderingContext2D, scene: Scene, view: View, colour: string): boolean {
    if (this.next && !covers(this.next.view, view, 0)) {
      this.spare = this.next.canvas;
      this.next = null;
    }
    // A new picture is begun before the old one ends, so that nothing is missing while it is made.
    if (!this.next && !(this.shown && covers(this.shown.view, view, -0.15))) this.begin(scene, view);
    if (this.next) this.part(this.next, scene, colour);
    if (this.next?.left.length === 0) {
      this.spare = this.shown?.canvas ?? null;
      this.shown = this.next;
      this.next = null;
    }
    const picture = this.shown ?? this.next;
    if (picture) {
      const has = picture.view;
      const by = view.scale / has.scale;
      // On whole points of the screen, else all lines are blurred.
      const round = (at: number): number => Math.round(at * view.ratio) / view.ratio;
      const [x, y] = [round(view.x - (has.x + has.width / 2) * by), round(view.y - (has.y + has.height / 2) * by)];
      context.drawImage(picture.canvas, x, y, (1 + 2 * MARGIN_SHARE) * has.width * by, (1 + 2 * MARGIN_SHARE) * has.height * by);
    }
    return this.next !== null;
  }

  private begin(scene: Scene, view: View): void {
    const canvas = this.spare ?? document.createElement("canvas");
    this.spare = null;
    // This clears it, too.
    canvas.width = Math.round((1 + 2 * MARGIN_SHARE) * view.width * view.ratio);
    canvas.height = Math.round((1 + 2 * MARGIN_SHARE) * view.height * view.ratio);
    const left: number[] = [];
    const [marginX, marginY] = [view.width * MARGIN_SHARE, view.height * MARGIN_SHARE];
    const area = {
      left: (-view.x - marginX) / view.scale,
      top: (-view.y - marginY) / view.scale,
      right: (view.width + marginX - view.x) / view.scale,
      bottom: (view.height + marginY - view.y) / view.scale,
    };
    scene.eachLine(area, (line) => left.push(line));
    this.next = { canvas, view, left };
  }

  private part({ view, canvas, left }: LinePicture, scene: Scene, colour: string): void {
    const context = canvas.getContext("2d");
    if (!context) return void (left.length = 0);
    context.setTransform(view.ratio, 0, 0, view.ratio, view.width * view.ratio * MARGIN_SHARE, view.height * view.ratio * MARGIN_SHARE);
    context.strokeStyle = colour;
    context.lineWidth = 1;
    // Boxes are what one looks for: thousands of lines stay behind them.
    context.globalAlpha = scene.picture.lines.ends.length > 10_000 ? 0.3 : 0.7;
    context.beginPath();
    for (const line of left.splice(-MAX_LINES)) scene.trace(context, line, view.x, view.y, view.scale);
    context.stroke();
  }
}

/** Whether a picture of one view, with its margin, holds another. */
function covers(has: View, wants: View, slack: number): boolean {
  if (has.ratio !== wants.ratio || has.width !== wants.width || has.height !== wants.height) return false;
  if (Math.abs(has.scale / wants.scale - 1) > 1e-6) return false;
  const maxOffset = MARGIN_SHARE + slack;
  return Math.abs(has.x - wants.x) <= has.width * maxOffset && Math.abs(has.y - wants.y) <= has.height * maxOffset;
}
