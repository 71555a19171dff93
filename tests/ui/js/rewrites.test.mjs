import assert from "node:assert/strict";
import test from "node:test";
import { TurnModel } from "../../../relayweb/ui/static/relayweb/turn/model.js";
import { rewriteBadges } from "../../../relayweb/ui/static/relayweb/turn/words.js";
import { frame } from "./scene.mjs";

const ran = (result, mode = "enforce") => ({ key: result, result, mode, changed: mode === "enforce" && !["miss", "error"].includes(result) });

test("what a turn counts as rewrites and what would have been one in shadow mode are told apart", () => {
  const m = new TurnModel();
  const all = ["hit", "miss", "block", "error"].map((result) => ran(result));
  m.apply(frame([
    ["turn", null, "turn", "t", "ok", 0, 9],
    ["call", "turn", "logical_call", "c", "ok", 1, 9],
    ["a1", "call", "attempt", "a", "failed", 1, 3, { rewrites: [...all, ran("hit", "shadow"), ran("miss", "shadow")] }],
    ["a2", "call", "attempt", "a", "ok", 4, 9, { rewrites: [ran("hit")] }],
  ]));
  const nodes = ["call", "a1", "a2"].map((id) => m.find(id));
  assert.deepEqual(rewriteBadges(m, nodes).map(([, ...told]) => told), [["rewrite", "3"], ["rewrite-s", "1", "1 in shadow"]]);
  assert.deepEqual(rewriteBadges(m, [m.find("turn")]), []);
});
