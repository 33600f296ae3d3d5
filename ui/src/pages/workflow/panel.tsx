// A part of the page that folds; what was folded stays so in this browser.
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { Icon } from "../../parts/icon";
import { store, stored } from "../../parts/stored";

const foldedNames = (): string[] => stored("folded").split(",");

export interface PanelProps {
  readonly name: string;
  readonly className?: string;
  readonly note?: ComponentChildren;
  /** At the right end of the head. */
  readonly tools?: ComponentChildren;
  readonly children: ComponentChildren;
}

export function Panel({ name, className = "", note, tools, children }: PanelProps) {
  const [folded, fold] = useState(() => foldedNames().includes(name));
  const toggle = (): void => {
    const others = foldedNames().filter((one) => one !== name);
    store("folded", (folded ? others : [...others, name]).join());
    fold(!folded);
  };
  return (
    <section class={`panel part ${className}`} aria-label={name}>
      <header>
        <h2><button class="fold" aria-expanded={!folded} onClick={toggle}>{name}<Icon name={folded ? "down" : "up"} small /></button></h2>
        {typeof note === "string" ? <span class="note">{note}</span> : folded ? null : note}
        {folded ? null : <span class="tools">{tools}</span>}
      </header>
      <div class={folded ? "gone" : undefined}>{children}</div>
    </section>
  );
}
