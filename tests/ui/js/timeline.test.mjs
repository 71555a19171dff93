import assert from "node:assert/strict";
import test from "node:test";
import { clock, money, short, span } from "../../../relayweb/ui/static/relayweb/format.js";
import { areaWords, drawArea, within } from "../../../relayweb/ui/static/relayweb/turn/area.js";
import { drawAxis } from "../../../relayweb/ui/static/relayweb/turn/axis.js";
import { drawLanes } from "../../../relayweb/ui/static/relayweb/turn/drawing.js";
import { nodeAt, timeScale } from "../../../relayweb/ui/static/relayweb/turn/plane.js";
import { STRAIGHT, idle, pressed, waited } from "../../../relayweb/ui/static/relayweb/turn/gaps.js";
import { layout } from "../../../relayweb/ui/static/relayweb/turn/lanes.js";
import { brushPart, drawBrush, drawMiniature } from "../../../relayweb/ui/static/relayweb/turn/minimap.js";
import { chunksBy, openAt } from "../../../relayweb/ui/static/relayweb/turn/past.js";
import { reveal, rows } from "../../../relayweb/ui/static/relayweb/turn/rows.js";
import { lowerBound, scale, ticks } from "../../../relayweb/ui/static/relayweb/turn/shapes.js";
import { drawStrip, rhythm } from "../../../relayweb/ui/static/relayweb/turn/strip.js";
import { model, palette, recorder } from "./scene.mjs";

const size = { width: 1000, height: 400, top: 0, gutter: 176, lane: 24 };
const sceneOf = (m, folds) => ({ model: m, ...layout(m, folds), now: NaN, selected: -1 });
const laneNames = (lanes) => lanes.map((lane) => lane.name);

test("a call with several attempts unfolds, single attempts and tools are packed, sub-agents are groups", () => {
  const m = model();
  const { lanes } = layout(m);
  assert.deepEqual(laneNames(lanes), ["turn", "call 1", "#1", "#2", "#3", "index", "primary", "tools", "", "sub-agent", "delegated", "web"]);
  assert.deepEqual(lanes[3].backoff, [2, 4]);
  assert.equal(lanes[5].leader, 16);
  assert.equal(lanes[1].group.node, m.find("call"));
});

test("tools that overlap take lanes of their own, others share one", () => {
  const { lanes } = layout(model());
  const tools = lanes.filter((lane) => lane.kind === 3 && lane.packed);
  assert.deepEqual(tools.map((lane) => lane.items.length), [1, 1]);
});

test("a folded call is one lane with all its attempts", () => {
  const m = model();
  const { lanes } = layout(m, new Map([["call", "closed"]]));
  const folded = lanes.find((lane) => lane.name === "call 1");
  assert.equal(folded.items.length, 3);
  assert.equal(laneNames(lanes).includes("#1"), false);
});

test("every attempt and tool has a lane, and lanes keep their spans in order", () => {
  const m = model();
  const { lanes, laneOf } = layout(m);
  for (let i = 0; i < m.count; i += 1) if (m.kind[i] === 1 || m.kind[i] === 3) assert.ok(laneOf[i] >= 0, m.col.uuid[i]);
  for (const lane of lanes) {
    for (let k = 1; k < lane.starts.length; k += 1) {
      assert.ok(lane.starts[k] >= lane.starts[k - 1]);
      assert.ok(lane.ends[k] >= lane.ends[k - 1]);
    }
  }
});

test("what is drawn grows with pixels, not with spans", () => {
  const many = (count) => model([["turn", null, "turn", "t", "ok", 0, count], ...Array.from({ length: count }, (_, k) => [`t${k}`, "turn", "tool", "x", "ok", k, k + 0.9])]);
  const drawn = (count) => {
    const m = many(count);
    const ctx = recorder();
    drawLanes(ctx, sceneOf(m), { from: 0, to: count }, size, palette);
    return ctx.calls.length;
  };
  const [some, more] = [drawn(5_000), drawn(50_000)];
  assert.ok(more < some * 1.3, `${some} calls for 5 000 spans, ${more} for 50 000`);
});

test("a failure thinner than a pixel is still drawn in its colour", () => {
  const m = model([["turn", null, "turn", "t", "ok", 0, 9000], ...Array.from({ length: 9000 }, (_, k) => [`t${k}`, "turn", "tool", "x", k === 4321 ? "failed" : "ok", k, k + 0.9])]);
  const ctx = recorder();
  drawLanes(ctx, sceneOf(m), { from: 0, to: 9000 }, size, palette);
  assert.ok(ctx.calls.some((call) => call[0] === "fillRect" && call.at(-1) === "st-failed"));
});

test("a barcode has at most a tick every two pixels", () => {
  const m = model();
  const i = m.find("a3");
  m.chunks.set(i, { t: Float64Array.from({ length: 5000 }, (_, k) => 10.9 + k / 1000), k: new Uint8Array(5000), n: new Uint32Array(5000).fill(4), count: 5000 });
  const ctx = recorder();
  drawLanes(ctx, sceneOf(m), { from: 0, to: 40 }, size, palette);
  const ticksDrawn = ctx.calls.filter((call) => call[0] === "fillRect" && call.at(-1) === "c-text" && call[3] === 1);
  assert.ok(ticksDrawn.length > 20 && ticksDrawn.length < 70, String(ticksDrawn.length));
});

test("the point under the pointer names its span, the gap between names none", () => {
  const m = model();
  const scene = sceneOf(m);
  const view = { from: 0, to: 40 };
  const x = timeScale(view, size);
  const row = scene.laneOf[m.find("a3")];
  assert.equal(nodeAt(scene, view, size, x(13), row * 24 + 12), m.find("a3"));
  assert.equal(nodeAt(scene, view, size, x(35), row * 24 + 12), -1);
  assert.equal(nodeAt(scene, view, size, 40, row * 24 + 12), -1);
});

test("axis, minimap, brush and strip draw without a DOM", () => {
  const m = model();
  const scene = sceneOf(m);
  for (const draw of [
    (ctx) => drawAxis(ctx, { ...scene, now: 20 }, { from: 0, to: 40 }, size, palette),
    (ctx) => drawMiniature(ctx, scene, 40, 1000, palette),
    (ctx) => drawBrush(ctx, { from: 10, to: 20 }, 40, 1000, palette),
    (ctx) => drawStrip(ctx, { t: Float64Array.from([1, 1.1, 1.2, 1.3, 1.4, 4]), k: Uint8Array.from([1, 1, 0, 0, 2, 2]), n: Uint32Array.from([1, 9, 4, 4, 2, 2]), count: 6, start: 0, end: 5, ttft: 1 }, { width: 800, height: 46 }, palette),
    (ctx) => drawStrip(ctx, { t: new Float64Array(0), k: new Uint8Array(0), n: new Uint32Array(0), count: 0, start: 0, end: 0, ttft: NaN }, { width: 800, height: 46 }, palette),
  ]) {
    const ctx = recorder();
    draw(ctx);
    assert.ok(ctx.calls.length);
    for (const call of ctx.calls) for (const value of call) assert.ok(!Number.isNaN(value), JSON.stringify(call));
  }
});

test("the brush is taken by its edges, moved by its middle, drawn anew outside", () => {
  const view = { from: 10, to: 20 };
  assert.equal(brushPart(view, 40, 1024, 262), "from");
  assert.equal(brushPart(view, 40, 1024, 512), "to");
  assert.equal(brushPart(view, 40, 1024, 400), "both");
  assert.equal(brushPart(view, 40, 1024, 900), "new");
});

test("the tree shows what went wrong and folds what went well", () => {
  const m = model();
  const ids = rows(m).map((row) => row.id);
  assert.ok(ids.includes("a1") && ids.includes("a3"));
  assert.ok(!ids.includes("q1"));
  const open = new Map();
  assert.ok(reveal(m, open, m.find("q1")));
  assert.ok(rows(m, { open }).map((row) => row.id).includes("q1"));
});

test("rewrites are rows under their attempt", () => {
  const m = model();
  const list = rows(m, { open: new Map([["a1", true]]) });
  const at = list.findIndex((row) => row.id === "a1");
  assert.equal(list[at + 1].id, "a1#0");
  assert.equal(list[at + 1].level, list[at].level + 1);
});

test("quiet siblings of a long turn are gathered, the last ones stay", () => {
  const calls = Array.from({ length: 30 }, (_, k) => [`c${k}`, "turn", "logical_call", "c", k === 9 ? "failed" : "ok", k, k + 1, { call_role: "primary" }]);
  const m = model([["turn", null, "turn", "t", "ok", 0, 40], ...calls]);
  const list = rows(m);
  assert.deepEqual(list.filter((row) => row.group).map((row) => row.group.length), [9, 16]);
  assert.deepEqual(list.slice(-4).map((row) => row.id), ["c26", "c27", "c28", "c29"]);
  const open = new Map();
  reveal(m, open, m.find("c3"));
  assert.ok(rows(m, { open }).some((row) => row.id === "c3"));
});

test("the filter keeps what matches and everything above it", () => {
  const list = rows(model(), { query: "claude" });
  assert.deepEqual(list.map((row) => row.id), ["turn", "call", "a3"]);
});

test("ticks stand at round times, and steps go from microseconds to days", () => {
  assert.deepEqual(ticks(0, 10, 500).list, [0, 2, 4, 6, 8, 10]);
  assert.equal(ticks(0, 2e-4, 1000).step, 2e-5);
  assert.ok(ticks(0, 1e7, 1000).list.length < 20);
});

test("lower bound finds the first value that is not below", () => {
  assert.equal(lowerBound([1, 2, 2, 5], 2), 1);
  assert.equal(lowerBound([1, 2], 9), 2);
  const x = scale({ from: 0, to: 10 }, 100, 200);
  assert.equal(x(5), 150);
  assert.equal(x.invert(150), 5);
});

test("numbers read the same everywhere", () => {
  assert.deepEqual([0, 4.2e-5, 0.0042, 0.84, 6.159, 59.96, 150, 7300, NaN].map(span), ["0 ms", "42 µs", "4.2 ms", "840 ms", "6.16 s", "1 m 0 s", "2 m 30 s", "2 h 1 m", "–"]);
  assert.deepEqual([[105, 1], [62.25, 0.01], [0.5, 0.1], [3661, 1], [0.02, 0.005], [1.005, 0.005]].map(([t, s]) => clock(t, s)), ["1:45", "1:02.25", "0.5 s", "1:01:01", "20 ms", "1.005 s"]);
  assert.deepEqual([950, 6900, 1_200_000, null].map(short), ["950", "6.9k", "1.2M", "–"]);
  assert.deepEqual([0.412, 12.3, 0.0001, null].map(money), ["$0.412", "$12.30", "<$0.001", "–"]);
});

test("what was open at a moment is what had begun and not ended", () => {
  const m = model();
  const open = (t) => openAt(m, t, NaN).map((i) => m.col.uuid[i]);
  assert.deepEqual(open(5), ["turn", "call", "a2"]);
  assert.deepEqual(open(3), ["turn", "call"]);
  assert.deepEqual(open(-1), []);
  assert.equal(chunksBy({ t: Float64Array.from([1, 2, 3, 0]), count: 3 }, 2), 2);
  assert.equal(chunksBy(undefined, 2), 0);
});

const quiet = () => model([
  ["turn", null, "turn", "t", "ok", 0, 100],
  ["a", "turn", "tool", "x", "ok", 0, 10],
  ["b", "turn", "tool", "x", "ok", 60, 70],
  ["c", "turn", "tool", "x", "ok", 70.1, 90],
]);

test("time in which nothing worked is found, short gaps left alone", () => {
  const gaps = idle(quiet());
  assert.deepEqual(gaps, [[10, 60], [90, 100]]);
  assert.equal(waited(gaps), 60);
});

test("a turn that still runs has no gap at its end", () => {
  const m = model([["turn", null, "turn", "t", "running", 0, null], ["a", "turn", "tool", "x", "ok", 0, 10], ["b", "turn", "tool", "x", "ok", 60, 70]]);
  m.latest = 100;
  m.turn = { ...m.turn, status: "running" };
  assert.deepEqual(idle(m), [[10, 60]]);
});

test("pressed time goes there and back, keeps its order and gives work the room", () => {
  const warp = pressed([[10, 60], [90, 100]], 100);
  let before = -1;
  for (let t = 0; t <= 110; t += 0.5) {
    assert.ok(Math.abs(warp.real(warp.drawn(t)) - t) < 1e-9, String(t));
    assert.ok(warp.drawn(t) > before);
    before = warp.drawn(t);
  }
  assert.ok(Math.abs(warp.drawn(10) - warp.drawn(0) - 10) < 1e-9);
  assert.ok(warp.drawn(100) < 50);
  assert.equal(pressed([], 10), STRAIGHT);
  assert.ok(Number.isNaN(warp.drawn(NaN)));
});

test("on a pressed axis a press still finds the span under it, and ticks stay out of the folds", () => {
  const m = quiet();
  const scene = { ...sceneOf(m), warp: pressed(idle(m), 100) };
  const view = { from: 0, to: 100 };
  const x = timeScale(view, size, scene.warp);
  const row = scene.laneOf[m.find("b")];
  assert.equal(nodeAt(scene, view, size, x(65), row * size.lane + 12), m.find("b"));
  const ctx = recorder();
  drawAxis(ctx, scene, view, size, palette);
  const words = ctx.calls.filter(([name]) => name === "fillText").map(([, text]) => text);
  assert.ok(words.includes("50.0 s"), words.join());
  assert.ok(!words.some((word) => ["20 s", "30 s", "40 s"].includes(word)), words.join());
  drawLanes(ctx, scene, view, size, palette);
});

test("a chosen stretch says how long it is and what lies in it", () => {
  const m = quiet();
  const scene = sceneOf(m);
  assert.deepEqual(within(scene.lanes, 5, 65), { attempts: 0, tools: 2 });
  assert.equal(areaWords(scene.lanes, 5, 65), "1 m 0 s · 2 tools");
  const ctx = recorder();
  drawArea(ctx, scene, { from: 5, to: 65 }, timeScale({ from: 0, to: 100 }, size), size, palette);
  assert.ok(ctx.calls.some(([name, text]) => name === "fillText" && text.includes("2 tools")));
});

test("the rhythm of a stream is told as far as it is known", () => {
  const t = Float64Array.from([1, 1.1, 1.2, 1.3, 2.3, 9]);
  const told = (count, ttft) => rhythm({ t, count, ttft }).map(([name, seconds]) => [name, Number(seconds.toFixed(3))]);
  assert.deepEqual(told(5, 0.4), [["TTFT", 0.4], ["gap p50", 0.1], ["p95", 1], ["max", 1]]);
  assert.deepEqual(told(1, 0.4), [["TTFT", 0.4]]);
  assert.deepEqual(told(0, NaN), []);
});
