// Lays the scopes of a turn out in lanes. Pure: model and folds in, lanes out.
// A call with several attempts unfolds to a lane for each; single attempts, tools and plain scopes are packed; sub-agents are groups.
import { AGENT, BLOCKED, CALL, GUARDRAIL, LLM, SCOPE, TOOL } from "./model.js";
import { callRole, name } from "./words.js";

const OWN_LANES = 24; // more calls with retries than this are packed with their role: nobody reads 500 unfolded calls
const SUB_LANES = 40; // parallel work of one kind that is still told apart
const BLOCKED_LANES = 6;

const EMPTY = new Float64Array(0);

/**
 * @param model TurnModel
 * @param folds Map of uuid to "open" or "closed": what the reader chose
 * @returns {{lanes: Lane[], laneOf: Int32Array}} laneOf tells the lane of a node, -1 where it has none.
 *   Lane: {id, name, note, kind, depth, fold, shape, halves, group, items, starts, ends}; starts ascend, ends are running maxima.
 */
export function layout(model, folds = new Map()) {
  const laneOf = new Int32Array(model.count).fill(-1);
  const lanes = [];
  const tasks = [...model.roots].reverse().map((root) => () => groupOf(root, 0));
  if (!model.count) return { lanes, laneOf };

  function groupOf(root, depth) {
    const parts = collect(model, root);
    const alone = model.parent[root] < 0;
    const fold = alone ? null : folds.get(model.col.uuid[root]) ?? (depth > 2 ? "closed" : "open");
    const nested = model.kind[root] === AGENT || model.children(root).length > 0;
    if (nested) {
      const lane = make(model, [root], { id: model.col.uuid[root], kind: model.kind[root], depth, fold, shape: "container" });
      lane.name = alone ? name(model, root) : "sub-agent";
      lane.note = alone ? model.turn.profile ?? model.turn.session_id ?? "" : model.col.name[root] ?? "";
      if (!alone) lane.group = { kind: AGENT, start: model.start[root], node: root };
      if (fold === "closed") lane.halves = false;
      add(lane);
      if (fold === "closed") return;
    }
    const inner = alone || !nested ? depth : depth + 1;
    for (const entry of entries(model, parts, inner, folds).reverse()) tasks.push(entry.lane ? () => add(entry.lane) : () => groupOf(entry.root, inner));
  }

  function add(lane) {
    for (const i of lane.items) laneOf[i] = lanes.length;
    lanes.push(lane);
  }

  while (tasks.length) tasks.pop()();
  return { lanes, laneOf };
}

/** What belongs to one turn or sub-agent, without what its own sub-agents hold. Iterative: chains may be thousands deep. */
function collect(model, root) {
  const parts = { calls: [], tools: [], scopes: [], late: [], agents: [] };
  const stack = [[root, 0]];
  if (model.kind[root] === LLM) parts.calls.push({ call: -1, attempts: [root] });
  else if (model.kind[root] === TOOL) parts.tools.push(root);
  else if (model.kind[root] !== AGENT && !model.children(root).length) parts.scopes.push([root, 0]);
  while (stack.length) {
    const [at, depth] = stack.pop();
    const kids = model.children(at);
    for (let k = kids.length - 1; k >= 0; k -= 1) {
      const i = kids[k];
      let deeper = depth;
      switch (model.kind[i]) {
        case AGENT:
          if (transparent(model, i)) break;
          parts.agents.push(i);
          continue;
        case CALL:
          parts.calls.push({ call: i, attempts: [...model.children(i)].filter((kid) => model.kind[kid] === LLM) });
          break;
        case LLM:
          if (model.kind[at] !== CALL) parts.calls.push({ call: -1, attempts: [i] });
          break;
        case TOOL:
          (model.has(i, "late_child") ? parts.late : parts.tools).push(i);
          break;
        default:
          if (model.has(i, "late_child")) parts.late.push(i);
          else parts.scopes.push([i, depth]);
          deeper += 1;
      }
      stack.push([i, deeper]);
    }
  }
  return parts;
}

/** A session that only wraps turns, or a sub-agent with one turn and nothing else, adds nothing to see. */
function transparent(model, i) {
  const kids = model.children(i);
  const wraps = kids.length > 0 && kids.every((kid) => model.kind[kid] === AGENT);
  return wraps && (model.col.role[i] === "session" || kids.length === 1);
}

function entries(model, parts, depth, folds) {
  const first = (i) => model.start[i];
  const many = parts.calls.filter((c) => c.attempts.length > 1);
  const own = many.length <= OWN_LANES ? many : [];
  const blocked = parts.calls.filter((c) => c.attempts.length <= 1 && isBlocked(model, c));
  const single = blocked.length <= BLOCKED_LANES ? blocked : [];
  const packed = new Map();
  for (const entry of parts.calls) {
    if (own.includes(entry) || single.includes(entry)) continue;
    const role = callRole(model.col.call_role[entry.call]) || "calls";
    if (!packed.has(role)) packed.set(role, []);
    packed.get(role).push(...(entry.attempts.length ? entry.attempts : [entry.call]));
  }
  own.sort((a, b) => first(a.call) - first(b.call));
  const primary = own.filter((c) => (model.col.call_role[c.call] ?? "primary") === "primary");
  const list = [];
  for (const entry of primary) list.push(...callLanes(model, entry, depth, folds, parts.late));
  for (const [role, items] of packed) list.push(...pack(model, items, { name: role, kind: LLM, depth, note: counted(items.length, "call") }));
  if (parts.tools.length) list.push(...pack(model, parts.tools, { name: "tools", kind: TOOL, depth, note: toolNote(model, parts.tools) }));
  list.push(...scopeLanes(model, parts.scopes, depth));
  for (const entry of own) if (!primary.includes(entry)) list.push(...callLanes(model, entry, depth, folds, parts.late));
  for (const i of parts.late.splice(0)) list.push({ lane: lateLane(model, i, depth) });
  for (const root of parts.agents.sort((a, b) => first(a) - first(b))) list.push({ root });
  for (const entry of single) {
    const i = entry.attempts[0] ?? entry.call;
    const label = callRole(model.col.call_role[entry.call]) || "call";
    list.push({ lane: make(model, [i], { id: model.col.uuid[i], name: label, note: "blocked", kind: GUARDRAIL, depth }) });
  }
  return list;
}

const isBlocked = (model, { call, attempts }) =>
  attempts.length ? model.status[attempts[0]] === BLOCKED : call >= 0 && model.status[call] === BLOCKED;

const counted = (count, one) => (count === 1 ? "" : `${count} ${one}s`);

function toolNote(model, items) {
  return items.length === 1 ? model.col.name[items[0]] ?? "" : String(items.length);
}

function callLanes(model, { call, attempts }, depth, folds, late) {
  const hedged = attempts.some((i, k) => k && !(model.start[i] >= model.end[attempts[k - 1]]));
  const fold = folds.get(model.col.uuid[call]) ?? (hedged ? "closed" : "open");
  const role = callRole(model.col.call_role[call]);
  const title = name(model, call);
  const note = hedged ? `hedged ×${attempts.length}` : `${title === role ? "" : `${role} · `}${attempts.length} attempts`;
  const head = { id: model.col.uuid[call], name: title, note, kind: CALL, depth, fold };
  if (fold === "closed") return [{ lane: make(model, attempts, { ...head, halves: hedged }) }];
  const lanes = [make(model, [call], { ...head, shape: "container" })];
  lanes[0].group = { kind: CALL, start: model.start[call], node: call };
  attempts.forEach((i, k) => {
    const lane = make(model, [i], { id: model.col.uuid[i], name: `#${model.col.attempt[i] ?? k + 1}`, note: model.col.model[i] ?? "", kind: LLM, depth: depth + 1 });
    if (k && model.start[i] > model.end[attempts[k - 1]] + 0.005) lane.backoff = [model.end[attempts[k - 1]], model.start[i]];
    lanes.push(lane);
  });
  for (let k = late.length - 1; k >= 0; k -= 1) {
    if (under(model, late[k], call)) lanes.push(lateLane(model, late.splice(k, 1)[0], depth + 1));
  }
  return lanes.map((lane) => ({ lane }));
}

function under(model, i, ancestor) {
  let at = i;
  while (at >= 0 && at !== ancestor) at = model.parent[at];
  return at === ancestor;
}

function lateLane(model, i, depth) {
  const parent = model.parent[i];
  const lane = make(model, [i], { id: model.col.uuid[i], name: model.col.name[i] ?? "scope", note: "late", kind: model.kind[i], depth });
  if (parent >= 0 && model.end[parent] < model.start[i]) lane.leader = model.end[parent];
  return lane;
}

/** Plain scopes: lines when they hold something, bars when they do not, a lane for each depth of nesting. */
function scopeLanes(model, scopes, depth) {
  const levels = new Map();
  for (const [i, level] of scopes) {
    const at = Math.min(level, 12);
    if (!levels.has(at)) levels.set(at, []);
    levels.get(at).push(i);
  }
  const list = [];
  for (const [level, items] of [...levels].sort(([a], [b]) => a - b)) {
    const names = new Set(items.map((i) => model.col.name[i]));
    const title = names.size === 1 ? [...names][0] ?? "scope" : "scopes";
    const guards = items.every((i) => model.kind[i] === GUARDRAIL);
    list.push(...pack(model, items, { name: title, kind: guards ? GUARDRAIL : SCOPE, depth: depth + Math.min(level, 2), note: items.length > 1 ? `×${items.length}` : "" }));
  }
  return list;
}

/** As few lanes as keep spans from covering each other, first fit by start; never more than SUB_LANES. */
function pack(model, items, head) {
  const order = Int32Array.from(items).sort((a, b) => model.start[a] - model.start[b] || a - b);
  const subs = [];
  const ends = [];
  for (const i of order) {
    let at = ends.findIndex((end) => end <= model.start[i]);
    if (at < 0) at = ends.length < SUB_LANES ? ends.push(-Infinity) - 1 : SUB_LANES - 1;
    subs[at] ??= [];
    subs[at].push(i);
    ends[at] = Math.max(ends[at], Number.isNaN(model.end[i]) ? Infinity : model.end[i]);
  }
  return subs.map((sub, k) => ({
    lane: make(model, sub, { ...head, id: `${head.name}:${model.col.uuid[order[0]]}:${k}`, name: k ? "" : head.name, note: k ? "" : head.note, packed: true }),
  }));
}

function make(model, items, head) {
  const list = Int32Array.from(items).sort((a, b) => model.start[a] - model.start[b] || a - b);
  const starts = new Float64Array(list.length);
  const ends = list.length ? new Float64Array(list.length) : EMPTY;
  let last = -Infinity;
  for (let k = 0; k < list.length; k += 1) {
    starts[k] = model.start[list[k]];
    const end = model.end[list[k]];
    last = Math.max(last, Number.isNaN(end) ? Infinity : end);
    ends[k] = last;
  }
  const loud = list.filter((i) => model.status[i] >= 2);
  return { name: "", note: "", fold: null, shape: "bar", halves: false, group: null, ...head, items: list, starts, ends, loud };
}
