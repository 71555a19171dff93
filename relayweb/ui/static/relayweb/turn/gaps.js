// Time in which nothing worked: back-off, or waiting for somebody. Found in the spans, and pressed together on the axis. Pure.
import { GUARDRAIL, LLM, RUNNING, SCOPE, TOOL } from "./model.js";
import { lowerBound } from "./shapes.js";

const LEAST = 0.2; // s
const SHARE = 0.02; // of the turn: shorter gaps stay as they are
const MOST = 200;
const PRESSED = 0.045; // of the time that stays: what a gap keeps

/** Time as it is: the warp of a timeline that presses nothing. */
export const STRAIGHT = { gaps: [], drawn: (t) => t, real: (t) => t };

/** The longest stretches [from, to] in seconds in which no attempt, no tool and no other innermost scope ran, in order. */
export function idle(model) {
  const gaps = [];
  let until = 0;
  for (const i of model.order) {
    if (!works(model, i)) continue;
    if (model.start[i] > until) gaps.push([until, model.start[i]]);
    until = Math.max(until, Number.isNaN(model.end[i]) ? Infinity : model.end[i]);
  }
  // A turn that still waits has no gap at its end yet: how long it will be is not known.
  if (model.latest > until && !model.running) gaps.push([until, model.latest]);
  const least = Math.max(LEAST, SHARE * model.latest);
  const long = gaps.filter(([from, to]) => to - from >= least);
  return long.sort((a, b) => b[1] - b[0] - (a[1] - a[0])).slice(0, MOST).sort((a, b) => a[0] - b[0]);
}

function works(model, i) {
  const kind = model.kind[i];
  if (kind === LLM || kind === TOOL || kind === GUARDRAIL) return true;
  return kind === SCOPE && !model.children(i).length && (model.end[i] > model.start[i] || model.status[i] === RUNNING);
}

export const waited = (gaps) => gaps.reduce((sum, [from, to]) => sum + to - from, 0);

/**
 * Presses gaps together. `drawn` tells where on the axis a moment stands, in seconds; `real` goes back.
 * @param gaps as `idle` gives them @param domain length of the turn in seconds
 */
export function pressed(gaps, domain) {
  if (!gaps.length) return STRAIGHT;
  const stays = Math.max(domain - waited(gaps), 1e-3);
  const keep = Math.min(PRESSED * stays, (0.4 * stays) / gaps.length);
  const [froms, tos] = [gaps.map((gap) => gap[0]), gaps.map((gap) => gap[1])];
  const lengths = gaps.map(([from, to]) => Math.min(keep, to - from));
  const starts = []; // where each gap begins on the axis
  let saved = 0;
  gaps.forEach(([from, to], k) => {
    starts.push(from - saved);
    saved += to - from - lengths[k];
  });
  const ends = starts.map((at, k) => at + lengths[k]);
  const through = (inFrom, inTo, outFrom, outTo) => (t) => {
    const k = lowerBound(inFrom, t, 0, inFrom.length) - 1;
    if (k < 0) return t;
    if (t >= inTo[k]) return outTo[k] + t - inTo[k];
    return outFrom[k] + ((t - inFrom[k]) * (outTo[k] - outFrom[k])) / (inTo[k] - inFrom[k]);
  };
  return { gaps, drawn: through(froms, tos, starts, ends), real: through(starts, ends, froms, tos) };
}
