// The whole turn in a few pixels, and the brush over it. Pure.
import { BLOCKED, FAILED, INTERRUPTED, KINDS, STATUSES } from "./model.js";
import { box, lowerBound, scale } from "./shapes.js";

export const MINI = { height: 40, inset: 12 };

export const miniScale = (domain, width) => scale({ from: 0, to: domain }, MINI.inset, width - MINI.inset);

/** All spans, a pixel at a time: drawn when data changes, kept as a picture between frames. */
export function drawMiniature(ctx, scene, domain, width, palette) {
  const x = miniScale(domain, width);
  const { model, lanes } = scene;
  const pitch = (MINI.height - 10) / Math.max(lanes.length, 6);
  lanes.forEach((lane, row) => {
    const top = 5 + row * pitch;
    const height = Math.max(Math.min(pitch - 0.5, 3), 1);
    ctx.globalAlpha = lane.shape === "container" ? 0.45 : 0.9;
    ctx.fillStyle = palette[KINDS[lane.shape === "container" ? model.kind[lane.items[0]] : lane.kind]];
    for (let k = 0; k < lane.items.length;) {
      const left = x(lane.starts[k]);
      const width_ = Math.max(x(model.endOr(lane.items[k], scene.now)) - left, 1.5);
      ctx.fillRect(left, top, width_, height);
      k = lowerBound(lane.starts, x.invert(Math.floor(left) + 1), k + 1);
    }
    if (lane.shape !== "container") marks(ctx, lane, model, x, top, height, palette, scene.now);
  });
  ctx.globalAlpha = 1;
}

function marks(ctx, lane, model, x, top, height, palette, now) {
  ctx.globalAlpha = 1;
  let last = -10;
  for (const i of lane.loud) {
    if (model.status[i] !== FAILED && model.status[i] !== BLOCKED && model.status[i] !== INTERRUPTED) continue;
    const left = x(model.start[i]);
    if (left < last + 1) continue;
    last = left;
    ctx.fillStyle = palette[`st-${STATUSES[model.status[i]]}`];
    ctx.fillRect(left, top - 0.5, Math.max(x(model.endOr(i, now)) - left, 2), height + 1);
  }
}

/** What the lanes show: the rest is veiled, the edges have handles. */
export function drawBrush(ctx, view, domain, width, palette) {
  const x = miniScale(domain, width);
  const left = Math.max(x(view.from), 2);
  const right = Math.min(x(view.to), width - 3);
  ctx.fillStyle = palette["surface-2"];
  ctx.globalAlpha = 0.66;
  ctx.fillRect(0, 0, left, MINI.height);
  ctx.fillRect(right, 0, width - right, MINI.height);
  ctx.globalAlpha = 1;
  ctx.strokeStyle = palette.accent;
  ctx.lineWidth = 1;
  ctx.strokeRect(Math.round(left) + 0.5, 1.5, Math.max(Math.round(right - left), 1), MINI.height - 3);
  for (const edge of [left, right]) {
    ctx.fillStyle = palette.accent;
    box(ctx, edge - 2.5, MINI.height / 2 - 8, 6, 16, 2);
    ctx.fill();
    ctx.fillStyle = palette.surface;
    ctx.fillRect(edge - 0.5, MINI.height / 2 - 4, 1, 8);
    ctx.fillRect(edge + 1.2, MINI.height / 2 - 4, 1, 8);
  }
}

/** What a press at px would move: "from", "to", "both", or "new" for a brush of its own. */
export function brushPart(view, domain, width, px) {
  const x = miniScale(domain, width);
  const [left, right] = [x(view.from), x(view.to)];
  if (Math.abs(px - left) <= 6) return "from";
  if (Math.abs(px - right) <= 6) return "to";
  return px > left && px < right && right - left < width - 2 * MINI.inset - 4 ? "both" : "new";
}

