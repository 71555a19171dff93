// A turn for tests: a call with three attempts, a quiet call, tools, a sub-agent, a late child and a blocked call.
import { TurnModel } from "../../../relayweb/ui/static/relayweb/turn/model.js";

export const ORIGIN = 1_700_000_000_000_000;
const at = (seconds) => (seconds === null ? null : ORIGIN + Math.round(seconds * 1e6));

/** Rows [uuid, parent, role, name, status, from, to, more] as a frame. */
export function frame(rows, turn = {}) {
  const names = ["uuid", "parent_uuid", "role", "name", "status", "start_us", "end_us"];
  const extra = new Set(rows.flatMap((row) => Object.keys(row[7] ?? {})));
  const nodes = Object.fromEntries([...names, ...extra].map((name) => [name, []]));
  for (const [uuid, parent, role, name, status, from, to, more = {}] of rows) {
    nodes.uuid.push(uuid);
    nodes.parent_uuid.push(parent);
    nodes.role.push(role);
    nodes.name.push(name);
    nodes.status.push(status);
    nodes.start_us.push(at(from));
    nodes.end_us.push(at(to));
    for (const key of extra) nodes[key].push(more[key] ?? null);
  }
  return { cursor: 1, now_us: at(60), resync: false, turn: { uuid: "turn", start_us: ORIGIN, status: "ok", ...turn }, nodes };
}

export const ROWS = [
  ["turn", null, "turn", "relay.turn", "ok", 0, 40],
  ["call", "turn", "logical_call", "relay.logical_llm_call", "ok", 1, 16, { call_role: "primary", retries: 2 }],
  ["a1", "call", "attempt", "openai", "failed", 1, 2, { attempt: 1, model: "gpt", error: { status: 429, type: "rate_limit" }, rewrites: [{ key: "trim", revision: 7, result: "hit", mode: "enforce" }] }],
  ["a2", "call", "attempt", "openai", "failed", 4, 8, { attempt: 2, model: "gpt", chunk_count: 3, error: { type: "server_error" } }],
  ["a3", "call", "attempt", "anthropic", "ok", 10, 16, { attempt: 3, model: "claude", ttft_us: 840_000, chunk_count: 6, output_tokens: 60 }],
  ["late", "call", "tool", "index", "ok", 18, 20, { flags: ["late_child"] }],
  ["quiet", "turn", "logical_call", "relay.logical_llm_call", "ok", 20, 24, { call_role: "primary" }],
  ["q1", "quiet", "attempt", "openai", "ok", 20, 24, { attempt: 1, model: "gpt" }],
  ["t1", "turn", "tool", "read", "ok", 16.5, 17],
  ["t2", "turn", "tool", "write", "ok", 16.6, 17.5],
  ["sub", "turn", "subagent", "runner", "ok", 25, 35],
  ["s1", "sub", "logical_call", "relay.logical_llm_call", "ok", 25, 30, { call_role: "delegated" }],
  ["s1a", "s1", "attempt", "openai", "ok", 25, 30, { attempt: 1, model: "mini" }],
  ["stop", "turn", "logical_call", "relay.logical_llm_call", "blocked", 36, 36, { call_role: "auxiliary:web" }],
];

export function model(rows = ROWS, turn = {}) {
  const made = new TurnModel();
  made.apply(frame(rows, turn));
  return made;
}

/** A canvas that writes down what is asked of it. */
export function recorder() {
  const calls = [];
  const state = {};
  return new Proxy(state, {
    get(target, name) {
      if (name === "calls") return calls;
      if (name === "measureText") return (text) => ({ width: String(text).length * 6 });
      if (name === "createLinearGradient") return () => ({ addColorStop() {} });
      if (name in target) return target[name];
      return (...args) => calls.push([name, ...args, target.fillStyle]);
    },
    set(target, name, value) {
      target[name] = value;
      return true;
    },
  });
}

/** Each colour is its own name. */
export const palette = new Proxy({ font: "sans" }, { get: (target, name) => target[name] ?? name });
