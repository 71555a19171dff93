import assert from "node:assert/strict";
import test from "node:test";
import { costWords } from "../../../relayweb/ui/static/relayweb/turn/words.js";
import { model } from "./scene.mjs";

const attempt = (uuid, parent, name, cost, status = "ok", tokens = 7) => [uuid, parent, "attempt", name, status, 2, 3, { model: name, output_tokens: tokens, cost_usd: cost }];
const ROWS = [["turn", null, "turn", "t", "ok", 0, 9], ["call", "turn", "logical_call", "c", "ok", 1, 8], attempt("a", "call", "gpt", 0.25)];
const said = (rows, turn, least = "") => costWords(model([...ROWS, ...rows], { attempts: 1 + rows.length, cost_usd: 0.25, ...turn }), least);

test("a sum of costs that all have a price stands as it is", () => {
  assert.deepEqual(said([]), ["$0.250", ""]);
  assert.deepEqual(said([], {}, "≥ "), ["≥ $0.250", ""]);
});

test("a sum without the attempts that have no price is a lower bound, and names their models", () => {
  const rows = [attempt("b", "call", "house", null), attempt("c", "call", "house", null), attempt("d", "turn", null, null)];
  const title = "Without 3 of 4 attempts, which have no price: house, an unknown model";
  assert.deepEqual(said(rows), ["≥ $0.250", title]);
  assert.deepEqual(said(rows, { cost_usd: 0.0001 }), ["≥ $0", title]);
  assert.deepEqual(said(rows, { cost_usd: 0 }), ["≥ $0", title]);
});

test("where no attempt has a price the cost is unknown", () => {
  assert.deepEqual(said([attempt("b", "call", "house", null)], { cost_usd: null }), ["–", ""]);
});

test("what told no tokens, still runs or is a sub-agent's is not missed", () => {
  const inner = [["sub", "turn", "subagent", "s", "ok", 4, 6], attempt("b", "sub", "house", null)];
  const silent = attempt("c", "call", "house", null, "failed", null);
  const running = attempt("d", "call", "house", null, "running");
  assert.deepEqual(said([...inner, silent, running]), ["$0.250", ""]);
});
