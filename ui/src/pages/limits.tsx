// Limits: the configuration with what each limit counts, what waits, what the server would answer, and the busiest keys.
import { mayAct } from "../api";
import { TopBar } from "../frame/top";
import { Icon } from "../parts/icon";
import { limitsOnly, usePoll } from "../poll";
import { place } from "../router";
import { Check } from "./limits/check";
import { Configuration } from "./limits/configuration";
import { entriesOf, knownLimits } from "./limits/known";
import { LimitPage } from "./limits/limit";
import type { Level } from "./limits/model";
import { override } from "./limits/override";
import { Overrides } from "./limits/overrides";
import { Waiting } from "./limits/waiting";
import { BusiestKeys, RefusedKeys, useTop } from "./overview/keys";

export function Limits() {
  const [, domain, ...entries] = place.value.parts;
  if (domain === undefined) return <AllLimits />;
  return <LimitPage key={JSON.stringify([domain, entries])} domain={domain} entries={entriesOf(entries)} />;
}

function AllLimits() {
  const top = useTop();
  const known = knownLimits(usePoll<Level>("v1/limits/configuration", 2000).data);
  return (
    <>
      <TopBar title="Limits" />
      <Configuration act={mayAct() ? <>
        <button class="small" aria-label="Scale a limit" onClick={() => void override("scale")}><Icon name="scale" />Scale</button>
        <button class="main-act small" aria-label="Pause a limit" onClick={() => void override("pause")}><Icon name="bars" />Pause</button>
      </> : null} />
      <Overrides known={known} />
      <div class="grid half">
        {limitsOnly.value ? null : <Waiting known={known} />}
        <Check known={known} />
        <BusiestKeys top={top} limits={known} max={25} wide />
        <RefusedKeys limits={known} max={25} />
      </div>
    </>
  );
}
