// Overrides that no row of the tree shows; the section is there only while there are some.
import { Problem } from "../../parts/toasts";
import { usePoll } from "../../poll";
import { KeyLink } from "../overview/keys";
import { limitHref, limitOf, type KnownLimit } from "./known";
import type { Override } from "./model";
import { OverrideIcon, OverrideLine, Resume } from "./override";
import { Name } from "../../parts/text";

const idOf = (one: Override): string => JSON.stringify([one.effect, one.rule, one.domain, one.entries]);

export function Overrides({ known }: { known: readonly KnownLimit[] }) {
  const { data, error } = usePoll<{ readonly items: readonly Override[] }>("v1/limits/overrides", 2000);
  const shown = new Set(known.flatMap(({ limit }) => limit.overrides ?? []).map(idOf));
  const rest = data?.items.filter((one) => !shown.has(idOf(one))) ?? [];
  if (!error && rest.length === 0) return null;
  return (
    <section class="panel attention" aria-label="Paused and scaled">
      <header><h2>Paused and scaled</h2></header>
      <Problem error={error} />
      <OverrideList of={rest} known={known} />
    </section>
  );
}

export function OverrideList({ of, known }: { of: readonly Override[]; known: readonly KnownLimit[] }) {
  return (
    <ul>
      {of.map((one) => (
        <li key={idOf(one)}>
          <OverrideIcon one={one} />
          <span class="cut"><Subject one={one} known={known} /></span>
          <span class="act"><Resume one={one} /></span>
          <span class="sub"><OverrideLine one={one} /></span>
        </li>
      ))}
    </ul>
  );
}

function Subject({ one, known }: { one: Override; known: readonly KnownLimit[] }) {
  if (one.entries) return <KeyLink domain={one.domain ?? ""} entries={one.entries} limit={limitOf(known, one.domain ?? "", one.entries)} />;
  const limit = known.find((other) => other.limit.rule === one.rule);
  const name = <><Name text={one.rule ?? ""} max={120} mono /> <span class="dim">all keys</span></>;
  return limit ? <a href={limitHref(limit.domain, limit.entries)}>{name}</a> : name;
}
