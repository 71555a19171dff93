// <relay-strip data-attempt="uuid">: one attempt's stream, a tick per chunk. The page gives it the stream.
import { clock, span } from "../format.js";
import { context2d, onThemeChange, readPalette } from "../palette.js";
import { CHUNK_KINDS, quantile, stalls } from "./model.js";
import { scale, stallBand, textWidth, ticks } from "./shapes.js";

const HEIGHT = 46;
const AXIS = 14;

/**
 * The large strip: height is the size of the chunk, colour its kind; stalls are shaded and named. Pure.
 * @param stream {t, k, n, count, start, end, ttft} in seconds; ttft NaN when unknown
 * @param at seconds up to which it is replayed; what comes later is pale
 */
export function drawStrip(ctx, stream, size, palette, at = Infinity) {
  const end = Math.max(stream.end, stream.count ? stream.t[stream.count - 1] : 0, stream.start + 1e-6);
  const x = scale({ from: stream.start, to: end }, 0, size.width);
  const floor = size.height - AXIS;
  const face = `400 11px ${palette.font}`;
  ctx.font = face;
  ctx.textBaseline = "middle";
  const first = Number.isNaN(stream.ttft) ? 0 : x(stream.start + stream.ttft);
  waiting(ctx, stream, first, floor, palette, face);
  for (const [from, to] of stalls(stream)) {
    stallBand(ctx, x(from), x(to), 0, floor, palette);
    ctx.fillStyle = palette.text;
    ctx.textAlign = "center";
    const text = `stall ${span(to - from)}`;
    if (textWidth(ctx, face, text) < x(to) - x(from) - 6) ctx.fillText(text, (x(from) + x(to)) / 2, floor / 2 + 1);
  }
  columns(ctx, stream, x, size, floor, palette, at);
  ctx.fillStyle = palette["line-2"];
  ctx.fillRect(0, floor, size.width, 1);
  if (first > 0) {
    ctx.fillStyle = palette.text;
    ctx.fillRect(first - 1, 0, 1.5, floor);
  }
  if (at < end) {
    ctx.fillStyle = palette.accent;
    ctx.fillRect(Math.round(x(at)), 0, 1.5, floor);
  }
  axis(ctx, stream, x, end, size, palette);
}

/** What is known of the rhythm of a stream so far, as the server says it of an ended one: pairs of name and seconds. Pure. */
export function rhythm({ t, count, ttft }) {
  const gaps = Float64Array.from({ length: Math.max(0, count - 1) }, (_, k) => t[k + 1] - t[k]);
  const shares = [["gap p50", 0.5], ["p95", 0.95], ["max", 1]];
  return [["TTFT", ttft], ...shares.map(([name, share]) => [name, quantile(gaps, share)])].filter(([, seconds]) => !Number.isNaN(seconds));
}

function waiting(ctx, stream, first, floor, palette, face) {
  if (first <= 0) return;
  ctx.fillStyle = palette["surface-3"];
  ctx.globalAlpha = 0.6;
  ctx.fillRect(0, 0, first, floor);
  ctx.globalAlpha = 1;
  ctx.fillStyle = palette["text-3"];
  ctx.textAlign = "left";
  const wait = `TTFT ${span(stream.ttft)}`;
  if (textWidth(ctx, face, wait) < first - 8) ctx.fillText(wait, 6, floor / 2);
}

/** One column a pixel and a quarter: in a dense stream the largest chunk of a pixel stands for its neighbours. */
function columns(ctx, stream, x, size, floor, palette, at) {
  let most = 1;
  for (let k = 0; k < stream.count; k += 1) if (stream.n[k] > most) most = stream.n[k];
  for (let k = 0; k < stream.count;) {
    const px = Math.floor(x(stream.t[k]));
    let largest = stream.n[k];
    const head = k;
    for (k += 1; k < stream.count && Math.floor(x(stream.t[k])) === px; k += 1) if (stream.n[k] > largest) largest = stream.n[k];
    const tall = 6 + (floor - 8) * Math.sqrt(largest / most);
    ctx.globalAlpha = stream.t[head] > at ? 0.22 : 1;
    ctx.fillStyle = palette[CHUNK_KINDS[stream.k[head]]];
    ctx.fillRect(Math.min(px, size.width - 1.25), floor - tall, 1.25, tall);
  }
  ctx.globalAlpha = 1;
}

function axis(ctx, stream, x, end, size, palette) {
  const { list, step } = ticks(0, end - stream.start, size.width, 90);
  ctx.fillStyle = palette["text-3"];
  for (const t of list) {
    const px = x(stream.start + t);
    ctx.textAlign = t === 0 ? "left" : px > size.width - 24 ? "right" : "center";
    ctx.fillText(t ? `+${clock(t, step)}` : "0", px, size.height - 5);
  }
}

const Base = globalThis.HTMLElement ?? Object; // pure parts are also loaded where there is no DOM
class RelayStrip extends Base {
  connectedCallback() {
    if (this.canvas) return;
    this.canvas = document.createElement("canvas");
    this.append(this.canvas);
    const draw = () => this.draw();
    onThemeChange(draw);
    new ResizeObserver(draw).observe(this);
  }

  /** @param stream as drawStrip takes it */
  show(stream, at = Infinity) {
    this.stream = stream;
    this.at = at;
    this.draw();
  }

  draw() {
    if (!this.stream || !this.clientWidth) return;
    const size = { width: this.clientWidth, height: HEIGHT };
    drawStrip(context2d(this.canvas, size.width, size.height), this.stream, size, readPalette(this), this.at);
  }
}
if (globalThis.customElements) customElements.define("relay-strip", RelayStrip);
