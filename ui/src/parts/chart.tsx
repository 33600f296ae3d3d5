// Lines over the range. All charts of a page share one crosshair and one zoom. A hidden table has the latest values.
import { signal } from "@preact/signals";
import { useEffect, useId, useRef, useState } from "preact/hooks";
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
  /** Pixels of the plot. */
  readonly height?: number;
}

/** Lines that differ in dash as well as in hue. */
const DASHED: readonly string[] = ["--c3", "--c4"];
const DASH = [5, 3];
/** The areas under these are tinted: parts of one whole, and not percentiles. */
const FILLS: Readonly<Record<string, string>> = { "--c1": "1f", "--c2": "29" };
/** Pixels left of the plot for the numbers of its axis, and right of it for half a time. */
const AXIS_WIDTH = 40;
const RIGHT = 28;
const X_HEIGHT = 24;
const MAX_HEIGHT = 8;

/** The time in seconds that the crosshair of all charts is at, and the chart that has the tip. */
const pointed = signal<{ readonly time: number; readonly chart: string } | null>(null);
/** The times in seconds that all charts show; null for all of the range. */
export const zoom = signal<readonly [from: number, to: number] | null>(null);

export const short = (value: number | null | undefined): string =>
  value === null || value === undefined ? "–" : value >= 1000 ? value.toLocaleString("en", { maximumFractionDigits: 0 }) : String(value >= 100 ? Math.round(value) : Number(value.toPrecision(value < 0.01 ? 1 : value < 10 ? 2 : 3)));

const iso = (seconds: number, to: number): string => new Date(seconds * 1000).toISOString().slice(11, to);

/** The step between ticks of an axis from 0: 1, 2, 4 or 5 times a power of ten. */
export function roundStep(max: number, ticks: number): number {
  const raw = Math.max(max, 1e-6) / ticks;
  const power = 10 ** Math.floor(Math.log10(raw));
  return power * ([1, 2, 4, 5].find((one) => one * power >= raw * (1 - 1e-9)) ?? 10);
}

const TIME_STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 180, 300, 600, 900, 1800, 3600, 7200, 10_800, 14_400, 21_600];
const timeStep = (span: number, ticks: number): number => TIME_STEPS.find((step) => span / step <= ticks) ?? 21_600;

/** Multiples of `step` from `from` to `to`. */
const multiples = (from: number, to: number, step: number): number[] => {
  const first = Math.ceil(from / step - 1e-9);
  return Array.from({ length: Math.max(Math.floor(to / step + 1e-9) - first + 1, 0) }, (_, at) => (first + at) * step);
};

function yMax(max: number, height: number): number {
  const ticks = height > 150 ? 4 : 2;
  const step = roundStep(max, ticks);
  return step * Math.max(Math.ceil(max / step - 1e-9), 1);
}

function nearest(times: readonly number[], time: number): number {
  let best = 0;
  for (let at = 1; at < times.length; at++) if (Math.abs((times[at] ?? 0) - time) < Math.abs((times[best] ?? 0) - time)) best = at;
  return best;
}

function options({ lines, height = 188 }: ChartProps, width: number): uPlot.Options {
  const style = getComputedStyle(document.documentElement);
  const colour = (name: string): string => style.getPropertyValue(name).trim();
  const axis = { stroke: colour("--faint"), font: "12px sans-serif", grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false } };
  return {
    width,
    height: height + X_HEIGHT + MAX_HEIGHT,
    padding: [MAX_HEIGHT, RIGHT, 0, 0],
    legend: { show: false },
    cursor: { show: false },
    scales: { x: { range: (_, min, max) => [min, max] }, y: { range: (_, __, max) => [0, yMax(max || 1, height)] } },
    axes: [
      { ...axis, size: X_HEIGHT, gap: 4, splits: (u, _, from, to) => multiples(from, to, timeStep(to - from, u.width > 480 ? 5 : 3)), values: (_, at) => at.map((time) => iso(time, time % 60 === 0 ? 16 : 19)) },
      { ...axis, size: AXIS_WIDTH, gap: 6, splits: (_, __, ___, to) => multiples(0, to, roundStep(to, height > 150 ? 4 : 2)), values: (_, at) => at.map((one) => short(Number(one.toPrecision(6)))) },
    ],
    series: [{}, ...lines.map((line) => ({
      label: line.label,
      stroke: colour(line.colour),
      width: 1.5,
      points: { show: false },
      ...(DASHED.includes(line.colour) ? { dash: DASH } : {}),
      ...(FILLS[line.colour] ? { fill: colour(line.colour) + FILLS[line.colour] } : {}),
    }))],
  };
}

/** The part of all points that is in view. */
function inView(times: readonly number[]): readonly [from: number, to: number] {
  const seen = zoom.value;
  const from = seen ? times.findIndex((time) => time >= seen[0]) : 0;
  const to = seen ? times.findLastIndex((time) => time <= seen[1]) : times.length - 1;
  return from >= 0 && to > from ? [from, to] : [0, times.length - 1];
}

export function Chart(props: ChartProps) {
  const { label, unit, lines, height = 188 } = props;
  const id = useId();
  const [from, to] = inView(props.times);
  const times = props.times.slice(from, to + 1);
  const shown = lines.map((line) => ({ ...line, values: line.values.slice(from, to + 1) }));
  const at = pointed.value ? nearest(times, pointed.value.time) : null;
  const last = times.length - 1;
  return (
    <figure class="panel chart">
      <figcaption>
        <span class="title">{label}</span> <span class="unit">{unit}</span>
        <ul class="legend">
          {shown.map((line) => (
            <li key={line.label}>
              <span class={DASHED.includes(line.colour) ? "swatch dashed" : "swatch"} aria-hidden="true" style={{ borderColor: `var(${line.colour})` }} /> {line.label}{" "}
              <b>{short(line.values[at ?? last])}</b>
            </li>
          ))}
        </ul>
      </figcaption>
      {times.length > 1
        ? <Plot {...props} id={id} times={times} lines={shown} at={at} height={height} />
        : <p class="plot none" style={{ height: `${height + X_HEIGHT + MAX_HEIGHT}px` }}>Nothing counted yet</p>}
      <table class="hide">
        <caption>{label}, {unit}, latest</caption>
        <tbody>{lines.map((line) => <tr key={line.label}><th scope="row">{line.label}</th><td>{short(line.values.at(-1))}</td></tr>)}</tbody>
      </table>
    </figure>
  );
}

interface PlotProps extends ChartProps {
  readonly id: string;
  readonly at: number | null;
}

function Plot(props: PlotProps) {
  const { id, label, times, lines, at, height = 188 } = props;
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const [width, setWidth] = useState(0);
  /** Where a drag began and where it is, in pixels of the place. */
  const [drag, setDrag] = useState<readonly [number, number] | null>(null);
  const data = (): uPlot.AlignedData => [times as number[], ...lines.map((line) => line.values as (number | null)[])];
  useEffect(() => {
    const element = place.current;
    if (!element) return;
    const made = new uPlot(options(props, Math.max(element.clientWidth, 100)), data(), element);
    plot.current = made;
    setWidth(element.clientWidth);
    const sizes = new ResizeObserver(() => {
      made.setSize({ width: Math.max(element.clientWidth, 100), height: made.height });
      setWidth(element.clientWidth);
    });
    sizes.observe(element);
    return () => {
      sizes.disconnect();
      made.destroy();
    };
  }, [theme.value, lines.length, height]);
  useEffect(() => plot.current?.setData(data()), [times, lines]);
  const [first, last] = [times[0] ?? 0, times.at(-1) ?? 1];
  const inner = Math.max(width - AXIS_WIDTH - RIGHT, 1);
  const left = (time: number): number => AXIS_WIDTH + (inner * (time - first)) / Math.max(last - first, 1);
  const timeAt = (x: number): number => first + ((last - first) * Math.min(Math.max(x - AXIS_WIDTH, 0), inner)) / inner;
  const x = (event: PointerEvent): number => event.clientX - (place.current?.getBoundingClientRect().left ?? 0);
  const point = (index: number): void => {
    pointed.value = { time: times[Math.min(Math.max(index, 0), times.length - 1)] ?? first, chart: id };
  };
  const move = (event: PointerEvent): void => {
    point(nearest(times, timeAt(x(event))));
    if (drag) setDrag([drag[0], x(event)]);
  };
  const up = (event: PointerEvent): void => {
    setDrag(null);
    if (drag && Math.abs(drag[0] - x(event)) > 8) {
      const [one, other] = [timeAt(drag[0]), timeAt(x(event))];
      zoom.value = [Math.min(one, other), Math.max(one, other)];
    }
  };
  const key = (event: KeyboardEvent): void => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (by) {
      event.preventDefault();
      point((at ?? times.length - (by < 0 ? 0 : 1)) + by);
    } else if (event.key === "Escape" && (pointed.value || zoom.value)) {
      event.preventDefault();
      zoom.value = pointed.value = null;
    }
  };
  const cross = at === null ? null : left(times[at] ?? first);
  return (
    <div
      class="plot" ref={place} tabIndex={0} role="group" aria-label={`${label}: left and right keys move through the time`}
      onPointerMove={move} onPointerDown={(event) => event.pointerType === "mouse" && setDrag([x(event), x(event)])} onPointerUp={up}
      onPointerLeave={() => ((pointed.value = null), setDrag(null))} onDblClick={() => (zoom.value = null)}
      onKeyDown={key} onBlur={() => (pointed.value = null)}
    >
      {cross === null ? null : <i class="cross" style={{ left: `${cross}px`, top: `${MAX_HEIGHT}px`, height: `${height}px` }} />}
      {drag ? <i class="drag" style={{ left: `${Math.min(...drag)}px`, width: `${Math.abs(drag[0] - drag[1])}px`, top: `${MAX_HEIGHT}px`, height: `${height}px` }} /> : null}
      {at !== null && cross !== null && pointed.value?.chart === id ? <Tip time={times[at] ?? first} at={at} lines={lines} left={cross} width={width} /> : null}
    </div>
  );
}

function Tip({ time, at, lines, left, width }: { time: number; at: number; lines: readonly ChartLine[]; left: number; width: number }) {
  const side = left > width / 2 ? { right: `${width - left + 8}px` } : { left: `${left + 8}px` };
  return (
    <div class="tip" role="status" style={side}>
      <p>{iso(time, 19)} UTC</p>
      {lines.map((line) => <p key={line.label}>{line.label} <b>{short(line.values[at])}</b></p>)}
    </div>
  );
}
