// <relay-timeline>: minimap, axis and lanes on canvas. Holds view and pointer; layout and drawing are pure, in their own files.
import { clock } from "../format.js";
import { context2d, onThemeChange, readPalette } from "../palette.js";
import { drawAxis } from "./axis.js";
import { drawLanes } from "./drawing.js";
import { STRAIGHT, idle, pressed } from "./gaps.js";
import { drawArea } from "./area.js";
import { gestures } from "./gestures.js";
import { layout } from "./lanes.js";
import { MINI, drawBrush, drawMiniature } from "./minimap.js";
import { LLM, RUNNING } from "./model.js";
import { rowsInView, timeScale } from "./plane.js";
import { SHORTEST, lowerBound } from "./shapes.js";

const calm = matchMedia("(prefers-reduced-motion: reduce)");
const PAST = 20; // views that can be gone back to
const STREAM_WIDTH = 24; // px from which a bar shows its chunks

class RelayTimeline extends HTMLElement {
  /** @param model TurnModel @param {{now: () => number, load: (nodes: number[]) => void}} source now in seconds, NaN when all is over */
  bind(model, source) {
    Object.assign(this, { model, source, folds: new Map(), view: { from: 0, to: 1 }, selected: -1, hovered: -1, follow: false, fitted: true, at: NaN, warp: STRAIGHT, gaps: [], press: false, past: [], area: null });
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
    gestures(this);
    this.relay();
    setInterval(() => this.grow(), calm.matches ? 1000 : 100);
  }

  get domain() {
    const now = this.source.now();
    const last = Math.max(this.model.latest, Number.isNaN(now) ? 0 : now);
    return Math.max(last * 1.015, 0.001);
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
    Object.assign(this, { rows: lanes, laneOf, gaps: idle(this.model) });
    this.warp = this.press ? pressed(this.gaps, this.domain) : STRAIGHT;
    this.picture = null;
    this.dirty();
  }

  /** The lanes as the data is now, not as it was drawn last. */
  settleLanes() {
    if (this.relaying) this.relay();
  }

  /** Presses the time in which nothing worked together, or lets it have its length again. */
  compress(on) {
    this.press = on;
    this.relay();
  }

  get x() {
    return timeScale(this.view, this.size, this.warp);
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
    this.settleLanes();
    if (!this.clientWidth) return;
    this.settle();
    const size = this.size;
    this.spacer.style.height = `${Math.max(0, size.full - size.height)}px`;
    this.window.style.height = `${size.height}px`;
    const now = this.source.now();
    this.scene = { model: this.model, lanes: this.rows, laneOf: this.laneOf, now, selected: this.selected, chosen: this.rowOf(this.selected), at: this.at, warp: this.warp };
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
      const { drawn, real } = this.warp;
      const length = drawn(this.view.to) - drawn(this.view.from);
      const to = this.source.now() + length * 0.03;
      if (to > this.view.to || this.view.to - to > length * 0.5) this.view = { from: real(drawn(to) - length), to };
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
    if (this.area) drawArea(ctx, this.scene, this.area, this.x, size, this.palette);
    const row = this.rowOf(this.hovered);
    if (row < 0 || this.hovered === this.selected) return;
    const { x } = this;
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
      const least = STREAM_WIDTH / this.x.perSecond;
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
    const { drawn, real } = this.warp;
    const [from, middle, to] = [this.view.from, at, this.view.to].map(drawn);
    this.look(real(middle - (middle - from) * factor), real(middle + (to - middle) * factor));
  }

  /** Moves the view by seconds of the axis, pressed or not, no further than the turn. */
  shift(by) {
    const { drawn, real } = this.warp;
    const [from, to, end] = [this.view.from, this.view.to, this.domain].map(drawn);
    const kept = Math.max(-from, Math.min(by, end - to));
    this.look(real(from + kept), real(to + kept));
  }

  /** Goes into a stretch of time; `back` comes out again. */
  enter(from, to) {
    this.past = [...this.past, this.fitted ? null : this.view].slice(-PAST);
    this.stopFollowing();
    this.look(from, to);
  }

  back() {
    const before = this.past.pop();
    if (before) this.look(before.from, before.to);
    else this.fit();
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
    this.stopFollowing();
    this.shift((this.warp.drawn(this.view.to) - this.warp.drawn(this.view.from)) * share);
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
    this.enter(from - margin, to + margin);
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

  /** Shows a moment, NaN for none. */
  travel(t) {
    this.at = t;
    this.dirty();
    this.dispatchEvent(new CustomEvent("relay:travel", { bubbles: true, detail: { t } }));
  }

  /** What is in view, in words, for those who do not see the canvas. */
  say() {
    return `Timeline of the turn from ${clock(this.view.from, 0.01)} to ${clock(this.view.to, 0.01)}. The same spans are in the tree and in the table.`;
  }
}
customElements.define("relay-timeline", RelayTimeline);
