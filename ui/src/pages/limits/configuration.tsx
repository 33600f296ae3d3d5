// The configuration that is in force as a tree, with what each limit counts, and what is wrong with the one that was refused.
import { useEffect, useState } from "preact/hooks";
import { Problem } from "../../parts/toasts";
import { cut, Name, plain } from "../../parts/text";
import { Ago, Time } from "../../parts/time";
import { placeOf, type Load, type Mistake } from "./model";
import { usePages } from "./pages";
import { Searched, Tree } from "./tree";

export function Configuration() {
  const pages = usePages({});
  const load = pages.level?.load;
  const [typed, type] = useState("");
  const find = useSettled(typed);
  return (
    <section aria-label="Configuration">
      <h2>Configuration</h2>
      <Problem error={pages.error} />
      {load ? <Wrong load={load} /> : null}
      {load ? <From load={load} version={pages.level?.version ?? 0} /> : null}
      <p class="filters">
        <label>Filter <input type="search" data-filter size={24} placeholder="Part of a key or value" value={typed} onInput={(event) => type(event.currentTarget.value)} /></label>
      </p>
      {find ? <Searched key={find} find={find} /> : <Tree pages={pages} mistakes={load?.refused?.mistakes ?? []} large={(load?.descriptors ?? 0) > 60} />}
    </section>
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

const count = (number: number, noun: string): string => `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;

const SOURCES: Readonly<Record<string, string>> = { files: "files in", management_server: "the management server" };

function From({ load, version }: { load: Load; version: number }) {
  return (
    <p class="filters facts small dim">
      <span>From {SOURCES[load.source] ?? ""} <Name text={load.place} max={100} mono={load.source === "files"} /></span>
      <span>{load.loaded_at ? <>Loaded <Ago at={load.loaded_at} /> (version {version})</> : <b class="bad">Nothing is loaded: requests get an error</b>}</span>
      <span>{count(load.domains, "domain")}, {count(load.limits, "limit")}</span>
      <span>Hits of requests and jobs at this server since <Time at={load.counting_since} /></span>
    </p>
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
