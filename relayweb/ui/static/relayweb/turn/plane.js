// Where lanes, moments and nodes lie on the canvas. Pure.
import { BLOCKED } from "./model.js";
import { lowerBound, scale } from "./shapes.js";

export const MARGIN = { left: 28, right: 64 }; // two ◆ of a first attempt stand before the beginning

/** Where time runs on a canvas of this size. */
export function bounds(size) {
  const narrow = size.gutter === 0;
  return { left: size.gutter + (narrow ? 8 : MARGIN.left), right: size.width - (narrow ? 8 : MARGIN.right) };
}

export function timeScale(view, size, warp = null) {
  const { left, right } = bounds(size);
  return scale(view, left, right, warp);
}

export const laneTop = (row, size) => row * size.lane - size.top;

export function rowsInView(lanes, size) {
  return [Math.max(0, Math.floor(size.top / size.lane)), Math.min(lanes.length, Math.ceil((size.top + size.height) / size.lane))];
}

/** Which node is under a point, -1 for none; the nearest of the lane within four pixels. */
export function nodeAt(scene, view, size, px, py) {
  const row = Math.floor((py + size.top) / size.lane);
  const lane = scene.lanes[row];
  if (!lane || px < size.gutter) return -1;
  const x = timeScale(view, size, scene.warp);
  let best = -1;
  let nearest = 5;
  for (let k = lowerBound(lane.ends, x.invert(px - 9)); k < lane.items.length && x(lane.starts[k]) <= px + 9; k += 1) {
    const i = lane.items[k];
    const [left, right] = [x(lane.starts[k]), x(scene.model.endOr(i, scene.now))];
    const off = px < left ? left - px : px > right ? px - right : 0;
    const reach = scene.model.status[i] === BLOCKED ? off - 5 : off;
    if (reach < nearest) [best, nearest] = [i, reach];
    if (lane.halves && off <= 0 && (k % 2 === 1) === ((py + size.top) % size.lane > size.lane / 2)) return i;
  }
  return best;
}
