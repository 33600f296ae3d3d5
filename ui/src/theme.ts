// Light or dark: as the system says, or as the reader chose for this browser.
import { effect, signal } from "@preact/signals";

export type Theme = "system" | "light" | "dark";
const KEY = "tidegate-theme";

function kept(): Theme {
  try {
    const theme = localStorage.getItem(KEY);
    return theme === "light" || theme === "dark" ? theme : "system";
  } catch {
    return "system";
  }
}

export const theme = signal<Theme>(kept());
const NEXT: Readonly<Record<Theme, Theme>> = { system: "light", light: "dark", dark: "system" };
export const nextTheme = (): Theme => (theme.value = NEXT[theme.value]);
/** Grows when colours change, for what is drawn by hand. */
export const colours = signal(0);

effect(() => {
  const chosen = theme.value;
  if (chosen === "system") delete document.documentElement.dataset["theme"];
  else document.documentElement.dataset["theme"] = chosen;
  try {
    if (chosen === "system") localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, chosen);
  } catch {
    // A browser may keep nothing: then the choice lasts as long as the page.
  }
  colours.value = colours.peek() + 1;
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => colours.value++);

/** A token of style.css: `token("accent")` is `--accent`. */
export const token = (name: string): string => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
