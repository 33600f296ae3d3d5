// The head of a page: its title, the range of time, whether changes come as they happen, and the worst banner.
import type { ComponentChildren } from "preact";
import { useLayoutEffect } from "preact/hooks";
import { unreachable } from "../api";
import { mark } from "../live";
import { Icon } from "../parts/icon";
import { plain } from "../parts/text";
import { clock } from "../parts/time";
import { Banners } from "./banners";
import { openPalette, PALETTE } from "./palette";
import { hasRange, range, RANGES, setRange } from "./range";

export interface TopBarProps {
  /** The title of the browser's tab. */
  readonly title: string;
  /** The heading, when it is more than the title. */
  readonly children?: ComponentChildren;
}

export function TopBar({ title, children = title }: TopBarProps) {
  useLayoutEffect(() => {
    document.title = `${plain(title)} - Tidegate`;
  }, [title]);
  return (
    <>
      <header class="top">
        <h1>{children}</h1>
        <button class="jump" title={PALETTE} aria-keyshortcuts="Control+K" onClick={openPalette}><Icon name="search" /><span>{PALETTE}</span><kbd>Ctrl K</kbd></button>
        {hasRange() ? <span class="seg" role="group" aria-label="Time range">
          {RANGES.map((one) => <button key={one} class={one === "24h" ? "lo3" : undefined} aria-pressed={range.value === one} onClick={() => setRange(one)}>{one}</button>)}
        </span> : null}
        <Live />
      </header>
      <Banners />
    </>
  );
}

function Live() {
  const gone = unreachable.value;
  if (gone) return <span class="mark chip reconnecting" role="status" title="These values are of then"><span class="bad"><Icon name="warning" small /></span> Offline<span class="t">, values of {clock(gone.since)}</span></span>;
  return (
    <span class={`mark${mark.value ? ` chip ${mark.value}` : ""}`} role="status" title="Whether changes are shown as they happen">
      {mark.value === "live" ? <><span class="ok"><Icon name="check" small /></span> Live</>
      : mark.value ? <><span class="warn"><Icon name="retry" small /></span> Offline</> : null}
    </span>
  );
}
