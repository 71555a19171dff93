// What the page's address says: what is chosen, the tab and its picks, the stretch of time, the view.

const TIMES = ["from", "to"];
const NAMES = ["s", "tab", "form", "a", "b", "against", "diff", ...TIMES, "view", "press"];

export function readUrl() {
  const query = new URLSearchParams(location.search);
  const read = (name) => {
    const text = query.get(name) ?? undefined;
    if (!TIMES.includes(name)) return text;
    return text !== undefined && Number.isFinite(Number(text)) ? Number(text) : undefined;
  };
  return Object.fromEntries(NAMES.map((name) => [name, read(name)]));
}

/** @param push whether the way back leads to what was chosen before */
export function writeUrl(state, push = false) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(state)) {
    if (value === undefined || value === null || value === "") continue;
    query.set(name, TIMES.includes(name) ? String(Number(value.toPrecision(7))) : value);
  }
  const next = `${location.pathname}${query.size ? `?${query}` : ""}`;
  if (next === location.pathname + location.search) return;
  history[push ? "pushState" : "replaceState"](null, "", next);
}
