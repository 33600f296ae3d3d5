// What this browser keeps for the reader. One may keep nothing: then it lasts as long as the page.

/** Empty when nothing is kept. */
export function stored(name: string): string {
  try {
    return localStorage.getItem(`tidegate-${name}`) ?? "";
  } catch {
    return "";
  }
}

export function store(name: string, text: string): void {
  try {
    localStorage.setItem(`tidegate-${name}`, text);
  } catch {
    // See above.
  }
}
