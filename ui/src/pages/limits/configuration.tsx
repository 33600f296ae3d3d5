// The configuration that is in force as a tree, with what each limit counts, and what is wrong with the one that was refused.
import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { Problem } from "../../parts/toasts";
import { cut, many as count, Name, plain } from "../../parts/text";
import { Ago, Time } from "../../parts/time";
import { place, setQuery } from "../../router";
import { isIn, knownLimits } from "./known";
import { placeOf, type Load, type Mistake } from "./model";
import { usePages } from "./pages";
import { Chosen, Searched, Tree } from "./tree";

const CHIPS: readonly (readonly [state: string | null, word: string])[] = [[null, "All"], ["refusing", "Refusing"], ["near", "Near"], ["paused", "Paused"]];

export function Configuration({ act }: { act: ComponentChildren }) {
  const pages = usePages({});
  const load = pages.level?.load;
  const [typed, type] = useState("");
  const find = useSettled(typed);
  const known = knownLimits(pages.level);
  const state = place.value.query["state"] ?? null;
  const counted = (of: string | null): number => (of === null ? (load?.limits ?? 0) : known.filter(({ limit }) => isIn(of, limit)).length);
  return (
    <>
      {load ? <Wrong load={load} /> : null}
      <section class="panel" aria-label="Configuration">
        <header class="tools">
          <input type="search" data-filter aria-label="Filter" placeholder="Filter by key or value" value={typed} onInput={(event) => type(event.currentTarget.value)} />
          <span class="chips" role="group" aria-label="Limits shown">
            {CHIPS.map(([of, word]) => <button key={word} class={`chip${state === of ? " on" : ""}`} aria-pressed={state === of} onClick={() => setQuery({ state: of })}>{word} <b>{counted(of).toLocaleString("en")}</b></button>)}
          </span>
          {load ? <From load={load} version={pages.level?.version ?? 0} /> : null}
          {act}
        </header>
        <Problem error={pages.error} />
        {find ? <Searched key={find} find={find} /> : state ? <Chosen pages={pages} state={state} /> : <Tree pages={pages} mistakes={load?.refused?.mistakes ?? []} large={(load?.descriptors ?? 0) > 60} />}
      </section>
    </>
  );
}

/** A text, 300 ms after its last change: each search costs the server some milliseconds. */
function useSettled(text: string): string {
  const [settled, settle] = useState(text);
  useEffect(() => {
    const timer = setTimeout(() => settle(text), 300);
    return () => clearTimeout(timer);
  }, [text]);
  return settled;
}

const SOURCES: Readonly<Record<string, string>> = { files: "files in", management_server: "the management server" };

function From({ load, version }: { load: Load; version: number }) {
  return (
    <span class="note push">
      {load.loaded_at ? <>{count(load.domains, "domain")}, {count(load.limits, "limit")}, <span title={`Version ${version}`}>loaded</span> <Ago at={load.loaded_at} /></> : <b class="bad">Nothing is loaded: requests get an error</b>}
      {" "}from {SOURCES[load.source] ?? ""} <Name text={load.place} max={60} mono={load.source === "files"} />
    </span>
  );
}

/** The mistakes of the configuration. Screen readers read them at once; they go when they are repaired. */
function Wrong({ load }: { load: Load }) {
  const { refused, unreadable } = load;
  return (
    <div role="alert">
      {refused ? (
        <div class="problem">
          <p>
            <b>The latest configuration was refused</b> at <Time at={refused.at} />.{" "}
            {load.loaded_at ? <>The one of <Time at={load.loaded_at} /> stays in force.</> : "There is none in force."}
          </p>
          <Mistakes of={refused.mistakes} />
          {refused.more > 0 ? <p>and {count(refused.more, "other mistake")}</p> : null}
        </div>
      ) : null}
      {unreadable.length > 0 ? (
        <div class="warning">
          <p><b>These files cannot be read.</b> Their last texts stay in use.</p>
          <Mistakes of={unreadable} />
        </div>
      ) : null}
    </div>
  );
}

function Mistakes({ of }: { of: readonly Mistake[] }) {
  return (
    <ul class="mistakes">
      {of.map((one, at) => (
        <li key={at}>
          {one.file ? <bdi class="mono">{cut(plain(placeOf(one)), 300)}</bdi> : null} <bdi>{cut(plain(one.text), 500)}</bdi>
          {one.path ? <span class="dim"> at <bdi>{cut(plain(one.path), 200)}</bdi></span> : null}
          {one.hint ? <div class="dim"><bdi>{cut(plain(one.hint), 300)}</bdi></div> : null}
        </li>
      ))}
    </ul>
  );
}
