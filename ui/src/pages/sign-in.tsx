// The token goes to the server once, which keeps it in a cookie that no script can read.
import { useState } from "preact/hooks";
import { request, session, type ApiError, type Session } from "../api";
import { reconnect } from "../live";

export function SignIn() {
  const [error, setError] = useState<ApiError | null>(null);
  const [busy, setBusy] = useState(false);
  const submit = async (event: SubmitEvent): Promise<void> => {
    event.preventDefault();
    const input = (event.target as HTMLFormElement).elements.namedItem("token") as HTMLInputElement;
    setBusy(true);
    try {
      const got = await request<Session>({ method: "POST", path: "v1/session", body: { token: input.value } });
      input.value = "";
      session.value = got;
      reconnect();
    } catch (refused) {
      setError(refused as ApiError);
    }
    setBusy(false);
  };
  return (
    <main id="main" class="sign-in">
      <form class="panel" onSubmit={(event) => void submit(event as SubmitEvent)}>
        <div class="brand"><img src="assets/icon.svg" alt="" /><h1>Sign in to Tidegate</h1></div>
        <label>Token <input type="password" name="token" required autoFocus autoComplete="current-password" spellcheck={false} placeholder="Paste a token" aria-describedby="token-error" /></label>
        <div id="token-error" role="alert">{error ? <p class="problem">{error.status === 401 ? <b>This token is not known.</b> : <><b>{error.code}</b> {error.message}</>}</p> : null}</div>
        <div class="row">
          <p class="dim small">The third word of a line of the file in <code>TIDEGATE_TOKENS_FILE</code></p>
          <button class="main-act" disabled={busy}>Sign in</button>
        </div>
      </form>
    </main>
  );
}
