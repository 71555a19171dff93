// The names of the lanes: left of them, or above them on phones. Pure.
import { KINDS } from "./model.js";
import { fitted, font, textWidth } from "./shapes.js";

/** On phones the name of a lane stands above its bars. */
export function overline({ ctx, size, palette }, lane, above) {
  const top = above + 9;
  ctx.textBaseline = "middle";
  ctx.textAlign = "left";
  const face = font(palette, 500);
  const left = 8 + Math.min(lane.depth, 4) * 6;
  const title = fitted(ctx, face, lane.name, size.width * 0.5);
  ctx.font = face;
  ctx.fillStyle = palette["text-2"];
  ctx.fillText(title, left, top);
  const used = textWidth(ctx, face, title);
  ctx.font = font(palette);
  ctx.fillStyle = palette["text-3"];
  ctx.fillText(fitted(ctx, font(palette), lane.note, size.width - left - used - 20), left + used + 6, top);
}

export const gutterIndent = (lane) => 12 + Math.min(lane.depth, 5) * 14;

export function laneName({ ctx, size, palette }, lane, mid) {
  let left = gutterIndent(lane);
  if (lane.fold) {
    ctx.strokeStyle = palette["text-3"];
    ctx.lineWidth = 1.3;
    ctx.beginPath();
    const turned = lane.fold === "open" ? [[0, -2], [3.5, 1.5], [7, -2]] : [[2, -3.5], [5.5, 0], [2, 3.5]];
    turned.forEach(([dx, dy], k) => (k ? ctx.lineTo(left + dx, mid + dy) : ctx.moveTo(left + dx, mid + dy)));
    ctx.stroke();
  }
  if (!lane.name) return;
  left += 12;
  ctx.fillStyle = palette[KINDS[lane.kind]];
  ctx.fillRect(left, mid - 5, 3, 10);
  left += 9;
  ctx.textAlign = "left";
  ctx.textBaseline = "middle";
  const face = font(palette, lane.fold || lane.depth === 0 ? 500 : 400, 12);
  const title = fitted(ctx, face, lane.name, size.gutter - left - 8);
  const used = textWidth(ctx, face, title);
  ctx.font = face;
  ctx.fillStyle = lane.depth > 1 ? palette["text-2"] : palette.text;
  ctx.fillText(title, left, mid);
  const note = lane.note ? fitted(ctx, font(palette), lane.note, size.gutter - left - used - 14) : "";
  ctx.font = font(palette);
  ctx.fillStyle = palette["text-3"];
  if (note) ctx.fillText(note, left + used + 6, mid);
}
