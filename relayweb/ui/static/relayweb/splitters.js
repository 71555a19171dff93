// Dividers between panes: drag, or arrow keys when focused. The size goes to a custom property of the parent and is kept.
import { remember } from "./shell.js";

/** Makes every `.splitter` under `host` work; the one with class `h` divides rows, the others columns. */
export function splitters(host) {
  for (const bar of host.querySelectorAll(".splitter")) {
    const across = !bar.classList.contains("h");
    const property = bar.dataset.property ?? (across ? "--w-tree" : "--h-timeline");
    const set = (size) => {
      const least = Number(bar.dataset.least ?? 140);
      const room = across ? bar.parentElement.clientWidth : bar.parentElement.clientHeight;
      const kept = Math.round(Math.max(least, Math.min(room - least, size)));
      bar.parentElement.style.setProperty(property, `${kept}px`);
      bar.setAttribute("aria-valuenow", String(kept));
      return kept;
    };
    const length = () => bar.previousElementSibling.getBoundingClientRect()[across ? "width" : "height"];
    const name = property.replace(/^--/, "pane-");
    const stored = document.cookie.match(new RegExp(`(?:^|; )${name}=(\\d+)`));
    if (stored) set(Number(stored[1]));
    bar.addEventListener("pointerdown", (down) => {
      bar.setPointerCapture(down.pointerId);
      const box = bar.previousElementSibling.getBoundingClientRect();
      const move = (event) => set(across ? event.clientX - box.left : event.clientY - box.top);
      bar.addEventListener("pointermove", move);
      const stop = () => {
        bar.removeEventListener("pointermove", move);
        remember(name, Math.round(length()));
      };
      bar.addEventListener("pointerup", stop, { once: true });
    });
    bar.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -16, ArrowUp: -16, ArrowRight: 16, ArrowDown: 16 }[event.key];
      if (!step || (event.key === "ArrowLeft" || event.key === "ArrowRight") !== across) return;
      event.preventDefault();
      remember(name, set(length() + step));
    });
  }
}
