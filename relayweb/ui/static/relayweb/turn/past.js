// What was so at a moment. Pure.
import { lowerBound } from "./shapes.js";

/** Nodes that had begun and not ended at t seconds, outermost first. */
export function openAt(model, t, now) {
  const list = [];
  for (const i of model.order) {
    if (model.start[i] > t) break;
    if (model.endOr(i, now) > t) list.push(i);
  }
  return list;
}

/** How many chunks of an attempt had come by t. */
export function chunksBy(chunks, t) {
  return chunks ? lowerBound(chunks.t, t + 1e-9, 0, chunks.count) : 0;
}
