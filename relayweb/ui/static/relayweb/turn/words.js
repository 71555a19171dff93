// What a scope is called and what is said beside it, the same in tree, timeline, tip and inspector. Pure.
import { money, plural, short, span } from "../format.js";
import { AGENT, BLOCKED, CALL, CANCELLED, FAILED, GUARDRAIL, INTERRUPTED, LLM, RUNNING, SCOPE, TOOL } from "./model.js";

export const ICON = { [SCOPE]: "mark", [LLM]: "llm", [CALL]: "call", [TOOL]: "tool", [AGENT]: "turn", [GUARDRAIL]: "guardrail" };

export function icon(model, i) {
  if (model.kind[i] === AGENT) return model.col.role[i] === "subagent" || model.parent[i] >= 0 ? "subagent" : model.col.role[i] === "session" ? "session" : "turn";
  if (model.status[i] === BLOCKED && model.kind[i] === CALL) return "guardrail";
  return ICON[model.kind[i]];
}

/** "auxiliary:compress" is best known as "compress". */
export function callRole(role) {
  if (!role) return "";
  const [kind, task] = role.split(":", 2);
  return task || kind;
}

const plain = (name) => (name ?? "").replace(/^(relay|hermes)[._-]/, "");

export function name(model, i) {
  const { col } = model;
  switch (model.kind[i]) {
    case LLM: return `attempt ${col.attempt[i] ?? "?"}`;
    case CALL: return col.call_role[i]?.includes(":") ? callRole(col.call_role[i]) : `call ${model.ordinal[i]}`;
    case AGENT: return plain(col.name[i]) || "turn";
    default: return col.name[i] || col.category[i] || "scope";
  }
}

export function meta(model, i) {
  const { col } = model;
  switch (model.kind[i]) {
    case LLM: return col.model[i] ?? "";
    case CALL: {
      const role = col.call_role[i];
      const attempts = attemptsOf(model, i);
      if (attempts.length === 1 && role !== "primary") return col.model[attempts[0]] ?? callRole(role);
      return role?.includes(":") ? role.split(":")[0] : callRole(role);
    }
    case AGENT: return col.role[i] === "session" ? "session" : col.role[i] === "subagent" ? "sub-agent" : "";
    case TOOL: return col.asked[i] ?? model.hints.get(col.uuid[i]) ?? "";
    default: return col.category[i] && col.category[i] !== col.name[i] ? col.category[i] : "";
  }
}

export function attemptsOf(model, i) {
  return model.children(i).filter((kid) => model.kind[kid] === LLM);
}

/** Whether an open call only waits for a retry: its last attempt went wrong and none runs. */
export function waits(model, i) {
  if (model.kind[i] !== CALL || model.status[i] !== RUNNING) return false;
  const attempts = attemptsOf(model, i);
  const last = attempts.length ? model.status[attempts.at(-1)] : RUNNING;
  return (last === FAILED || last === INTERRUPTED) && attempts.every((at) => model.status[at] !== RUNNING);
}

/** The few letters of what went wrong: a status code, "cut", "late". */
export function errorWord(model, i) {
  const error = model.col.error[i];
  if (model.status[i] === BLOCKED) return "blocked";
  if (model.status[i] === CANCELLED) return "cancelled";
  if (model.status[i] === INTERRUPTED) return "interrupted";
  if (model.status[i] !== FAILED) return "";
  if (error?.status) return String(error.status);
  return (model.col.chunk_count[i] ?? 0) > 0 ? "cut" : shorten(error?.type ?? "failed", 22);
}

export const shorten = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

/** One line on why an attempt or a tool went wrong, for the timeline. */
export function reason(model, i) {
  const error = model.col.error[i];
  const status = error?.status ? `${error.status} ` : "";
  const what = error?.type ?? error?.message ?? { [BLOCKED]: "refused", [CANCELLED]: "cancelled", [INTERRUPTED]: "interrupted" }[model.status[i]] ?? "failed";
  const chunks = model.col.chunk_count[i] ?? 0;
  const where = model.kind[i] === LLM && chunks && model.status[i] === FAILED ? `, after ${plural(chunks, "chunk")}` : "";
  return shorten(`${status}${String(what).replace(/\s+/g, " ")}${where}`, 90);
}

/** Output tokens a second, from the first token on where it is known. */
export function rate(model, i) {
  const tokens = model.col.output_tokens[i];
  const seconds = model.end[i] - model.start[i];
  return tokens && seconds > 0 ? tokens / seconds : null;
}

/** What stands to the right of a bar. */
export function beside(model, i) {
  const length = span(model.end[i] - model.start[i]);
  switch (model.status[i]) {
    case RUNNING: return "";
    case FAILED: case BLOCKED: case INTERRUPTED: return reason(model, i);
    case CANCELLED: return `${length} · cancelled`;
    default:
  }
  if (model.kind[i] === TOOL || model.kind[i] === SCOPE) return `${model.col.name[i] ?? ""} · ${length}`;
  const perSecond = model.kind[i] === LLM ? rate(model, i) : null;
  return perSecond && perSecond >= 1 ? `${length} · ${model.col.usage_complete[i] === false ? "≥ " : ""}${Math.round(perSecond)} tok/s` : length;
}

/** The lines of the tip under the pointer. */
export function tip(model, i, now) {
  const { col } = model;
  const end = model.endOr(i, now);
  const lines = [`${name(model, i)}${meta(model, i) ? ` · ${meta(model, i)}` : ""}`];
  const running = model.status[i] === RUNNING;
  lines.push(`${span(end - model.start[i])}${running ? " so far" : ""}, from ${span(model.start[i])}`);
  if (model.kind[i] === LLM) {
    const facts = [];
    if (col.ttft_us[i] !== null) facts.push(`TTFT ${span(col.ttft_us[i] / 1e6)}`);
    const chunks = model.chunks.get(i)?.count ?? col.chunk_count[i];
    if (chunks) facts.push(plural(chunks, "chunk"));
    if (col.output_tokens[i] !== null) facts.push(`${col.usage_complete[i] || !(model.status[i] === FAILED) ? "" : "≥ "}${short(col.output_tokens[i])} tokens written`);
    if (col.cost_usd[i]) facts.push(money(col.cost_usd[i]));
    if (facts.length) lines.push(facts.join(" · "));
  }
  if (model.status[i] === FAILED || model.status[i] === BLOCKED || model.status[i] === INTERRUPTED) lines.push(reason(model, i));
  if (model.has(i, "late_child")) lines.push("began after its parent ended");
  if (model.has(i, "clock_skew")) lines.push("its clock ran differently: ended before it began");
  const hits = model.hits(i);
  if (hits.length) lines.push(hits.map((r) => `◆ ${r.key}${r.revision == null ? "" : ` r${r.revision}`}${r.mode === "shadow" ? " (shadow)" : ""}`).join(", "));
  return lines;
}

/**
 * What the turn cost, and why that is a lower bound where attempts have no price.
 * @param least what stands before sums of incomplete usage
 */
export function costWords(model, least) {
  const { cost_usd: sum, attempts } = model.turn;
  const cost = money(sum);
  const without = sum === null || sum === undefined ? [] : model.unpriced();
  if (!without.length) return [sum && !cost.startsWith("<") ? least + cost : cost, ""];
  const names = [...new Set(without.map((i) => model.col.model[i] ?? "an unknown model"))].join(", ");
  return [`≥ ${cost.startsWith("<") ? "$0" : cost}`, `Without ${without.length} of ${plural(attempts, "attempt")}, which have no price: ${names}`];
}

/** How many rewrites these nodes had, as the header of the turn counts them, and apart, with words for it, how many would have been. */
export function rewriteBadges(model, nodes) {
  const sum = (of) => nodes.reduce((total, i) => total + of.call(model, i).length, 0);
  const [changed, shadow] = [sum(model.changes), sum(model.shadows)];
  return [
    ...(changed ? [["badge plain k-intercept", "rewrite", String(changed)]] : []),
    ...(shadow ? [["badge plain k-intercept", "rewrite-s", String(shadow), `${shadow} in shadow`]] : []),
  ];
}
