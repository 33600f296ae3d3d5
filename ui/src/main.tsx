// The frame around the pages: where one goes, whether it is live, who is signed in.
import { render } from "preact";
import { useEffect } from "preact/hooks";
import { request, get, session, type Session } from "./api";
import { mark } from "./live";
import { Failures } from "./pages/failures";
import { Limits } from "./pages/limits";
import { Overview } from "./pages/overview";
import { Queues } from "./pages/queues";
import { SignIn } from "./pages/sign-in";
import { Workers } from "./pages/workers";
import { WorkflowPage } from "./pages/workflow";
import { Workflows } from "./pages/workflows";
import { Dialogs } from "./parts/dialog";
import { showError, Toasts } from "./parts/toasts";
import { href, place } from "./router";
import { theme, type Theme } from "./theme";

const PAGES = [
  ["overview", "Overview"],
  ["limits", "Limits"],
  ["workflows", "Workflows"],
  ["queues", "Queues"],
  ["workers", "Workers"],
  ["failures", "Failures"],
] as const;

function Mark() {
  return (
    <span class={`mark ${mark.value ?? "off"}`} role="status" title="whether changes are shown as they happen">
      {mark.value ? <><span aria-hidden="true">{mark.value === "live" ? "●" : "◌"}</span> {mark.value}</> : null}
    </span>
  );
}

function SignOut() {
  if (!session.value?.sign_in) return null;
  const out = async (): Promise<void> => {
    try {
      await request({ method: "DELETE", path: "v1/session" });
      session.value = await get<Session>("v1/session");
    } catch (error) {
      showError(error);
    }
  };
  return <><span class="who">{session.value.name} ({session.value.role})</span> <button class="small" onClick={() => void out()}>Sign out</button></>;
}

function Head({ at }: { at: string }) {
  return (
    <header>
      <a class="skip" href="#main" onClick={(event) => (event.preventDefault(), document.getElementById("main")?.focus())}>Skip to the page</a>
      <a class="brand" href={href(["overview"])}>Tidegate</a>
      <nav aria-label="Pages">
        {PAGES.map(([name, label]) => (
          <a key={name} href={href([name])} aria-current={at === name ? "page" : undefined}>{label}</a>
        ))}
      </nav>
      <div class="tools">
        <Mark />
        <label class="theme">
          <span class="dim">colours</span>
          <select value={theme.value} onChange={(event) => (theme.value = event.currentTarget.value as Theme)}>
            <option value="system">system</option>
            <option value="light">light</option>
            <option value="dark">dark</option>
          </select>
        </label>
        <SignOut />
      </div>
    </header>
  );
}

function Page({ parts }: { parts: readonly string[] }) {
  const [name, id] = parts;
  switch (name) {
    case undefined:
    case "overview":
      return <Overview />;
    case "limits":
      return <Limits />;
    case "workflows":
      return id === undefined ? <Workflows /> : <WorkflowPage key={id} id={id} />;
    case "queues":
      return <Queues />;
    case "workers":
      return <Workers />;
    case "failures":
      return <Failures />;
    default:
      return <><h1>No such page</h1><p><a href={href(["overview"])}>Overview</a></p></>;
  }
}

/** `/` goes to the filter of the page, as in other tools. */
function keys(event: KeyboardEvent): void {
  const from = event.target as HTMLElement;
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || from.closest("input:not([type=checkbox], [type=radio]), textarea, select, dialog")) return;
  const filter = document.querySelector<HTMLElement>("[data-filter]");
  if (!filter) return;
  event.preventDefault();
  filter.focus();
}

function App() {
  const parts = place.value.parts;
  const at = parts[0] ?? "overview";
  useEffect(() => {
    const label = PAGES.find(([name]) => name === at)?.[1] ?? "";
    document.title = `${parts[1] ? `${parts[1]} · ` : ""}${label} · Tidegate`;
  }, [at, parts[1]]);
  useEffect(() => {
    addEventListener("keydown", keys);
    return () => removeEventListener("keydown", keys);
  }, []);
  const who = session.value;
  if (!who) return <main id="main"><p>The server checks who you are…</p></main>;
  if (who.role === null) return <><SignIn /><Toasts /></>;
  return (
    <>
      <Head at={at} />
      <main id="main" tabIndex={-1}><Page parts={parts} /></main>
      <footer>Tidegate {who.version}{who.role === "admin" ? "" : ` · you have the role ${who.role}: ${who.role === "work" ? "you may start workflows" : "you may look"}`} · <a href="assets/licenses.txt">licences</a></footer>
      <Dialogs />
      <Toasts />
    </>
  );
}

/** Until the server answers. */
async function begin(): Promise<void> {
  for (let pause = 500; session.value === null; pause = Math.min(2 * pause, 10_000)) {
    try {
      session.value = await get<Session>("v1/session");
    } catch (error) {
      showError(error);
      await new Promise((end) => setTimeout(end, pause));
    }
  }
}

const root = document.getElementById("app");
if (root) render(<App />, root);
void begin();
