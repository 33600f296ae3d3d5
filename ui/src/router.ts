// Where the page is: all of it stands in the hash, so an address can be kept and sent, and works behind any path.
import { signal } from "@preact/signals";

export interface PageState {
  /** The parts between the slashes, without escapes; the first is the page. */
  readonly parts: readonly string[];
  readonly query: Readonly<Record<string, string>>;
}

function unescaped(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function read(): PageState {
  const hash = location.hash.replace(/^#\/?/, "");
  const at = hash.indexOf("?");
  const path = at < 0 ? hash : hash.slice(0, at);
  const query = Object.fromEntries(new URLSearchParams(at < 0 ? "" : hash.slice(at + 1)));
  return { parts: path.split("/").filter(Boolean).map(unescaped), query };
}

export const place = signal<PageState>(read());
addEventListener("hashchange", () => (place.value = read()));

type Query = Readonly<Record<string, string | null | undefined>>;

/** The address of a place: `href(["workflows", id], { job: name })`. */
export function href(parts: readonly string[], query: Query = {}): string {
  const words = new URLSearchParams();
  for (const [key, value] of Object.entries(query)) if (value) words.set(key, value);
  // The range of time is one for all pages.
  const range = place.value.query["range"];
  if (range && query["range"] === undefined) words.set("range", range);
  const search = words.toString();
  return `#/${parts.map((part) => encodeURIComponent(part)).join("/")}${search ? `?${search}` : ""}`;
}

/** Changes some of the query; the place before stays in the history when `keep` is set. */
export function setQuery(changes: Query, keep: "keep" | "replace" = "replace"): void {
  const to = href(place.value.parts, { ...place.value.query, ...changes });
  if (to === location.hash) return;
  if (keep === "keep") location.hash = to;
  else {
    history.replaceState(null, "", to);
    place.value = read();
  }
}

export function navigate(parts: readonly string[], query: Query = {}): void {
  location.hash = href(parts, query);
}
