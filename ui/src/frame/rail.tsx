// Where one goes: the rail at the side, or the bar at the foot of a narrow screen.
import { get, request, session, type Session } from "../api";
import { closeDialog, show } from "../parts/dialog";
import { Icon } from "../parts/icon";
import { now, span } from "../parts/time";
import { showError } from "../parts/toasts";
import { href } from "../router";
import { nextTheme, theme } from "../theme";
import { showHelp } from "./keys";
import { FIRST, MORE, shownGroups, type PageEntry } from "./pages";
import { failures, health, load, overview } from "./server";

const few = (count: number): string => (count > 999 ? "999+" : String(count));

function Badge({ page }: { page: string }) {
  const running = overview.value.data?.now.workflows["running"] ?? 0;
  if (page === "workflows" && running > 0) return <b class="badge run">{few(running)}<span class="hide"> running</span></b>;
  if (page === "failures" && failures.value > 0) return <b class="badge bad">{few(failures.value)}<span class="hide"> failed</span></b>;
  if (page === "limits" && load.value?.refused) return <i class="dot"><span class="hide">configuration refused</span></i>;
  return null;
}

function PageLink({ page, at }: { page: PageEntry; at: string }) {
  return (
    <a href={href([page.name])} aria-current={at === page.name ? "page" : undefined} title={page.label}>
      <Icon name={page.icon} /><span>{page.label}</span><Badge page={page.name} />
    </a>
  );
}

export function Rail({ at }: { at: string }) {
  return (
    <nav class="rail" aria-label="Pages">
      <a class="brand" href={href(["overview"])} aria-label="Tidegate"><img src="assets/icon.svg" alt="" /><span>Tidegate</span></a>
      {shownGroups().map(([title, pages]) => (
        <div key={title}>
          {title ? <h2>{title}</h2> : null}
          <ul>{pages.map((page) => <li key={page.name}><PageLink page={page} at={at} /></li>)}</ul>
        </div>
      ))}
      <Foot />
    </nav>
  );
}

const THEMES = { system: "as the system", light: "light", dark: "dark" } as const;

function Foot() {
  const who = session.value;
  const well = health();
  const began = load.value?.counting_since;
  return (
    <div class="foot">
      <div class="row">
        <span class="health" role="status" title={`Server: ${well}`}>
          <span class={well === "Healthy" ? "ok" : well === "Unknown" ? "faint" : "bad"}><Icon name={well === "Healthy" ? "check" : well === "Unknown" ? "ring" : "warning"} small /></span>
          <span class="t">{well}</span>
        </span>
        <button class="bare square small" onClick={nextTheme} title={`Theme: ${THEMES[theme.value]}`}><Icon name={theme.value} /></button>
        <button class="bare square small" onClick={showHelp} title="Keyboard shortcuts"><Icon name="help" /></button>
      </div>
      <div class="t" title={who?.version ?? undefined}>{who?.version?.split("+")[0]}{began ? ` · up ${span(Math.max(now.value - Date.parse(began), 0)).replace(/ \d\ds$/, "")}` : ""} · <a href="assets/licenses.txt">Licenses</a></div>
      <Account />
    </div>
  );
}

async function signOut(): Promise<void> {
  closeDialog();
  try {
    await request({ method: "DELETE", path: "v1/session" });
    session.value = await get<Session>("v1/session");
  } catch (error) {
    showError(error);
  }
}

/** The rights of each role but admin, which has all. */
const MAY: Readonly<Record<string, string>> = { read: "read only", work: "may start workflows" };

function Account() {
  const who = session.value;
  if (!who?.role) return null;
  const may = MAY[who.role];
  if (!who.sign_in) return may ? <div class="t">{may}</div> : null;
  return (
    <div class="row">
      <span class="t cut" title={who.name ?? undefined}>{who.name}, {may ?? who.role}</span>
      <button class="bare square small push" onClick={() => void signOut()} title="Sign out"><Icon name="leave" /></button>
    </div>
  );
}

export function BottomNav({ at }: { at: string }) {
  return (
    <nav class="bottom" aria-label="Pages at the foot">
      {FIRST.map((page) => <PageLink key={page.name} page={page} at={at} />)}
      <button onClick={showMore} aria-current={MORE.some((page) => page.name === at) ? "page" : undefined}><Icon name="menu" />More</button>
    </nav>
  );
}

function showMore(): void {
  show("More", <More />);
}

function More() {
  const who = session.value;
  return (
    <>
      <ul class="menu">
        {MORE.map((page) => <li key={page.name}><a href={href([page.name])}><Icon name={page.icon} />{page.label}</a></li>)}
        <li><button type="button" onClick={nextTheme}><Icon name={theme.value} />Theme: {THEMES[theme.value]}</button></li>
        {who?.sign_in ? <li><button type="button" onClick={() => void signOut()}><Icon name="leave" />Sign out {who.name}</button></li> : null}
      </ul>
      <p class="small">{health()} · Tidegate {who?.version} · <a href="assets/licenses.txt">Licenses</a>{who?.role ? ` · ${MAY[who.role] ?? who.role}` : ""}</p>
    </>
  );
}
