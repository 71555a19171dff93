// Rows of a list that is not live: j and k move, Enter opens.
import { typing } from "./shell.js";

const rows = () => [...document.querySelectorAll("tr[data-row]")];

document.addEventListener("keydown", (event) => {
  if (typing(event)) return;
  const all = rows();
  const at = all.findIndex((row) => row.getAttribute("aria-selected") === "true");
  if (event.key === "Enter" && at >= 0 && !event.target.closest("a, button")) location.assign(all[at].querySelector("a").href);
  const step = { j: 1, k: -1 }[event.key];
  if (!step || !all.length) return;
  const next = all[at < 0 ? 0 : Math.max(0, Math.min(all.length - 1, at + step))];
  all[at]?.removeAttribute("aria-selected");
  next.setAttribute("aria-selected", "true");
  next.scrollIntoView({ block: "nearest" });
});
document.addEventListener("click", (event) => {
  const link = event.target.closest("tr[data-row]")?.querySelector("a");
  if (link && !event.target.closest("a, button") && !String(getSelection())) location.assign(link.href);
});
