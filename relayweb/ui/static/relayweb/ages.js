// Ages of rows, and the durations of what still runs, by the server's clock.
import { span } from "./format.js";

function age(us) {
  const seconds = us / 1e6;
  if (seconds < 2) return "now";
  for (const [length, name] of [[86400, "d"], [3600, "h"], [60, "m"]]) if (seconds >= length) return `${Math.floor(seconds / length)} ${name}`;
  return `${Math.floor(seconds)} s`;
}

/** Renews every `[data-at]` and `[data-since]` of the page. @param live Live, or null before it is connected */
export function ages(live) {
  const now = live?.cursor ? live.now() : Date.now() * 1000;
  for (const cell of document.querySelectorAll("[data-at]")) {
    const said = age(now - Number(cell.dataset.at));
    if (cell.textContent !== said) cell.textContent = said;
  }
  for (const cell of document.querySelectorAll("[data-since]")) {
    const us = Math.max(0, now - Number(cell.dataset.since));
    (cell.querySelector(".dur") ?? cell).textContent = span(us / 1e6);
    const bar = cell.querySelector(".durbar rect");
    const largest = Number(cell.closest("[data-largest]")?.dataset.largest ?? 0);
    if (!bar || !largest) continue;
    const width = 100 * Math.sqrt(Math.min(1, us / largest));
    bar.setAttribute("width", width.toFixed(1));
    bar.setAttribute("x", (100 - width).toFixed(1));
  }
}
