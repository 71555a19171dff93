import assert from "node:assert/strict";
import test from "node:test";
import { FAILED, TurnModel, quantile, stalls } from "../../../relayweb/ui/static/relayweb/turn/model.js";
import { ORIGIN, ROWS, frame, model } from "./scene.mjs";

test("times are seconds from the start of the turn", () => {
  const m = model();
  assert.equal(m.start[m.find("a2")], 4);
  assert.equal(m.end[m.find("a2")], 8);
  assert.equal(m.latest, 40);
});

test("children come in the order they began, whatever order they were told in", () => {
  const m = model([...ROWS].reverse());
  const names = [...m.children(m.find("call"))].map((i) => m.col.uuid[i]);
  assert.deepEqual(names, ["a1", "a2", "a3", "late"]);
});

test("calls are numbered within their turn or sub-agent, side tasks apart", () => {
  const m = model();
  assert.deepEqual(["call", "quiet", "s1", "stop"].map((id) => m.ordinal[m.find(id)]), [1, 2, 1, 1]);
});

test("a running scope has no end, and gets one by a later frame", () => {
  const m = new TurnModel();
  m.apply(frame([["turn", null, "turn", "t", "running", 0, null], ["x", "turn", "tool", "x", "running", 1, null]]));
  assert.ok(Number.isNaN(m.end[m.find("x")]));
  assert.equal(m.endOr(m.find("x"), 5), 5);
  const done = m.apply(frame([["x", "turn", "tool", "x", "failed", 1, 3]]));
  assert.ok(done.shape);
  assert.equal(m.end[m.find("x")], 3);
  assert.equal(m.status[m.find("x")], FAILED);
  assert.equal(m.count, 2);
});

test("a child before its parent hangs under the turn until the parent comes", () => {
  const m = new TurnModel();
  m.apply(frame([["turn", null, "turn", "t", "running", 0, null], ["a", "call", "attempt", "a", "running", 1, null]]));
  assert.equal(m.parent[m.find("a")], m.find("turn"));
  m.apply(frame([["call", "turn", "logical_call", "c", "running", 1, null]]));
  assert.equal(m.parent[m.find("a")], m.find("call"));
});

test("scopes that claim to be their own ancestors do not hang the page", () => {
  const m = model([["a", "b", "scope", "a", "ok", 0, 1], ["b", "a", "scope", "b", "ok", 0, 1], ["c", "c", "scope", "c", "ok", 0, 1]]);
  const seen = new Set();
  const stack = [...m.roots];
  while (stack.length) {
    const i = stack.pop();
    assert.ok(!seen.has(i));
    seen.add(i);
    stack.push(...m.children(i));
  }
  assert.equal(seen.size, 3);
});

test("a chain of 20 000 scopes is a chain, not a stack overflow", () => {
  const rows = Array.from({ length: 20_000 }, (_unused, k) => [`n${k}`, k ? `n${k - 1}` : null, "scope", "n", "ok", k, 20_000]);
  const m = model(rows);
  assert.equal(m.children(m.find("n19998")).length, 1);
  assert.equal(m.roots.length, 1);
});

test("an end before its start is drawn as no length", () => {
  const m = model([["turn", null, "turn", "t", "ok", 10, 0]], { start_us: ORIGIN });
  assert.equal(m.end[0], m.start[0]);
});

const chunkFrame = (indexes, kinds, more = {}) => ({
  chunks: { attempt: indexes.map(() => "a3"), index: indexes, at_us: indexes.map((k) => ORIGIN + 11e6 + k * 1e4), kind: kinds, size: indexes.map(() => 3), ...more },
});

test("chunks are taken in order, once, and those that come too early wait for the ones before", () => {
  const m = model();
  m.apply(chunkFrame([0, 1], ["r", "r"]));
  m.apply(chunkFrame([1, 3], ["r", "t"]));
  const chunks = m.chunks.get(m.find("a3"));
  assert.equal(chunks.count, 2);
  assert.ok(chunks.stale);
  m.apply(chunkFrame([2], ["t"]));
  assert.equal(chunks.count, 4);
  assert.ok(!chunks.stale);
  assert.deepEqual([...chunks.k.slice(0, 4)], [1, 1, 0, 0]);
});

test("a chunk whose content comes later gets its kind then, and its text is told with its number", () => {
  const m = model();
  m.apply(chunkFrame([0], ["o"]));
  const chunks = m.chunks.get(m.find("a3"));
  const heard = [];
  chunks.listen = (k, text) => heard.push([k, text]);
  m.apply(chunkFrame([0, 1], ["t", "t"], { text: ["Hello", " you"] }));
  assert.equal(chunks.k[0], 0);
  m.apply(chunkFrame([2], ["o"], { text: [null] }));
  assert.deepEqual(heard, [[0, "Hello"], [1, " you"]]);
  m.apply(chunkFrame([2], ["o"], { text: [""] }));
  assert.deepEqual(heard.at(-1), [2, ""]);
});

test("a stall is a gap over five times the median and a quarter of a second", () => {
  const t = Float64Array.from([0, 0.02, 0.04, 0.06, 0.08, 0.5, 0.52, 0.6]);
  assert.deepEqual(stalls({ t, count: 8 }).map(([from, to]) => [from, to]), [[0.08, 0.5]]);
  assert.deepEqual(stalls({ t: Float64Array.from([0, 9]), count: 2 }), []);
});

test("quantiles are by nearest rank", () => {
  assert.equal(quantile([5, 1, 3], 0.5), 3);
  assert.equal(quantile([1, 2, 3, 4], 0.95), 4);
  assert.ok(Number.isNaN(quantile([], 0.5)));
});
