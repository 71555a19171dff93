// The axis above the lanes: round times, what is pressed together, now, and the moment looked at. Pure.
import { clock, span } from "../format.js";
import { timeScale } from "./plane.js";
import { axisTicks, box, font, textWidth } from "./shapes.js";

export function drawAxis(ctx, scene, view, size, palette) {
  const narrow = size.gutter === 0;
  const x = timeScale(view, size, scene.warp);
  const { list, step } = axisTicks(view, size.width - size.gutter, scene.warp);
  const now = x(scene.now);
  ctx.font = font(palette);
  ctx.textBaseline = "middle";
  ctx.textAlign = "left";
  const taken = foldWords(ctx, scene, view, x, size, palette);
  let before = -Infinity;
  for (const t of list) {
    const px = Math.round(x(t));
    ctx.fillStyle = palette["line-2"];
    ctx.fillRect(px, 14, 1, 8);
    const text = clock(t, step);
    const width = textWidth(ctx, font(palette), text);
    if (Math.abs(px + 4 + width / 2 - now) < 48) continue;
    if (px + 4 + width > size.width || px < before || taken.some(([left, right]) => px + 6 + width > left && px < right)) continue;
    before = px + width + 10;
    ctx.fillStyle = palette["text-3"];
    ctx.fillText(text, px + 4, 11);
  }
  if (!Number.isNaN(now)) flag(ctx, `now ${clock(scene.now, 0.1)}`, now, size, palette.accent, palette);
  const then = x(scene.at ?? NaN);
  if (!Number.isNaN(then)) flag(ctx, clock(scene.at, 0.01), then, size, palette.ink, palette);
  if (narrow) return;
  ctx.fillStyle = palette.surface;
  ctx.fillRect(0, 0, size.gutter, 22);
  ctx.fillStyle = palette.line;
  ctx.fillRect(size.gutter - 1, 0, 1, 22);
  ctx.fillStyle = palette["text-3"];
  ctx.font = font(palette);
  ctx.textAlign = "left";
  ctx.fillText("time since the turn began", 12, 11);
}

/** How much time is pressed together at each fold, where there is room; the stretches of the axis that this takes. */
function foldWords(ctx, scene, view, x, size, palette) {
  const taken = [];
  const face = font(palette, 500, 10);
  for (const [from, to] of scene.warp?.gaps ?? []) {
    if (to < view.from || from > view.to) continue;
    const text = span(to - from);
    const half = textWidth(ctx, face, text) / 2;
    const at = (x(from) + x(to)) / 2;
    if (at - half < size.gutter || (taken.length && at - half < taken.at(-1)[1])) continue;
    taken.push([at - half - 4, at + half + 4]);
    ctx.font = face;
    ctx.fillStyle = palette["text-2"];
    ctx.fillText(text, at - half, 11);
  }
  ctx.font = font(palette);
  return taken;
}

/** A time on the axis, in a box as wide as its longest like, so that it does not tremble while it counts. */
function flag(ctx, text, at, size, colour, palette) {
  const face = font(palette, 500);
  const width = textWidth(ctx, face, text.replace(/\d/g, "0")) + 10;
  if (at < size.gutter || at > size.width + width) return;
  const left = Math.min(Math.max(at - width / 2, size.gutter + 2), size.width - width - 2);
  ctx.fillStyle = colour;
  box(ctx, left, 3, width, 16, 3);
  ctx.fill();
  ctx.font = face;
  ctx.textAlign = "left";
  ctx.fillStyle = palette.surface;
  ctx.fillText(text, left + 5, 11.5);
}
