// Lines over the last hour. The numbers of the latest moment stand beside them as text, so the picture is never all there is.
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import { theme } from "../theme";

export interface ChartLine {
  readonly label: string;
  /** The name of a colour of the style sheet, such as `--c1`. */
  readonly colour: string;
  readonly values: readonly (number | null)[];
}

export interface ChartProps {
  readonly label: string;
  readonly unit: string;
  /** Seconds since the Unix epoch, one for each value. */
  readonly times: readonly number[];
  readonly lines: readonly ChartLine[];
}

const HEIGHT = 150;
/** Lines that differ in dash as well as in hue. */
const DASHED: readonly string[] = ["--c3", "--c4"];
const DASH = [5, 3];

export const short = (value: number | null | undefined): string =>
  value === null || value === undefined ? "–" : value >= 1000 ? value.toLocaleString("en", { maximumFractionDigits: 0 }) : String(value >= 100 ? Math.round(value) : Number(value.toPrecision(3)));

const clock = (seconds: number): string =>
  new Date(seconds * 1000).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", ...(seconds % 60 === 0 ? {} : { second: "2-digit" }) });

export function Chart({ label, unit, times, lines }: ChartProps) {
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  // One moment makes no line, and axes of nothing say the same number again and again.
  const some = times.length > 1 && lines.some((line) => line.values.some(Boolean));
  const data = (): uPlot.AlignedData => [times as number[], ...lines.map((line) => line.values as (number | null)[])];
  useEffect(() => {
    const element = place.current;
    if (!element) return;
    const style = getComputedStyle(document.documentElement);
    const colour = (name: string): string => style.getPropertyValue(name).trim();
    const axis = { stroke: colour("--faint"), font: "12px sans-serif", grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line") } };
    const made = new uPlot(
      {
        width: Math.max(element.clientWidth, 100),
        height: HEIGHT,
        legend: { show: false },
        cursor: { show: false },
        scales: { y: { range: (_, __, max) => [0, Math.max(max * 1.1, 1e-3)] } },
        axes: [{ ...axis, space: 70, size: 32, values: (_, ticks) => ticks.map(clock) }, { ...axis, size: 56, values: (_, ticks) => ticks.map((tick) => short(tick)) }],
        series: [{}, ...lines.map((line) => ({ label: line.label, stroke: colour(line.colour), width: 1.75, ...(DASHED.includes(line.colour) ? { dash: DASH } : {}), points: { show: false } }))],
      },
      data(),
      element,
    );
    plot.current = made;
    const sizes = new ResizeObserver(() => made.setSize({ width: Math.max(element.clientWidth, 100), height: HEIGHT }));
    sizes.observe(element);
    return () => {
      sizes.disconnect();
      made.destroy();
    };
  }, [theme.value, lines.length, some]);
  useEffect(() => plot.current?.setData(data()), [times, lines]);
  return (
    <figure class="panel chart">
      <figcaption>{label} <span class="dim">{unit}</span></figcaption>
      {some ? <div class="plot" ref={place} aria-hidden="true" /> : <p class="dim">Nothing counted yet</p>}
      <ul class="legend">
        {lines.map((line) => (
          <li key={line.label}>
            <span class={DASHED.includes(line.colour) ? "swatch dashed" : "swatch"} aria-hidden="true" style={{ borderColor: `var(${line.colour})` }} /> {line.label}{" "}
            <b>{short(line.values.at(-1))}</b>
          </li>
        ))}
      </ul>
    </figure>
  );
}
