// The rows of the tree: what is unfolded, filtered, and quiet siblings gathered. Pure: model in, flat rows out.
import { CALL, LLM, OK, TOOL } from "./model.js";
import { name, meta } from "./words.js";

const CROWD = 16; // children from which quiet runs are gathered
const RUN = 6; // quiet siblings that make a run

/**
 * @param model TurnModel
 * @param {{open: Map<string, boolean>, query?: string}} state what the reader opened or closed, by row id
 * @returns rows {id, node, rewrite, group, level, open, size, at}: open null where nothing can be unfolded;
 *   `rewrite` is an index into the rewrites of the node, -1 for the node itself; `group` lists the nodes of a gathered run.
 */
export function rows(model, { open = new Map(), query = "" } = {}) {
  const keep = query ? matches(model, query.toLowerCase()) : null;
  const list = [];
  const stack = [];
  push(siblings(model, model.roots, keep, open, 1, 1));
  while (stack.length) {
    const row = stack.pop();
    list.push(row);
    if (row.open) push(inner(model, row, keep, open));
  }
  return list;

  function push(batch) {
    for (let k = batch.length - 1; k >= 0; k -= 1) stack.push(batch[k]);
  }
}

function inner(model, row, keep, open) {
  if (row.group) return siblings(model, row.group, keep, open, row.level + 1, Infinity);
  const rewrites = model.col.rewrites[row.node] ?? [];
  const own = rewrites.map((_, k) => ({ id: `${row.id}#${k}`, node: row.node, rewrite: k, group: null, level: row.level + 1, open: null, at: k + 1, size: rewrites.length }));
  return own.concat(siblings(model, model.children(row.node), keep, open, row.level + 1, CROWD));
}

function siblings(model, nodes, keep, open, level, crowd) {
  const shown = keep ? [...nodes].filter((i) => keep[i]) : nodes;
  const units = !keep && shown.length > crowd ? gather(model, shown) : shown;
  return Array.from(units, (unit, k) => {
    const place = { level, at: k + 1, size: units.length };
    if (typeof unit !== "number") {
      const id = `run:${model.col.uuid[unit[0]]}`;
      return { id, node: unit[0], rewrite: -1, group: unit, open: open.get(id) ?? false, ...place };
    }
    const id = model.col.uuid[unit];
    return { id, node: unit, rewrite: -1, group: null, open: openness(model, unit, id, keep, open), ...place };
  });
}

function openness(model, i, id, keep, open) {
  if (!model.children(i).length && !model.col.rewrites[i]?.length) return null;
  return open.get(id) ?? (keep ? true : byDefault(model, i));
}

/** Open at first: what has sub-agents or trouble in it; a call that went well at once is one line. */
function byDefault(model, i) {
  if (model.kind[i] === CALL) return model.children(i).length > 1 || model.status[i] !== OK;
  if (model.kind[i] === LLM) return model.children(i).length > 0 && model.status[i] !== OK;
  return true;
}

const quiet = (model, i) =>
  model.status[i] === OK
  && (model.kind[i] === TOOL ? !model.children(i).length : model.kind[i] === CALL && model.children(i).length <= 1 && !model.col.flags[i]?.length);

/** Runs of quiet siblings as one row; the last few always stay, that is where readers look. */
function gather(model, nodes) {
  const units = [];
  let run = [];
  const flush = () => {
    units.push(...(run.length >= RUN ? [run] : run));
    run = [];
  };
  for (let k = 0; k < nodes.length; k += 1) {
    if (k < nodes.length - 4 && quiet(model, nodes[k])) run.push(nodes[k]);
    else {
      flush();
      units.push(nodes[k]);
    }
  }
  flush();
  return units;
}

/** Marks what matches, and all above it. */
function matches(model, query) {
  const keep = new Uint8Array(model.count);
  for (let i = 0; i < model.count; i += 1) {
    const text = `${name(model, i)} ${meta(model, i)} ${model.col.name[i] ?? ""} ${model.col.model[i] ?? ""} ${model.col.error[i]?.type ?? ""} ${model.col.uuid[i]}`.toLowerCase();
    if (!text.includes(query) && !(model.col.rewrites[i] ?? []).some((r) => r.key?.toLowerCase().includes(query))) continue;
    for (let at = i; at >= 0 && !keep[at]; at = model.parent[at]) keep[at] = 1;
  }
  return keep;
}

/** "calls 1 – 7", "×16 and 9 tools": what a gathered run says. */
export function runWords(model, nodes) {
  const calls = nodes.filter((i) => model.kind[i] === CALL);
  const tools = nodes.length - calls.length;
  if (!calls.length) return { title: `${tools} tools`, count: tools, meta: "" };
  const [first, last] = [model.ordinal[calls[0]], model.ordinal[calls.at(-1)]];
  return { title: first === last ? `call ${first}` : `calls ${first} – ${last}`, count: calls.length, meta: tools ? `and ${tools} ${tools === 1 ? "tool" : "tools"}` : "" };
}

/** Opens whatever hides a node. Returns whether anything changed. */
export function reveal(model, open, i) {
  let changed = false;
  const set = (id) => {
    if (open.get(id) !== true) {
      open.set(id, true);
      changed = true;
    }
  };
  for (let at = model.parent[i]; at >= 0; at = model.parent[at]) set(model.col.uuid[at]);
  for (let at = i; at >= 0; at = model.parent[at]) {
    const nodes = model.children(model.parent[at]);
    if (nodes.length <= CROWD) continue;
    const run = gather(model, nodes).find((unit) => typeof unit !== "number" && unit.includes(at));
    if (run) set(`run:${model.col.uuid[run[0]]}`);
  }
  return changed;
}

