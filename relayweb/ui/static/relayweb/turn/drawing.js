// Draws the lanes of a turn. Pure: model, lanes and colours in, pixels out; work is bounded by pixels, not by spans.
import { span } from "../format.js";
import { laneName, overline } from "./gutter.js";
import { drawLabels, hedge, inside, label, labelRoom } from "./labels.js";
import { BLOCKED, CANCELLED, FAILED, INTERRUPTED, KINDS, LLM, RUNNING, SCOPE, STATUSES, TOOL, stalls } from "./model.js";
import { bounds, laneTop, rowsInView, timeScale } from "./plane.js";
import { axisTicks, barcode, box, cross, diamond, font, hatch, lowerBound, octagon, stallBand, textWidth } from "./shapes.js";
import { beside } from "./words.js";

const THIN = 3; // px: below it a span is a tick
const SLIM = 14; // px: below it a span is a plain box

/**
 * @param ctx CanvasRenderingContext2D in CSS pixels
 * @param scene {model, lanes, laneOf, now, selected, warp}: now in seconds, NaN when nothing runs; selected a node or -1; warp of gaps.js
 * @param view {from, to} in seconds
 * @param size {width, height, top, gutter, lane} in CSS pixels; top is what is scrolled away
 */
export function drawLanes(ctx, scene, view, size, palette) {
  const frame = { ctx, scene, view, size, palette, edge: bounds(size), x: timeScale(view, size, scene.warp), narrow: size.gutter === 0 };
  const [first, last] = rowsInView(scene.lanes, size);
  groups(frame, first, last);
  chosenRow(frame, 0.75, size.gutter, size.width);
  folds(frame);
  const { list } = axisTicks(view, frame.edge.right - frame.edge.left, scene.warp);
  ctx.fillStyle = palette.line;
  for (const t of list) ctx.fillRect(Math.round(frame.x(t)), 0, 1, size.height);
  for (let row = first; row < last; row += 1) drawLane(frame, scene.lanes[row], row);
  nowLine(frame);
  if (frame.narrow) for (let row = first; row < last; row += 1) overline(frame, scene.lanes[row], laneTop(row, size));
  else gutter(frame, first, last);
}

/** Where time is pressed together: a column with dashed edges. */
function folds({ ctx, scene, view, size, palette, x, edge }) {
  for (const [from, to] of scene.warp?.gaps ?? []) {
    if (to < view.from || from > view.to) continue;
    const left = Math.max(Math.round(x(from)) + 0.5, edge.left);
    const right = Math.min(Math.round(x(to)) - 0.5, edge.right);
    ctx.globalAlpha = 0.6;
    ctx.fillStyle = palette["surface-3"];
    ctx.fillRect(left, 0, right - left, size.height);
    ctx.globalAlpha = 1;
    ctx.strokeStyle = palette["line-2"];
    ctx.setLineDash([2, 3]);
    ctx.beginPath();
    for (const px of [left, right]) {
      ctx.moveTo(px, 0);
      ctx.lineTo(px, size.height);
    }
    ctx.stroke();
    ctx.setLineDash([]);
  }
}

function chosenRow({ ctx, scene, size, palette }, alpha, left, right) {
  const row = scene.chosen ?? -1;
  if (row < 0) return;
  ctx.globalAlpha = alpha;
  ctx.fillStyle = palette.select;
  ctx.fillRect(left, laneTop(row, size), right - left, size.lane);
  ctx.globalAlpha = 1;
}

/** Tints behind what belongs together. */
function groups({ ctx, scene, size, palette, x }, first, last) {
  const { lanes, model, now } = scene;
  for (let row = 0; row < last; row += 1) {
    const lane = lanes[row];
    if (!lane.group) continue;
    let rows = 1;
    while (lanes[row + rows]?.depth > lane.depth) rows += 1;
    if (row + rows < first) continue;
    const left = Math.max(x(lane.group.start) - 4, size.gutter);
    const right = Math.min(x(model.endOr(lane.group.node, now)) + 4, size.width);
    if (right <= left) continue;
    ctx.globalAlpha = 0.07;
    ctx.fillStyle = palette[KINDS[lane.group.kind]];
    box(ctx, left, laneTop(row, size) + 2, right - left, rows * size.lane - 4, 4);
    ctx.fill();
    ctx.globalAlpha = 1;
  }
}

function drawLane(frame, lane, row) {
  const { scene, view, size, x, edge, narrow } = frame;
  const { model } = scene;
  const mid = laneTop(row, size) + size.lane / 2 + (narrow ? 8 : 0);
  const labels = [];
  if (lane.backoff) backoff(frame, lane, mid, labels);
  if (lane.leader !== undefined) leader(frame, lane, mid);
  let k = lowerBound(lane.ends, view.from);
  const count = lane.items.length;
  while (k < count && lane.starts[k] <= view.to) {
    const i = lane.items[k];
    const left = x(lane.starts[k]);
    const right = x(model.endOr(i, scene.now));
    if (right < edge.left - 1) {
      k += 1;
      continue;
    }
    if (lane.shape === "container") container(frame, i, left, right, mid, labels);
    else if (model.status[i] === BLOCKED && right - left < SLIM) blocked(frame, i, left, mid, labels);
    else if (right - left < THIN) {
      tick(frame, model, i, left, mid);
      if (!lane.packed && (model.status[i] === FAILED || model.status[i] === INTERRUPTED)) cross(frame.ctx, left + 10, mid, frame.palette[`st-${STATUSES[model.status[i]]}`]);
      const hits = model.col.rewrites[i]?.length && count < 400 ? model.hits(i) : [];
      if (hits.length) diamonds(frame, hits, left, mid, false);
      if (k + 1 >= count || x(lane.starts[k + 1]) - right > 46) label(frame, lane, k, left, left + 2, labels);
      k = lowerBound(lane.starts, x.invert(Math.floor(left) + 1), k + 1, count);
      continue;
    } else bar(frame, lane, k, left, right, mid, labels);
    k += 1;
  }
  if (lane.packed && lane.loud.length) loud(frame, lane, mid);
  if (lane.halves) hedge(frame, lane, labels);
  drawLabels(frame, lane, labels, mid);
}

const WASH = { [LLM]: 0.62, [TOOL]: 0.62 };

/** A span thinner than its own border. */
function tick({ ctx, palette }, model, i, left, mid) {
  const bad = model.status[i] === FAILED || model.status[i] === INTERRUPTED;
  ctx.globalAlpha = bad ? 1 : WASH[model.kind[i]] ?? 0.5;
  ctx.fillStyle = bad ? palette[`st-${STATUSES[model.status[i]]}`] : palette[KINDS[model.kind[i]]];
  ctx.fillRect(Math.floor(left), mid - 8, 2, 16);
  ctx.globalAlpha = 1;
}

/** What went wrong is never hidden by its neighbours: drawn again, on top. */
function loud({ ctx, scene, view, palette, x, edge }, lane, mid) {
  const { model } = scene;
  let lastPixel = -10;
  for (const i of lane.loud) {
    if (model.start[i] > view.to) break;
    const left = x(model.start[i]);
    if (left < edge.left - 2 || left < lastPixel + 2 || x(model.endOr(i, scene.now)) - left >= THIN) continue;
    lastPixel = left;
    ctx.fillStyle = palette[`st-${STATUSES[model.status[i]]}`];
    ctx.fillRect(Math.floor(left), mid - 8, 2, 16);
  }
}

/** Turn, logical call, sub-agent: a thin line with end caps. Structure is thin, work is thick. */
function container(frame, i, from, to, mid, labels) {
  const { ctx, scene, palette, edge } = frame;
  const { model } = scene;
  const left = Math.max(from, edge.left);
  const right = Math.max(Math.min(to, edge.right + 40), left);
  ctx.fillStyle = palette[KINDS[model.kind[i]]];
  ctx.fillRect(left, mid - 1.5, Math.max(right - left, 1), 3);
  if (from >= edge.left) ctx.fillRect(left, mid - 5, 2, 10);
  else arrowhead(ctx, left, mid);
  if (model.status[i] !== RUNNING) ctx.fillRect(right - 2, mid - 5, 2, 10);
  if (model.status[i] !== RUNNING && (model.parent[i] >= 0 || scene.lanes.length < 3)) {
    labels.push({ text: span(model.end[i] - model.start[i]), at: right + 7, left, align: "left", colour: palette["text-2"] });
  }
  ring(frame, i, left, right, mid);
}

function arrowhead(ctx, left, mid) {
  ctx.beginPath();
  ctx.moveTo(left, mid);
  ctx.lineTo(left + 6, mid - 4.5);
  ctx.lineTo(left + 6, mid + 4.5);
  ctx.fill();
}

function blocked(frame, i, left, mid, labels) {
  octagon(frame.ctx, left, mid, 7, frame.palette);
  const hits = frame.scene.model.hits(i);
  diamonds(frame, hits, left - 6, mid, false);
  labels.push({ text: beside(frame.scene.model, i), at: left + 13, left: left - 10 - hits.length * 9, align: "left", colour: frame.palette["st-blocked"] });
  ring(frame, i, left - 6, left + 6, mid);
}

function ring({ ctx, scene, palette }, i, left, right, mid, half = 8) {
  if (scene.selected !== i) return;
  ctx.strokeStyle = palette.ink;
  ctx.lineWidth = 1.5;
  box(ctx, left - 3, mid - half - 3.5, right - left + 6, half * 2 + 7, 5);
  ctx.stroke();
}

/** Before the bar: a request is rewritten before it leaves. */
function diamonds({ ctx, palette }, hits, left, mid, selected) {
  const shown = hits.slice(0, 6);
  shown.forEach((hit, k) => diamond(ctx, left - 7 - (selected ? 3 : 0) - (shown.length - 1 - k) * 9, mid, 4.5, palette, hit.mode === "shadow" ? "shadow" : "hit"));
}

function bar(frame, lane, k, from, to, middle, labels) {
  const { ctx, scene, palette, edge } = frame;
  const { model } = scene;
  const i = lane.items[k];
  const left = Math.max(from, edge.left - 4);
  const right = Math.max(Math.min(to, edge.right + 40), left + 2);
  const status = model.status[i];
  const failed = status === FAILED || status === INTERRUPTED;
  const quiet = status === CANCELLED || status === BLOCKED;
  const colour = failed || quiet ? palette[`st-${STATUSES[status]}`] : palette[KINDS[model.kind[i]]];
  const height = lane.halves ? 8.5 : 16;
  const mid = lane.halves ? middle - 4.75 + (k % 2) * 9.5 : middle;
  const top = mid - height / 2;
  if (right - left < SLIM) slim(ctx, left, right, top, height, colour, palette);
  else full(frame, i, { left, right, top, height, colour, failed, from, to });
  if (failed && right - left >= 8) {
    ctx.fillStyle = colour;
    ctx.fillRect(right - 3, top, 3, height);
    if (!lane.packed || labelRoom(frame, lane, k, right) > 20) cross(ctx, right + 8, mid, colour);
  }
  ring(frame, i, left, right, mid, height / 2);
  diamonds(frame, model.hits(i), left, mid, scene.selected === i);
  if ((model.kind[i] === TOOL || model.kind[i] === SCOPE) && right - left > 44) inside(frame, lane, k, left, right, labels);
  else label(frame, lane, k, left, right, labels);
}

function slim(ctx, left, right, top, height, colour, palette) {
  ctx.fillStyle = palette.surface;
  ctx.fillRect(left, top, right - left, height);
  ctx.fillStyle = colour;
  ctx.globalAlpha = 0.3;
  ctx.fillRect(left, top, right - left, height);
  ctx.globalAlpha = 0.75;
  ctx.lineWidth = 1;
  ctx.strokeStyle = colour;
  ctx.strokeRect(left + 0.5, top + 0.5, Math.max(right - left - 1, 0.5), height - 1);
  ctx.globalAlpha = 1;
}

/** A bar is its own recording: pale until the first token, then a barcode of its chunks. */
function full(frame, i, { left, right, top, height, colour, from, to }) {
  const { ctx, scene, palette, x, edge } = frame;
  const { model } = scene;
  const chunks = model.chunks.get(i);
  const streamed = chunks?.count > 0;
  const open = model.status[i] === RUNNING;
  ctx.save();
  box(ctx, left, top, right - left, height, 3);
  ctx.fillStyle = palette.surface;
  ctx.fill();
  ctx.clip();
  ctx.globalAlpha = streamed || model.col.streaming[i] ? 0.13 : 0.26;
  ctx.fillStyle = colour;
  ctx.fillRect(left, top, right - left, height);
  ctx.globalAlpha = 1;
  if (streamed) {
    for (const [a, b] of stalls(chunks)) {
      if (x(b) < left || x(a) > right) continue;
      ctx.fillStyle = palette.surface;
      ctx.fillRect(x(a), top, x(b) - x(a), height);
      stallBand(ctx, x(a), x(b), top, height, palette);
    }
    barcode(ctx, chunks, x, top + 3, height - 6, palette, { left, right });
  }
  if (open) glow(ctx, left, right, top, height, palette);
  ctx.restore();
  outline(ctx, { left, right, top, height, colour, open, dashed: model.has(i, "late_child") || model.status[i] === CANCELLED });
  const ttft = model.col.ttft_us[i];
  if (ttft !== null && model.kind[i] === LLM && height > 10) firstToken(ctx, Math.round(x(model.start[i] + ttft / 1e6)) - 0.5, Math.max(from, edge.left), Math.min(to, edge.right + 40) + 1, top, height, palette);
}

function glow(ctx, left, right, top, height, palette) {
  const wide = Math.min(28, right - left);
  const light = ctx.createLinearGradient(right - wide, 0, right, 0);
  light.addColorStop(0, "transparent");
  light.addColorStop(1, palette["st-running"]);
  ctx.globalAlpha = 0.45;
  ctx.fillStyle = light;
  ctx.fillRect(right - wide, top, wide, height);
}

function outline(ctx, { left, right, top, height, colour, open, dashed }) {
  ctx.strokeStyle = colour;
  ctx.lineWidth = 1;
  ctx.globalAlpha = 0.75;
  if (dashed) ctx.setLineDash([3, 2]);
  if (open) {
    ctx.beginPath();
    ctx.moveTo(right, top + 0.5);
    ctx.lineTo(left + 3, top + 0.5);
    ctx.arcTo(left + 0.5, top + 0.5, left + 0.5, top + 3, 3);
    ctx.lineTo(left + 0.5, top + height - 3);
    ctx.arcTo(left + 0.5, top + height - 0.5, left + 3, top + height - 0.5, 3);
    ctx.lineTo(right, top + height - 0.5);
  } else box(ctx, left + 0.5, top + 0.5, right - left - 1, height - 1, 3);
  ctx.stroke();
  ctx.setLineDash([]);
  ctx.globalAlpha = 1;
}

function firstToken(ctx, px, from, to, top, height, palette) {
  if (px <= from || px >= to) return;
  ctx.fillStyle = palette.text;
  ctx.fillRect(px, top - 2, 1, height + 4);
  ctx.beginPath();
  ctx.moveTo(px - 2, top - 3);
  ctx.lineTo(px + 3, top - 3);
  ctx.lineTo(px + 0.5, top + 0.5);
  ctx.fill();
}

function backoff({ ctx, scene, palette, x, size, narrow, edge }, lane, mid, labels) {
  const from = x(lane.backoff[0]);
  const to = x(lane.backoff[1]);
  if (to < edge.left || from > edge.right) return;
  ctx.strokeStyle = palette["hatch-ink"];
  ctx.lineWidth = 1;
  ctx.beginPath();
  ctx.moveTo(Math.round(from) + 0.5, mid - size.lane + 8);
  ctx.lineTo(Math.round(from) + 0.5, mid);
  ctx.stroke();
  hatch(ctx, from, mid - 4, to - from - 1, 8, palette);
  const text = `back-off ${span(lane.backoff[1] - lane.backoff[0])}`;
  // The ◆ of the attempt reach over the end of the gap.
  const signs = scene.model.hits(lane.items[0]).length * 9 + 4;
  if (textWidth(ctx, font(palette, 400, 10), text) < to - from - signs - 30) labels.push({ text, at: (from + to) / 2 - 6, align: "center", colour: palette["text-2"], halo: true, size: 10 });
  else if (!narrow) {
    labels.push({ text, at: Math.min(from - 5, to - signs - 6), align: "right", colour: palette["text-3"], size: 10.5 });
  }
}

/** A late child hangs by a thread from the end of its parent. */
function leader({ ctx, palette, x, edge }, lane, mid) {
  const from = Math.max(x(lane.leader), edge.left);
  ctx.strokeStyle = palette["text-3"];
  ctx.setLineDash([2, 3]);
  ctx.beginPath();
  ctx.moveTo(from, mid + 0.5);
  ctx.lineTo(x(lane.starts[0]) - 2, mid + 0.5);
  ctx.stroke();
  ctx.setLineDash([]);
  ctx.beginPath();
  ctx.arc(from, mid + 0.5, 2, 0, 7);
  ctx.fillStyle = palette["text-3"];
  ctx.fill();
}

function nowLine({ ctx, scene, size, palette, x }) {
  const then = Math.round(x(scene.at ?? NaN));
  if (then >= size.gutter && then < size.width) {
    ctx.fillStyle = palette.ink;
    ctx.fillRect(then, 0, 1, size.height);
  }
  const px = Math.round(x(scene.now));
  if (!(px >= size.gutter && px < size.width)) return;
  ctx.fillStyle = palette.accent;
  ctx.fillRect(px, 0, 1, size.height);
}

function gutter(frame, first, last) {
  const { ctx, scene, size, palette } = frame;
  ctx.fillStyle = palette.surface;
  ctx.fillRect(0, 0, size.gutter, size.height);
  chosenRow(frame, 1, 0, size.gutter);
  ctx.fillStyle = palette.line;
  ctx.fillRect(size.gutter - 1, 0, 1, size.height);
  for (let row = first; row < last; row += 1) laneName(frame, scene.lanes[row], laneTop(row, size) + size.lane / 2 + 0.5);
}
