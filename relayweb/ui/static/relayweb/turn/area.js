// A stretch of time being chosen: what it looks like, and what lies in it. Pure.
import { plural, span } from "../format.js";
import { LLM, TOOL } from "./model.js";
import { box, font, lowerBound, textWidth } from "./shapes.js";

/** How many attempts and tools lie, also in part, between two moments. */
export function within(lanes, from, to) {
  const counts = { attempts: 0, tools: 0 };
  for (const lane of lanes) {
    if (lane.shape === "container" || (lane.kind !== LLM && lane.kind !== TOOL)) continue;
    counts[lane.kind === LLM ? "attempts" : "tools"] += Math.max(0, lowerBound(lane.starts, to) - lowerBound(lane.ends, from));
  }
  return counts;
}

export function areaWords(lanes, from, to) {
  const { attempts, tools } = within(lanes, from, to);
  const parts = [span(to - from)];
  if (attempts) parts.push(plural(attempts, "attempt"));
  if (tools) parts.push(plural(tools, "tool"));
  return parts.join(" · ");
}

/** @param area {from, to} in seconds, from before to @param x of timeScale */
export function drawArea(ctx, scene, area, x, size, palette) {
  const left = Math.max(x(area.from), size.gutter);
  const right = Math.min(x(area.to), size.width);
  ctx.fillStyle = palette.accent;
  ctx.globalAlpha = 0.12;
  ctx.fillRect(left, 0, right - left, size.height);
  ctx.globalAlpha = 1;
  for (const px of [left, right]) ctx.fillRect(Math.round(px), 0, 1, size.height);
  const face = font(palette, 500);
  const words = areaWords(scene.lanes, area.from, area.to);
  const width = textWidth(ctx, face, words) + 12;
  const at = Math.max(size.gutter + 2, Math.min((left + right - width) / 2, size.width - width - 2));
  box(ctx, at, 4, width, 18, 3);
  ctx.fill();
  ctx.font = face;
  ctx.textAlign = "left";
  ctx.textBaseline = "middle";
  ctx.fillStyle = palette.surface;
  ctx.fillText(words, at + 6, 13.5);
}
