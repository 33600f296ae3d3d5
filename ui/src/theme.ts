// Light or dark: as the system says, or as the reader chose for this browser.
import { effect, signal } from "@preact/signals";
import { store, stored } from "./parts/stored";

export type Theme = "system" | "light" | "dark";
const kept = stored("theme");

export const theme = signal<Theme>(kept === "light" || kept === "dark" ? kept : "system");
const NEXT: Readonly<Record<Theme, Theme>> = { system: "light", light: "dark", dark: "system" };
export const nextTheme = (): Theme => (theme.value = NEXT[theme.value]);
/** Grows when colours change, for what is drawn by hand. */
export const colours = signal(0);

effect(() => {
  const chosen = theme.value;
  if (chosen === "system") delete document.documentElement.dataset["theme"];
  else document.documentElement.dataset["theme"] = chosen;
  store("theme", chosen);
  colours.value = colours.peek() + 1;
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => colours.value++);

/** A token of style.css: `token("accent")` is `--accent`. */
export const token = (name: string): string => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
