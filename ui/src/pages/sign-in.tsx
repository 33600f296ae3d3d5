// The token goes to the server once, which keeps it in a cookie that no script can read.
import { useState } from "preact/hooks";
import { request, session, type ApiError, type Session } from "../api";
import { reconnect } from "../live";
import { Problem } from "../parts/toasts";

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
      <h1>Sign in to Tidegate</h1>
      <p>Use a token from the file in <code>TIDEGATE_TOKENS_FILE</code>: the third word of a line.</p>
      <form onSubmit={(event) => void submit(event as SubmitEvent)}>
        <label>Token <input type="password" name="token" required autoFocus autoComplete="current-password" spellcheck={false} /></label>
        <button class="primary" disabled={busy}>Sign in</button>
      </form>
      <Problem error={error} />
    </main>
  );
}
