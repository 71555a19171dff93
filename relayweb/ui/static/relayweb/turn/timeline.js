// <relay-timeline>: minimap, axis and lanes on canvas. Holds view and pointer; layout and drawing are pure, in their own files.
import { clock } from "../format.js";
import { context2d, onThemeChange, readPalette } from "../palette.js";
import { drawAxis, drawLanes, gutterIndent, nodeAt, rowsInView, timeScale } from "./drawing.js";
import { layout } from "./lanes.js";
import { MINI, brushPart, drawBrush, drawMiniature, miniScale } from "./minimap.js";
import { LLM, RUNNING } from "./model.js";
import { lowerBound } from "./shapes.js";
import { tip } from "./words.js";

const calm = matchMedia("(prefers-reduced-motion: reduce)");
const SHORTEST = 2e-5; // s: the closest zoom
const STREAM_WIDTH = 24; // px from which a bar shows its chunks

class RelayTimeline extends HTMLElement {
  /** @param model TurnModel @param {{now: () => number, load: (nodes: number[]) => void}} source now in seconds, NaN when all is over */
  bind(model, source) {
    Object.assign(this, { model, source, folds: new Map(), view: { from: 0, to: 1 }, selected: -1, hovered: -1, follow: false, fitted: true, at: NaN });
    this.tabIndex = 0;
    for (const part of ["mini", "axis", "lanes", "over"]) {
      this[part] = document.createElement("canvas");
      this[part].className = `tl-${part}`;
      this[part].setAttribute("aria-hidden", "true");
    }
    this.scroller = document.createElement("div");
    this.scroller.className = "tl-scroll";
    this.spacer = document.createElement("div");
    this.spacer.className = "tl-space";
    this.window = document.createElement("div");
    this.window.className = "tl-window";
    this.window.append(this.lanes, this.over);
    this.scroller.append(this.window, this.spacer);
    this.tip = document.createElement("div");
    this.tip.className = "tip";
    this.tip.hidden = true;
    this.append(this.mini, this.axis, this.scroller, this.tip);
    this.palette = readPalette(this);
    onThemeChange(() => {
      this.palette = readPalette(this);
      this.picture = null;
      this.dirty();
    });
    new ResizeObserver(() => {
      this.picture = null;
      this.dirty();
    }).observe(this);
    this.scroller.addEventListener("scroll", () => this.dirty());
    this.listen();
    this.relay();
    setInterval(() => this.grow(), calm.matches ? 1000 : 100);
  }

  get domain() {
    const now = this.source.now();
    const last = Math.max(this.model.latest, Number.isNaN(now) ? 0 : now);
    return Math.max(last * 1.015, 0.01);
  }

  /** Called after each frame of data. */
  update({ shape }) {
    if (shape) this.relaying = true;
    this.picture = null;
    this.dirty();
  }

  relay() {
    this.relaying = false;
    const { lanes, laneOf } = layout(this.model, this.folds);
    Object.assign(this, { rows: lanes, laneOf });
    this.picture = null;
    this.dirty();
  }

  /** While something runs its bar grows; nothing is drawn when nobody looks or nothing runs. */
  grow() {
    if (document.hidden || Number.isNaN(this.source.now())) return;
    this.dirty();
  }

  dirty() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.draw();
    });
  }

  get size() {
    const width = this.clientWidth;
    const narrow = width < 480;
    const lane = narrow ? 38 : 24;
    // On a phone the page scrolls, not the pane; the window then holds all lanes up to what a canvas may.
    const full = this.rows.length * lane;
    const free = getComputedStyle(this.scroller).overflowY === "hidden";
    const height = free ? Math.min(full, 6000) : Math.min(this.scroller.clientHeight || 240, Math.max(full, 1));
    return { width, lane, gutter: narrow ? 0 : 176, top: free ? 0 : this.scroller.scrollTop, height, full: free ? Math.min(full, 6000) : full };
  }

  draw() {
    if (this.relaying) this.relay();
    if (!this.clientWidth) return;
    this.settle();
    const size = this.size;
    this.spacer.style.height = `${Math.max(0, size.full - size.height)}px`;
    this.window.style.height = `${size.height}px`;
    const now = this.source.now();
    this.scene = { model: this.model, lanes: this.rows, laneOf: this.laneOf, now, selected: this.selected, chosen: this.rowOf(this.selected), at: this.at };
    drawLanes(context2d(this.lanes, size.width, size.height), this.scene, this.view, size, this.palette);
    drawAxis(context2d(this.axis, size.width, 22), this.scene, this.view, size, this.palette);
    this.drawMini(size.width);
    this.drawHover(size);
    this.wish(size);
  }

  /** Keeps the view at now while following, at the whole while fitted, and always inside the turn. */
  settle() {
    const { domain } = this;
    if (this.fitted) this.view = { from: 0, to: domain };
    else if (this.follow && !Number.isNaN(this.source.now())) {
      const length = this.view.to - this.view.from;
      const to = this.source.now() + length * 0.03;
      if (to > this.view.to || this.view.to - to > length * 0.5) this.view = { from: to - length, to };
    }
  }

  drawMini(width) {
    const now = performance.now();
    if (!this.picture || this.picture.width !== width || (this.model.running && now - this.picture.at > 500)) {
      const canvas = this.picture?.canvas ?? document.createElement("canvas");
      drawMiniature(context2d(canvas, width, MINI.height), this.scene, this.domain, width, this.palette);
      this.picture = { canvas, width, at: now };
    }
    const ctx = context2d(this.mini, width, MINI.height);
    ctx.drawImage(this.picture.canvas, 0, 0, width, MINI.height);
    drawBrush(ctx, this.view, this.domain, width, this.palette);
  }

  drawHover(size) {
    const ctx = context2d(this.over, size.width, size.height);
    const row = this.rowOf(this.hovered);
    if (row < 0 || this.hovered === this.selected) return;
    const x = timeScale(this.view, size);
    const left = Math.max(x(this.model.start[this.hovered]), size.gutter);
    const right = Math.min(x(this.model.endOr(this.hovered, this.source.now())), size.width);
    const mid = row * size.lane - size.top + size.lane / 2 + (size.gutter ? 0 : 8);
    ctx.strokeStyle = this.palette["text-3"];
    ctx.lineWidth = 1;
    ctx.beginPath();
    ctx.roundRect(left - 2.5, mid - 10.5, Math.max(right - left, 2) + 5, 21, 4);
    ctx.stroke();
  }

  /** The lane that shows a node, or the nearest thing above it that has one. */
  rowOf(i) {
    const { model, laneOf } = this;
    for (let at = i; at >= 0; at = model.parent[at]) {
      if (laneOf[at] >= 0) return laneOf[at];
      for (const kid of model.children(at)) if (laneOf[kid] >= 0 && model.kind[kid] === LLM) return laneOf[kid];
    }
    return -1;
  }

  /** Asks for the chunks of attempts that are wide enough to show them. */
  wish(size) {
    clearTimeout(this.wishing);
    this.wishing = setTimeout(() => {
      const wanted = [];
      const { model, view } = this;
      const least = (STREAM_WIDTH * (view.to - view.from)) / Math.max(size.width - size.gutter, 1);
      const [first, last] = rowsInView(this.rows, size);
      for (let row = first; row < last && wanted.length < 32; row += 1) {
        const lane = this.rows[row];
        if (lane.shape === "container") continue;
        for (let k = lowerBound(lane.ends, view.from); k < lane.items.length && lane.starts[k] <= view.to && wanted.length < 32; k += 1) {
          const i = lane.items[k];
          if (model.kind[i] !== LLM || !model.col.chunk_count[i]) continue;
          const chunks = model.chunks.get(i);
          const lacking = !chunks || chunks.stale || (model.status[i] !== RUNNING && chunks.count < model.col.chunk_count[i]);
          if (lacking && model.endOr(i, this.source.now()) - model.start[i] >= least) wanted.push(i);
        }
      }
      if (wanted.length) this.source.load(wanted);
    }, 60);
  }

  select(i, reveal = true) {
    this.selected = i;
    const row = this.rowOf(i);
    if (reveal && row >= 0) this.scrollTo_(row, i);
    this.dirty();
  }

  scrollTo_(row, i) {
    const size = this.size;
    const top = row * size.lane;
    if (top < this.scroller.scrollTop) this.scroller.scrollTop = top - size.lane;
    else if (top + size.lane > this.scroller.scrollTop + this.scroller.clientHeight) this.scroller.scrollTop = top + 2 * size.lane - this.scroller.clientHeight;
    const { start } = this.model;
    if (this.fitted || this.follow) return; // it is in view already, or will be with the next frame
    if (start[i] > this.view.to || this.model.endOr(i, this.source.now()) < this.view.from) {
      const half = (this.view.to - this.view.from) / 2;
      this.look(start[i] - half, start[i] + half);
    }
  }

  /** Shows a stretch of time, kept inside the turn. */
  look(from, to, by = "reader") {
    const { domain } = this;
    const length = Math.min(Math.max(to - from, SHORTEST), domain);
    const left = Math.max(0, Math.min(from, domain - length));
    this.fitted = length >= domain * 0.999;
    this.view = { from: left, to: left + length };
    if (by === "reader") this.dispatchEvent(new CustomEvent("relay:view", { bubbles: true }));
    this.dirty();
  }

  zoom(factor, at = this.focus()) {
    this.look(at - (at - this.view.from) * factor, at + (this.view.to - at) * factor);
  }

  /** Where keys zoom: at what is selected when it is in view, else in the middle. */
  focus() {
    const { from, to } = this.view;
    const i = this.selected;
    if (this.follow && !Number.isNaN(this.source.now())) return Math.min(to, this.source.now());
    if (i >= 0) {
      const middle = (Math.max(this.model.start[i], from) + Math.min(this.model.endOr(i, this.source.now()), to)) / 2;
      if (middle >= from && middle <= to) return middle;
    }
    return (from + to) / 2;
  }

  pan(share) {
    const by = (this.view.to - this.view.from) * share;
    this.stopFollowing();
    this.look(this.view.from + by, this.view.to + by);
  }

  fit() {
    this.fitted = true;
    this.settle();
    this.dispatchEvent(new CustomEvent("relay:view", { bubbles: true }));
    this.dirty();
  }

  fitTo(i) {
    const [from, to] = [this.model.start[i], this.model.endOr(i, this.source.now())];
    const margin = Math.max((to - from) * 0.15, 0.002);
    this.stopFollowing();
    this.look(from - margin, to + margin);
  }

  stopFollowing() {
    if (!this.follow) return;
    this.follow = false;
    this.dispatchEvent(new CustomEvent("relay:follow", { bubbles: true }));
  }

  fold(lane) {
    this.folds.set(lane.id, lane.fold === "open" ? "closed" : "open");
    this.relay();
  }

  listen() {
    this.pointers = new Map();
    this.over.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    this.over.addEventListener("pointerdown", (event) => this.press(event));
    this.over.addEventListener("pointermove", (event) => this.move(event));
    for (const end of ["pointerup", "pointercancel"]) this.over.addEventListener(end, (event) => this.lift(event));
    this.over.addEventListener("pointerleave", () => this.hover(-1));
    this.over.addEventListener("dblclick", (event) => {
      const i = this.nodeUnder(event);
      if (i >= 0) this.fitTo(i);
    });
    this.mini.addEventListener("pointerdown", (event) => this.brush(event));
    this.mini.addEventListener("pointermove", (event) => {
      if (event.buttons) return;
      const part = brushPart(this.view, this.domain, this.mini.clientWidth, event.offsetX);
      this.mini.style.cursor = { from: "ew-resize", to: "ew-resize", both: "grab", new: "crosshair" }[part];
    });
    this.mini.addEventListener("dblclick", () => this.fit());
    this.axis.addEventListener("pointerdown", (event) => {
      this.axis.setPointerCapture(event.pointerId);
      this.scrub(event);
    });
    this.axis.addEventListener("pointermove", (event) => {
      if (event.buttons === 1) this.scrub(event);
    });
  }

  nodeUnder(event) {
    return this.scene ? nodeAt(this.scene, this.view, this.size, event.offsetX, event.offsetY) : -1;
  }

  wheel(event) {
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      this.zoom(Math.exp(Math.max(-60, Math.min(60, event.deltaY)) * 0.006), timeScale(this.view, this.size).invert(event.offsetX));
    } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      event.preventDefault();
      this.pan((event.deltaX || event.deltaY) / this.clientWidth);
    }
  }

  press(event) {
    this.pointers.set(event.pointerId, event);
    this.moved = false;
    if (event.pointerType !== "touch") this.over.setPointerCapture(event.pointerId);
  }

  move(event) {
    const before = this.pointers.get(event.pointerId);
    if (!before) {
      this.hover(this.nodeUnder(event), event);
      return;
    }
    const x = timeScale(this.view, this.size);
    if (this.pointers.size === 2) {
      const other = [...this.pointers.values()].find((p) => p.pointerId !== event.pointerId);
      const [old, now] = [Math.abs(before.clientX - other.clientX), Math.abs(event.clientX - other.clientX)];
      if (old > 10 && now > 10) this.zoom(old / now, x.invert((event.offsetX + other.offsetX) / 2));
      this.moved = true;
    } else {
      const by = event.clientX - before.clientX;
      if (!this.moved && Math.abs(by) < 4) return;
      this.moved = true;
      this.hover(-1);
      this.stopFollowing();
      this.look(this.view.from - by / x.perSecond, this.view.to - by / x.perSecond);
    }
    this.pointers.set(event.pointerId, event);
  }

  lift(event) {
    this.pointers.delete(event.pointerId);
    if (this.moved || event.type === "pointercancel") return;
    const size = this.size;
    const lane = this.rows[Math.floor((event.offsetY + size.top) / size.lane)];
    if (!lane) return;
    const inName = event.offsetX < size.gutter || (!size.gutter && (event.offsetY + size.top) % size.lane < 16);
    if (inName && lane.fold && event.offsetX < gutterIndent(lane) + 14) {
      this.fold(lane);
      return;
    }
    const i = inName ? (lane.packed ? -1 : lane.items[0]) : this.nodeUnder(event);
    if (i >= 0) this.dispatchEvent(new CustomEvent("relay:select", { bubbles: true, detail: { node: i } }));
  }

  hover(i, event) {
    if (this.hovered !== i) {
      this.hovered = i;
      if (this.scene) this.drawHover(this.size);
      this.over.style.cursor = i >= 0 ? "pointer" : "";
    }
    this.tip.hidden = i < 0;
    if (i < 0) return;
    this.tip.replaceChildren(...tip(this.model, i, this.source.now()).map((line, k) => {
      const p = document.createElement("p");
      p.textContent = line;
      if (!k) p.className = "strong";
      return p;
    }));
    const box = this.getBoundingClientRect();
    const below = event.clientY - box.top + 16;
    this.tip.style.left = `${Math.max(4, Math.min(event.clientX - box.left + 12, box.width - this.tip.offsetWidth - 8))}px`;
    this.tip.style.top = `${below + this.tip.offsetHeight > box.height ? below - this.tip.offsetHeight - 28 : below}px`;
  }

  /** Goes to a moment: the page then shows what was open at it. */
  scrub(event) {
    if (event.offsetX < this.size.gutter) return;
    const last = Math.max(this.model.latest, this.source.now() || 0);
    this.travel(Math.min(last, Math.max(0, timeScale(this.view, this.size).invert(event.offsetX))));
  }

  travel(t) {
    this.at = t;
    this.dirty();
    this.dispatchEvent(new CustomEvent("relay:travel", { bubbles: true, detail: { t } }));
  }

  brush(down) {
    const { width } = this.mini.getBoundingClientRect();
    const x = miniScale(this.domain, width);
    const part = brushPart(this.view, this.domain, width, down.offsetX);
    const origin = { ...this.view };
    const anchor = x.invert(down.offsetX);
    this.mini.setPointerCapture(down.pointerId);
    this.stopFollowing();
    let moved = false;
    const move = (event) => {
      const t = x.invert(event.offsetX);
      if (!moved && Math.abs(event.offsetX - down.offsetX) < 3) return;
      moved = true;
      if (part === "from") this.look(Math.min(t, origin.to - SHORTEST), origin.to);
      else if (part === "to") this.look(origin.from, Math.max(t, origin.from + SHORTEST));
      else if (part === "both") this.look(origin.from + t - anchor, origin.to + t - anchor);
      else this.look(Math.min(anchor, t), Math.max(anchor, t));
    };
    this.mini.addEventListener("pointermove", move);
    this.mini.addEventListener("pointerup", () => {
      this.mini.removeEventListener("pointermove", move);
      if (moved || part !== "new") return;
      const half = (origin.to - origin.from) / 2;
      this.look(anchor - half, anchor + half);
    }, { once: true });
  }

  /** What is in view, in words, for those who do not see the canvas. */
  say() {
    return `Timeline of the turn from ${clock(this.view.from, 0.01)} to ${clock(this.view.to, 0.01)}. The same spans are in the tree and in the table.`;
  }
}
customElements.define("relay-timeline", RelayTimeline);
