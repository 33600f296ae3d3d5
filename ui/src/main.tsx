// Which page is shown, in the frame; before that, who the user is.
import { render } from "preact";
import { get, session, type Session } from "./api";
import { Frame } from "./frame/frame";
import { TopBar } from "./frame/top";
import { Failures } from "./pages/failures";
import { Limits } from "./pages/limits";
import { Overview } from "./pages/overview";
import { Queues } from "./pages/queues";
import { SignIn } from "./pages/sign-in";
import { Workers } from "./pages/workers";
import { WorkflowPage } from "./pages/workflow";
import { Workflows } from "./pages/workflows";
import { showError, Toasts } from "./parts/toasts";
import { href, place } from "./router";

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
      return <><TopBar title="Not found" /><p>There is no such page. <a href={href(["overview"])}>Overview</a></p></>;
  }
}

function App() {
  const { parts } = place.value;
  const who = session.value;
  if (!who) return <><main id="main" class="sign-in"><p class="dim">Connecting to the server…</p></main><Toasts /></>;
  if (who.role === null) return <><SignIn /><Toasts /></>;
  return <Frame at={parts[0] ?? "overview"}><Page parts={parts} /></Frame>;
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
