// The signs of the timeline: bar, barcode, hatch, ◆, ⛔ and the rest. Pure: numbers and colours in, pixels out.
import { CHUNK_KINDS } from "./model.js";

export const SHORTEST = 2e-5; // s: the closest zoom

export const font = (palette, weight = 400, px = 11) => `${weight} ${px}px ${palette.font}`;

/** Seconds to CSS pixels. `x.invert` goes back, `x.perSecond` is the slope; a warp (gaps.js) presses gaps together. */
export function scale(view, left, right, warp = null) {
  const bent = warp?.gaps.length > 0;
  const [from, to] = bent ? [warp.drawn(view.from), warp.drawn(view.to)] : [view.from, view.to];
  const perSecond = (right - left) / Math.max(to - from, 1e-9);
  const x = bent ? (t) => left + (warp.drawn(t) - from) * perSecond : (t) => left + (t - from) * perSecond;
  x.invert = bent ? (px) => warp.real(from + (px - left) / perSecond) : (px) => from + (px - left) / perSecond;
  x.perSecond = perSecond;
  return x;
}

const STEPS = [1, 2, 5].flatMap((s) => [1e-6, 1e-5, 1e-4, 1e-3, 0.01, 0.1].map((p) => s * p)).sort((a, b) => a - b)
  .concat([1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400]);

/** Round times at least `gap` pixels apart. */
export function ticks(from, to, width, gap = 84) {
  const rough = (to - from) / Math.max(2, width / gap);
  const step = STEPS.find((s) => s >= rough) ?? Math.ceil(rough / 86400) * 86400;
  const list = [];
  const first = Math.ceil(from / step - 1e-9) + 0; // + 0: no −0
  for (let n = first; n * step <= to + step * 1e-9 && list.length < 200; n += 1) list.push(n * step);
  return { step, list };
}

/** Round times of a view; where gaps are pressed, only those outside them. */
export function axisTicks(view, width, warp = null) {
  const gaps = warp?.gaps.filter(([from, to]) => to > view.from && from < view.to) ?? [];
  if (!gaps.length) return ticks(view.from, view.to, width);
  const { step } = ticks(0, warp.drawn(view.to) - warp.drawn(view.from), width);
  const list = [];
  let from = view.from;
  for (const [start, end] of [...gaps, [view.to, view.to]]) {
    for (let n = Math.ceil(from / step - 1e-9) + 0; n * step <= start && list.length < 400; n += 1) list.push(n * step);
    from = end;
  }
  return { step, list };
}

export function box(ctx, x, y, w, h, r) {
  ctx.beginPath();
  ctx.roundRect(x, y, Math.max(w, 0.5), h, Math.max(0, Math.min(r, w / 2)));
}

export function hatch(ctx, x, y, w, h, palette) {
  if (w <= 1) return;
  ctx.save();
  box(ctx, x, y, w, h, 2);
  ctx.fillStyle = palette["hatch-bg"];
  ctx.fill();
  ctx.clip();
  ctx.strokeStyle = palette["hatch-ink"];
  ctx.lineWidth = 1;
  ctx.beginPath();
  for (let i = x - h; i < x + w; i += 5) {
    ctx.moveTo(i, y + h);
    ctx.lineTo(i + h, y);
  }
  ctx.stroke();
  ctx.restore();
}

export function diamond(ctx, x, y, r, palette, mode = "hit") {
  ctx.beginPath();
  ctx.moveTo(x, y - r);
  ctx.lineTo(x + r, y);
  ctx.lineTo(x, y + r);
  ctx.lineTo(x - r, y);
  ctx.closePath();
  ctx.lineWidth = 2.5;
  ctx.strokeStyle = palette.surface;
  ctx.stroke();
  const hollow = mode !== "hit";
  ctx.fillStyle = hollow ? palette.surface : palette["k-intercept"];
  ctx.fill();
  if (!hollow) return;
  ctx.lineWidth = 1.2;
  ctx.strokeStyle = palette["k-intercept"];
  if (mode === "shadow") ctx.setLineDash([2, 1.5]);
  ctx.stroke();
  ctx.setLineDash([]);
}

const OCTAGON = [[-0.41, -1], [0.41, -1], [1, -0.41], [1, 0.41], [0.41, 1], [-0.41, 1], [-1, 0.41], [-1, -0.41]];

export function octagon(ctx, x, y, r, palette) {
  ctx.beginPath();
  OCTAGON.forEach(([dx, dy], i) => (i ? ctx.lineTo(x + dx * r, y + dy * r) : ctx.moveTo(x + dx * r, y + dy * r)));
  ctx.closePath();
  ctx.fillStyle = palette["st-blocked"];
  ctx.fill();
  ctx.fillStyle = palette.surface;
  ctx.fillRect(x - r * 0.55, y - 1, r * 1.1, 2);
}

export function cross(ctx, x, y, colour) {
  ctx.strokeStyle = colour;
  ctx.lineWidth = 1.8;
  ctx.beginPath();
  ctx.moveTo(x - 3, y - 3);
  ctx.lineTo(x + 3, y + 3);
  ctx.moveTo(x + 3, y - 3);
  ctx.lineTo(x - 3, y + 3);
  ctx.stroke();
}

/** The barcode of a stream: at most one tick every two pixels, so that a dense stream still reads as ticks and stays calm. */
export function barcode(ctx, chunks, x, top, height, palette, clip) {
  let k = lowerBound(chunks.t, x.invert(clip.left), 0, chunks.count);
  let colour = -1;
  while (k < chunks.count) {
    const px = x(chunks.t[k]);
    if (px > clip.right) break;
    const column = Math.round(px / 2) * 2;
    if (colour !== chunks.k[k]) {
      colour = chunks.k[k];
      ctx.fillStyle = palette[CHUNK_KINDS[colour]];
    }
    ctx.fillRect(column, top, 1, height);
    k = lowerBound(chunks.t, x.invert(column + 1), k + 1, chunks.count);
  }
}

export function stallBand(ctx, left, right, top, height, palette) {
  ctx.save();
  ctx.globalAlpha *= 0.17;
  ctx.fillStyle = palette.stall;
  ctx.fillRect(left, top, right - left, height);
  ctx.restore();
  ctx.fillStyle = palette.stall;
  ctx.fillRect(left, top, right - left, 2);
}

/** First index in [from, to) whose value is not below `least`; values ascend. */
export function lowerBound(values, least, from = 0, to = values.length) {
  let low = from;
  let high = to;
  while (low < high) {
    const mid = (low + high) >> 1;
    if (values[mid] < least) low = mid + 1;
    else high = mid;
  }
  return low;
}

const widths = new Map();

/** Width of a text in CSS pixels, remembered: measuring costs more than drawing. */
export function textWidth(ctx, font, text) {
  const key = `${font}|${text}`;
  let width = widths.get(key);
  if (width === undefined) {
    if (widths.size > 4000) widths.clear();
    ctx.font = font;
    width = ctx.measureText(text).width;
    widths.set(key, width);
  }
  return width;
}

/** The text, cut with an ellipsis to the width; empty when not even three letters fit. */
export function fitted(ctx, font, text, room) {
  if (textWidth(ctx, font, text) <= room) return text;
  let low = 0;
  let high = Math.min(text.length, Math.ceil(room / 2));
  while (low < high) {
    const mid = (low + high + 1) >> 1;
    if (textWidth(ctx, font, `${text.slice(0, mid)}…`) <= room) low = mid;
    else high = mid - 1;
  }
  return low > 2 ? `${text.slice(0, low)}…` : "";
}
