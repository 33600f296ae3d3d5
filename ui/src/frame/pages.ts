// The pages, in the order of the rail.
import type { IconName } from "../parts/icon";
import { limitsOnly } from "../poll";

export interface PageEntry {
  readonly name: string;
  readonly label: string;
  readonly icon: IconName;
  /** The letter that goes there after `g`. */
  readonly key: string;
}

const overview: PageEntry = { name: "overview", label: "Overview", icon: "overview", key: "o" };
const limits: PageEntry = { name: "limits", label: "Limits", icon: "limits", key: "l" };
const workflows: PageEntry = { name: "workflows", label: "Workflows", icon: "workflows", key: "w" };
const queues: PageEntry = { name: "queues", label: "Queues", icon: "queues", key: "q" };
const workers: PageEntry = { name: "workers", label: "Workers", icon: "workers", key: "k" };
const failures: PageEntry = { name: "failures", label: "Failures", icon: "warning", key: "f" };

export const GROUPS: readonly (readonly [title: string | null, pages: readonly PageEntry[]])[] = [
  [null, [overview]],
  ["Rate limits", [limits]],
  ["Jobs", [workflows, queues, workers, failures]],
];
/** Without workflows, the pages of jobs have nothing to show. */
export const shownGroups = () => (limitsOnly.value ? GROUPS.filter(([title]) => title !== "Jobs") : GROUPS);
export const PAGES: readonly PageEntry[] = GROUPS.flatMap(([, pages]) => pages);
/** Those at the foot of a narrow screen, and those behind "More". */
export const FIRST: readonly PageEntry[] = [overview, limits, workflows, failures];
export const MORE: readonly PageEntry[] = [queues, workers];
