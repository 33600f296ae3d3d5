// One thing of a list: beside the list, or above it where both have no room. What is open stands in the address.
import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";
import { href, navigate, place, setQuery } from "../router";
import { Icon } from "./icon";
import { Name } from "./text";

/** A job is open by a query of its workflow, a queue or a worker by the second part of the address. */
export function drawerOpen(): boolean {
  const { parts: [page, name], query } = place.value;
  return name !== undefined && (page === "workflows" ? query["job"] !== undefined : page === "queues" || page === "workers");
}

export function closeDrawer(): void {
  const { parts: [page = ""], query } = place.value;
  if (query["job"]) setQuery({ job: null });
  else navigate([page], query);
}

const link = (page: string) => ({ name, max = 60 }: { name: string; max?: number }) => <a href={href([page, name])}><Name text={name} max={max} /></a>;
export const QueueLink = link("queues");
export const WorkerLink = link("workers");

export interface DrawerProps {
  /** The kind of the thing, such as `job`. */
  readonly noun: string;
  readonly name: string;
  /** Names in the order of the list, for the next and the one before. */
  readonly names: readonly string[];
  readonly open: (name: string) => void;
  readonly state: ComponentChildren;
  readonly facts: ComponentChildren;
  readonly children: ComponentChildren;
}

export function Drawer({ noun, name, names, open, state, facts, children }: DrawerProps) {
  const heading = useRef<HTMLHeadingElement>(null);
  useLayoutEffect(() => {
    const before = document.activeElement as HTMLElement | null;
    return () => before?.focus({ preventScroll: true });
  }, []);
  useLayoutEffect(() => heading.current?.focus({ preventScroll: innerWidth > 1100 }), [name]);
  const step = (by: number, label: string, icon: "up" | "down", key: string) => {
    const at = names.indexOf(name);
    const to = at < 0 ? undefined : names[at + by];
    return <button class="small bare square" data-key={key} aria-label={label} title={label} disabled={to === undefined} onClick={() => open(to ?? name)}><Icon name={icon} /></button>;
  };
  const word = noun.slice(0, 1).toUpperCase() + noun.slice(1);
  return (
    <>
      <div class="scrim" onClick={closeDrawer} />
      <aside class="drawer" aria-label={word}>{/* plain: HTML */}
        <header>
          <div class="row">
            <h2 ref={heading} tabIndex={-1}><Name text={name} max={200} /></h2>
            {state}
            <span class="push row-buttons">
              {step(-1, `${word} before`, "up", "K")}{step(1, `Next ${noun}`, "down", "J")}
              <button class="small bare square" onClick={closeDrawer} aria-label={`Close the ${noun}`}><Icon name="cross" /></button>
            </span>
          </div>
          {facts}
        </header>
        {children}
      </aside>{/* plain: HTML */}
    </>
  );
}
