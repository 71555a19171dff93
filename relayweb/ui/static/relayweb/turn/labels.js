// The words beside and inside the bars of a lane, where there is room for them. Pure.
import { span } from "../format.js";
import { BLOCKED, FAILED, INTERRUPTED, OK, RUNNING, STATUSES } from "./model.js";
import { MARGIN } from "./plane.js";
import { fitted, font, textWidth } from "./shapes.js";
import { beside } from "./words.js";

export function inside(frame, lane, k, left, right, labels) {
  const { ctx, scene, palette } = frame;
  const { model } = scene;
  const i = lane.items[k];
  const room = right - left - 12;
  const face = font(palette, 500);
  const text = fitted(ctx, face, model.col.name[i] ?? "", room);
  if (text) labels.push({ text, at: left + 6, align: "left", colour: palette.text, weight: 500 });
  const bad = model.status[i] === FAILED || model.status[i] === INTERRUPTED;
  if (model.status[i] === RUNNING) return;
  const late = lane.leader === undefined ? "" : ` · began ${span(model.start[i] - lane.leader)} after its parent ended`;
  const after = right + (bad ? 16 : 7);
  const said = bad ? beside(model, i) : span(model.end[i] - model.start[i]) + late;
  labels.push({ text: said, at: after, left, align: "left", colour: bad ? palette["st-failed"] : palette["text-2"], room: labelRoom(frame, lane, k, after) - 6 });
}

/** Attempts side by side share one label: how long the call took, and which of them won. */
export function hedge({ scene, palette, x }, lane, labels) {
  const { model } = scene;
  const end = Math.max(...[...lane.items].map((i) => model.endOr(i, scene.now)));
  const won = [...lane.items].find((i) => model.status[i] === OK);
  const text = `${span(end - lane.starts[0])}${won === undefined ? "" : ` · #${model.col.attempt[won] ?? "?"} won`}`;
  labels.push({ text, at: x(end) + 7, left: x(lane.starts[0]) - 7, align: "left", colour: palette["text-2"] });
}

export function labelRoom({ x, edge }, lane, k, right) {
  return (k + 1 < lane.items.length ? x(lane.starts[k + 1]) : edge.right + MARGIN.right) - right;
}

export function label(frame, lane, k, left, right, labels) {
  const { scene, palette, edge } = frame;
  const { model } = scene;
  const i = lane.items[k];
  if (lane.halves) return;
  if (right > edge.right + 2 && model.endOr(i, scene.now) > frame.view.to) return;
  if (lane.packed && labelRoom(frame, lane, k, right) < 30) return;
  const text = lane.leader === undefined ? beside(model, i) : `began ${span(model.start[i] - lane.leader)} after its parent ended`;
  if (!text) return;
  const bad = model.status[i] === FAILED || model.status[i] === INTERRUPTED || model.status[i] === BLOCKED;
  const after = right + (bad ? 16 : 7);
  labels.push({ text, at: after, left: left - 8 - model.hits(i).length * 9, align: "left", colour: bad ? palette[`st-${STATUSES[model.status[i]]}`] : palette["text-2"], room: labelRoom(frame, lane, k, after) - 8 - nextSigns(model, lane, k) });
}

const nextSigns = (model, lane, k) => (k + 1 < lane.items.length ? model.hits(lane.items[k + 1]).length * 9 : 0);

export function drawLabels(frame, lane, labels, mid) {
  const { ctx, scene, size, palette, x } = frame;
  ctx.textBaseline = "middle";
  const line = x(scene.now);
  for (const item of labels) {
    const face = font(palette, item.weight ?? 400, item.size ?? 11);
    const width = textWidth(ctx, face, item.text);
    let { at, align, text } = item;
    if (item.left !== undefined) {
      const stop = Math.min(size.width - 4, at < line - 4 ? line - 4 : Infinity);
      const room = Math.min(item.room ?? Infinity, stop - at);
      const brief = text.split(" · ")[0];
      if (width > room) {
        if (!lane.packed && !lane.backoff && lane.leader === undefined && item.left - width > size.gutter + 4) [at, align] = [item.left, "right"];
        else if (textWidth(ctx, face, brief) <= room) text = brief;
        else text = room > 60 ? fitted(ctx, face, text, room) : "";
      }
    }
    if (!text || (align === "right" && at - width < size.gutter + 4)) continue;
    ctx.font = face;
    ctx.textAlign = align;
    if (item.halo) {
      ctx.fillStyle = palette["hatch-bg"];
      ctx.fillRect(at - width / 2 - 3, mid - 6, width + 6, 12);
    }
    ctx.fillStyle = item.colour;
    ctx.fillText(text, at, mid + 0.5);
  }
}
