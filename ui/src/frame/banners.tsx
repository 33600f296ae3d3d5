// What concerns every page. One banner at a time, the worst first; a button opens the others.
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { unreachable } from "../api";
import { Icon } from "../parts/icon";
import { cut, Name, plain } from "../parts/text";
import { clock, span, tick, Time } from "../parts/time";
import { placeOf } from "../pages/limits/model";
import { retryAt, retryNow } from "../poll";
import { href, place } from "../router";
import { load, status } from "./server";

interface Banner {
  readonly key: string;
  readonly kind: "bad" | "warn";
  readonly text: ComponentChildren;
  readonly action?: ComponentChildren;
}

function Unreachable({ since }: { since: number }) {
  const wait = Math.ceil((retryAt.value - tick.value) / 1000);
  return <><b>Server unreachable since {clock(since)}.</b> What you see is of then. Trying again {wait > 0 ? `in ${wait} s` : "now"}.</>;
}

function Draining({ until }: { until: string | null | undefined }) {
  const left = until ? Math.max(Date.parse(until) - tick.value, 0) : null;
  return <><b>This server is draining.</b>{left === null ? "" : ` It stops in ${span(1000 * Math.ceil(left / 1000))}.`}</>;
}

function Refused() {
  const refused = load.value?.refused;
  const first = refused?.mistakes[0];
  if (!refused) return null;
  return (
    <>
      <b>The newest configuration was refused at <Time at={refused.at} />.</b>{" "}
      {load.value?.loaded_at ? <>The one of <Time at={load.value.loaded_at} /> stays in force.</> : "There is none in force."}
      {first ? <> <bdi class="mono">{cut(plain(placeOf(first)), 100)}</bdi> <bdi>{cut(plain(first.text), 200)}</bdi></> : null}
    </>
  );
}

function banners(): Banner[] {
  const found: Banner[] = [];
  const gone = unreachable.value;
  if (gone) found.push({ key: "unreachable", kind: "bad", text: <Unreachable since={gone.since} />, action: <button class="small" onClick={retryNow}>Try now</button> });
  const now = status.value;
  if (now?.state === "draining") found.push({ key: "draining", kind: "warn", text: <Draining until={now.drains_until} /> });
  const refused = load.value?.refused;
  if (refused) {
    const count = refused.mistakes.length + refused.more;
    const action = place.value.parts[0] === "limits" ? null : <a class="small" href={href(["limits"])}>Show {count === 1 ? "the mistake" : `${count} mistakes`}</a>;
    found.push({ key: "refused", kind: "bad", text: <Refused />, action });
  }
  const store = now?.workflows;
  if (store?.reason) found.push({ key: "store", kind: "bad", text: <><b>Workflows cannot be served.</b> <Name text={store.reason} max={400} /></> });
  for (const one of store?.troubles ?? []) {
    found.push({ key: `partitions ${one.partitions.join()}`, kind: "warn", text: <><b>{one.partitions.length} of {store?.partitions} partitions do not answer.</b> <Name text={one.reason} max={400} /></> });
  }
  for (const risk of store?.risks ?? []) found.push({ key: risk, kind: "warn", text: <><b>Work can be lost.</b> <Name text={risk} max={600} /></> });
  return found;
}

export function Banners() {
  const [open, setOpen] = useState(false);
  const all = banners();
  const shown = open ? all : all.slice(0, 1);
  return (
    <div role="status">
      {shown.map(({ key, kind, text, action }, at) => (
        <div key={key} class={`banner ${kind}`}>
          <Icon name={kind === "bad" ? "warning" : "clock"} />
          <p>{text}</p>
          <span class="buttons">
            {action}
            {at === 0 && all.length > 1 ? <button class="small bare" aria-expanded={open} onClick={() => setOpen(!open)}>{open ? "Show less" : `and ${all.length - 1} more`}</button> : null}
          </span>
        </div>
      ))}
    </div>
  );
}
