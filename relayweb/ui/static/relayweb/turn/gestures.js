// What wheel and pointer do to the timeline: pan, zoom, choose, scrub, brush, and Shift-drag into a stretch of time.
import { gutterIndent } from "./gutter.js";
import { brushPart, miniScale } from "./minimap.js";
import { nodeAt } from "./plane.js";
import { SHORTEST } from "./shapes.js";
import { tip } from "./words.js";

/** @param line RelayTimeline, bound to its model */
export function gestures(line) {
  new Lanes(line);
  line.mini.addEventListener("pointerdown", (event) => brush(line, event));
  line.mini.addEventListener("pointermove", (event) => {
    if (event.buttons) return;
    const part = brushPart(line.view, line.domain, line.mini.clientWidth, event.offsetX);
    line.mini.style.cursor = { from: "ew-resize", to: "ew-resize", both: "grab", new: "crosshair" }[part];
  });
  line.mini.addEventListener("dblclick", () => line.fit());
  line.axis.addEventListener("pointerdown", (event) => {
    line.axis.setPointerCapture(event.pointerId);
    scrub(line, event);
  });
  line.axis.addEventListener("pointermove", (event) => {
    if (event.buttons === 1) scrub(line, event);
  });
}

/** Goes to a moment: the page then shows what was open at it. */
function scrub(line, event) {
  if (event.offsetX < line.size.gutter) return;
  const last = Math.max(line.model.latest, line.source.now() || 0);
  line.travel(Math.min(last, Math.max(0, line.x.invert(event.offsetX))));
}

class Lanes {
  constructor(line) {
    Object.assign(this, { line, pointers: new Map(), moved: false });
    const { over } = line;
    over.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    over.addEventListener("pointerdown", (event) => this.press(event));
    over.addEventListener("pointermove", (event) => this.move(event));
    for (const end of ["pointerup", "pointercancel"]) over.addEventListener(end, (event) => this.lift(event));
    over.addEventListener("pointerleave", () => this.hover(-1));
    over.addEventListener("dblclick", (event) => {
      const i = this.nodeUnder(event);
      if (i >= 0) line.fitTo(i);
    });
    window.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || !line.area) return;
      event.stopImmediatePropagation();
      this.choose(null);
    }, true);
  }

  nodeUnder(event) {
    const { line } = this;
    return line.scene ? nodeAt(line.scene, line.view, line.size, event.offsetX, event.offsetY) : -1;
  }

  wheel(event) {
    const { line } = this;
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      line.zoom(Math.exp(Math.max(-60, Math.min(60, event.deltaY)) * 0.006), line.x.invert(event.offsetX));
    } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      event.preventDefault();
      line.pan((event.deltaX || event.deltaY) / line.clientWidth);
    }
  }

  press(event) {
    const { line } = this;
    this.pointers.set(event.pointerId, event);
    this.moved = false;
    this.anchor = event.shiftKey && event.button === 0 && event.offsetX >= line.size.gutter ? line.x.invert(event.offsetX) : NaN;
    if (event.pointerType !== "touch") line.over.setPointerCapture(event.pointerId);
  }

  move(event) {
    const { line } = this;
    const before = this.pointers.get(event.pointerId);
    if (!before) {
      this.hover(this.nodeUnder(event), event);
      return;
    }
    const { x } = line;
    const by = event.clientX - before.clientX;
    if (this.pointers.size === 2) {
      const other = [...this.pointers.values()].find((p) => p.pointerId !== event.pointerId);
      const [old, now] = [Math.abs(before.clientX - other.clientX), Math.abs(event.clientX - other.clientX)];
      if (old > 10 && now > 10) line.zoom(old / now, x.invert((event.offsetX + other.offsetX) / 2));
      this.moved = true;
    } else {
      if (!this.moved && Math.abs(by) < 4) return;
      this.moved = true;
      this.hover(-1);
      if (!Number.isNaN(this.anchor)) {
        const t = Math.max(0, Math.min(x.invert(event.offsetX), line.domain));
        this.choose({ from: Math.min(this.anchor, t), to: Math.max(this.anchor, t) });
        return;
      }
      line.stopFollowing();
      line.shift(-by / x.perSecond);
    }
    this.pointers.set(event.pointerId, event);
  }

  choose(area) {
    this.line.area = area;
    if (!area) this.anchor = NaN;
    if (this.line.scene) this.line.drawHover(this.line.size);
  }

  lift(event) {
    const { line } = this;
    this.pointers.delete(event.pointerId);
    const { area } = line;
    this.choose(null);
    if (area && event.type !== "pointercancel") line.enter(area.from, area.to);
    if (this.moved || event.type === "pointercancel") return;
    const { size } = line;
    const lane = line.rows[Math.floor((event.offsetY + size.top) / size.lane)];
    if (!lane) return;
    const inName = event.offsetX < size.gutter || (!size.gutter && (event.offsetY + size.top) % size.lane < 16);
    if (inName && lane.fold && event.offsetX < gutterIndent(lane) + 14) {
      line.fold(lane);
      return;
    }
    const i = inName ? (lane.packed ? -1 : lane.items[0]) : this.nodeUnder(event);
    if (i >= 0) line.dispatchEvent(new CustomEvent("relay:select", { bubbles: true, detail: { node: i } }));
  }

  hover(i, event) {
    const { line } = this;
    if (line.hovered !== i) {
      line.hovered = i;
      if (line.scene) line.drawHover(line.size);
    }
    line.over.style.cursor = i >= 0 ? "pointer" : event?.shiftKey ? "crosshair" : "";
    line.tip.hidden = i < 0;
    if (i < 0) return;
    line.tip.replaceChildren(...tip(line.model, i, line.source.now()).map((said, k) => {
      const p = document.createElement("p");
      p.textContent = said;
      if (!k) p.className = "strong";
      return p;
    }));
    const box = line.getBoundingClientRect();
    const below = event.clientY - box.top + 16;
    line.tip.style.left = `${Math.max(4, Math.min(event.clientX - box.left + 12, box.width - line.tip.offsetWidth - 8))}px`;
    line.tip.style.top = `${below + line.tip.offsetHeight > box.height ? below - line.tip.offsetHeight - 28 : below}px`;
  }
}

/** A press on the minimap: move an edge of the view, all of it, or draw a new one. */
function brush(line, down) {
  const { mini } = line;
  const { width } = mini.getBoundingClientRect();
  const x = miniScale(line.domain, width);
  const part = brushPart(line.view, line.domain, width, down.offsetX);
  const origin = { ...line.view };
  const anchor = x.invert(down.offsetX);
  mini.setPointerCapture(down.pointerId);
  line.stopFollowing();
  let moved = false;
  const move = (event) => {
    const t = x.invert(event.offsetX);
    if (!moved && Math.abs(event.offsetX - down.offsetX) < 3) return;
    moved = true;
    if (part === "from") line.look(Math.min(t, origin.to - SHORTEST), origin.to);
    else if (part === "to") line.look(origin.from, Math.max(t, origin.from + SHORTEST));
    else if (part === "both") line.look(origin.from + t - anchor, origin.to + t - anchor);
    else line.look(Math.min(anchor, t), Math.max(anchor, t));
  };
  mini.addEventListener("pointermove", move);
  mini.addEventListener("pointerup", () => {
    mini.removeEventListener("pointermove", move);
    if (moved || part !== "new") return;
    const half = (origin.to - origin.from) / 2;
    line.look(anchor - half, anchor + half);
  }, { once: true });
}
