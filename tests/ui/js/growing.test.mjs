import assert from "node:assert/strict";
import { test } from "node:test";
import { Growing } from "../../../relayweb/ui/static/relayweb/turn/growing.js";

const pieces = ["a", "", "c", "d", "e"].map((text) => ({ text, kind: "t" }));

function growing(next, all) {
  let said = "";
  const text = new Growing(next, (piece) => { said += piece; }, all);
  return { text, said: () => said };
}

test("pieces are said in order and once", () => {
  const { text, said } = growing(1, () => assert.fail("nothing is missing"));
  for (const k of [0, 1, 1, 2, 3, 2]) text.hear(k, pieces[k].text, 0);
  assert.equal(said(), "cd");
});

test("what was missed is asked for, while more comes", async () => {
  let answer;
  const { text, said } = growing(0, () => new Promise((done) => { answer = done; }));
  text.hear(0, "a", 0);
  text.hear(3, "d", 0);
  text.hear(4, "e", 0);
  assert.equal(said(), "a");
  answer(pieces.slice(0, 4));
  await new Promise((done) => setTimeout(done));
  assert.equal(said(), "acde");
  text.hear(5, "f", 0);
  assert.equal(said(), "acdef");
});

test("a failure to ask leaves the text as it is, and the next piece asks again", async () => {
  let asked = 0;
  const { text, said } = growing(0, async () => { asked += 1; if (asked === 1) throw new Error("gone"); return pieces; });
  text.hear(2, "c", 0);
  await new Promise((done) => setTimeout(done));
  assert.equal(said(), "");
  text.hear(3, "d", 0);
  await new Promise((done) => setTimeout(done));
  assert.equal(said(), "acde");
});

test("a piece that comes before what it says is said when that comes", () => {
  const { text, said } = growing(0, () => assert.fail("nothing is missing"));
  for (const k of [0, 1, 2]) text.hear(k, null, 0);
  for (const k of [0, 1, 2]) text.hear(k, pieces[k].text, 0);
  for (const k of [3, 4]) text.hear(k, null, 0);
  text.hear(3, "d", 0);
  assert.equal(said(), "acd");
});

test("what is asked for too early is not taken for silence, and what nobody recorded holds nothing up", async () => {
  const known = ["a", "b", null, null];
  const { text, said } = growing(0, async () => known.map((piece) => ({ text: piece, kind: "t" })));
  await text.fill();
  assert.equal(said(), "ab");
  known.push("e");
  text.hear(4, "e", 0);
  await new Promise((done) => setTimeout(done));
  assert.equal(said(), "abe");
});
