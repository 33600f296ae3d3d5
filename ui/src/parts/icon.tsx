// The icons of the page: lines on a grid of 16, in the colour of the text beside them.

const PATHS = {
  overview: "M2.5 2.5h5v5h-5zM10 2.5h3.5v5H10zM2.5 10h5v3.5h-5zM10 10h3.5v3.5H10z",
  limits: "M2.6 12.2a6 6 0 1 1 10.8 0M8 11l2.8-4M2.6 12.2h1M12.4 12.2h1",
  workflows: "M2 6.2h3.6v3.6H2zM10.4 2H14v3.6h-3.6zM10.4 10.4H14V14h-3.6zM5.6 8H8M10.4 3.8H8v8.4h2.4",
  queues: "M2.5 4h11M2.5 8h11M2.5 12h6",
  workers: "M4.2 4.2h7.6v7.6H4.2zM6.6 6.6h2.8v2.8H6.6zM6 2.2v2M10 2.2v2M6 11.8v2M10 11.8v2M2.2 6h2M2.2 10h2M11.8 6h2M11.8 10h2",
  warning: "M8 2.4 14.2 13.4H1.8zM8 6.6v3M8 11.5v.1",
  menu: "M2.5 4h11M2.5 8h11M2.5 12h11",
  help: "M8 1.9a6.1 6.1 0 1 1 0 12.2A6.1 6.1 0 0 1 8 1.9M6.1 6.3a1.9 1.9 0 1 1 2.8 1.7c-.6.3-.9.7-.9 1.3M8 11.4v.1",
  light: "M8 5a3 3 0 1 1 0 6a3 3 0 0 1 0-6M8 1.5v1.2M8 13.3v1.2M1.5 8h1.2M13.3 8h1.2M3.4 3.4l.9.9M11.7 11.7l.9.9M3.4 12.6l.9-.9M11.7 4.3l.9-.9",
  dark: "M13.2 9.5A5.6 5.6 0 0 1 6.5 2.8a5.6 5.6 0 1 0 6.7 6.7",
  system: "M2.2 3h11.6v8H2.2zM5.5 13.5h5M8 11v2.5",
  leave: "M9.5 5V2.8H3v10.4h6.5V11M6.5 8h7M11.2 5.7 13.5 8l-2.3 2.3",
  check: "M3 8.6l3.2 3.2L13 4.6",
  cross: "M4 4l8 8M12 4l-8 8",
  play: "M5 3.2 12.2 8 5 12.8z",
  retry: "M12.8 8A4.8 4.8 0 1 1 11.2 4.4M11.4 1.8v2.8H8.6",
  hourglass: "M4 2.2h8M4 13.8h8M5 2.2c0 3.6 6 3.8 6 5.8s-6 2.2-6 5.8M11 2.2C11 5.8 5 6 5 8s6 2.2 6 5.8",
  bars: "M5.5 3.5v9M10.5 3.5v9",
  quarter: "M8 2.5a5.5 5.5 0 1 1 0 11a5.5 5.5 0 0 1 0-11M8 2.5V8h5.5",
  clock: "M8 2.2a5.8 5.8 0 1 1 0 11.6A5.8 5.8 0 0 1 8 2.2M8 5v3.2l2.2 1.4",
  blocked: "M8 2.5a5.5 5.5 0 1 1 0 11a5.5 5.5 0 0 1 0-11M5.2 8h5.6",
  ring: "M8 3a5 5 0 1 1 0 10A5 5 0 0 1 8 3",
  struck: "M8 3a5 5 0 1 1 0 10A5 5 0 0 1 8 3M4.5 11.5l7-7",
  scale: "M3 13V9M8 13V6M13 13V3",
  more: "M3.5 8h.1M8 8h.1M12.5 8h.1",
  skip: "M3 4l4 4-4 4M8.5 4l4 4-4 4",
  copy: "M5.5 5.5h8v8h-8zM10.5 5.5v-3h-8v8h3",
  up: "M3.5 10 8 5.5 12.5 10",
  down: "M3.5 6 8 10.5 12.5 6",
  plus: "M8 3v10M3 8h10",
  minus: "M3 8h10",
  full: "M3 6V3h3M10 3h3v3M13 10v3h-3M6 13H3v-3",
  wrap: "M2.5 4h11M2.5 8h9a2 2 0 0 1 0 4H8M9.5 10.5 8 12l1.5 1.5M2.5 12h3",
  follow: "M8 2.5v8M4.5 7.5 8 11l3.5-3.5M3 13.5h10",
  search: "M7 2.8a4.2 4.2 0 1 1 0 8.4a4.2 4.2 0 0 1 0-8.4M10.2 10.2l3.3 3.3",
  trash: "M3 4.5h10M6.5 4.5v-2h3v2M4.5 4.5l.6 9h5.8l.6-9M6.8 7v4M9.2 7v4",
} as const;

export type IconName = keyof typeof PATHS;

/** The lines of an icon, for a canvas. */
export const iconPath = (name: IconName): string => PATHS[name];

/** Nothing for screen readers: a word stands beside it, or the button has a label. */
export function Icon({ name, small = false }: { name: IconName; small?: boolean }) {
  return <svg class={small ? "icon s" : "icon"} viewBox="0 0 16 16" aria-hidden="true"><path d={PATHS[name]} /></svg>;
}
