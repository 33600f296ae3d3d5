// The frame around the pages.
import type { ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";
import { Dialogs } from "../parts/dialog";
import { drawerOpen } from "../parts/drawer";
import { Toasts } from "../parts/toasts";
import { onKey } from "./keys";
import { BottomNav, Rail } from "./rail";
import { useServer } from "./server";

function skip(event: Event): void {
  event.preventDefault();
  document.getElementById("main")?.focus();
}

export function Frame({ at, children }: { at: string; children: ComponentChildren }) {
  useServer();
  useEffect(() => {
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);
  return (
    <>
      <div class={drawerOpen() ? "app open" : "app"}>
        <a class="skip" href="#main" onClick={skip}>Skip to the page</a>
        <Rail at={at} />
        <main id="main" class="main" tabIndex={-1}>{children}</main>
        <BottomNav at={at} />
      </div>
      <Dialogs />
      <Toasts />
    </>
  );
}
