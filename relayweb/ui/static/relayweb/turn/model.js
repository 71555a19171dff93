// One turn as columns: what the tree, the timeline and the inspector share. Pure: frames in, numbers out.
// Times are seconds from the start of the turn; the end of a running scope is NaN.

export const KINDS = ["k-mark", "k-llm", "k-call", "k-tool", "k-agent", "k-guardrail"];
export const [SCOPE, LLM, CALL, TOOL, AGENT, GUARDRAIL] = KINDS.keys();
export const STATUSES = ["running", "ok", "failed", "cancelled", "blocked", "interrupted"];
export const [RUNNING, OK, FAILED, CANCELLED, BLOCKED, INTERRUPTED] = STATUSES.keys();
export const CHUNK_KINDS = ["c-text", "c-reasoning", "c-args", "c-other"];

const ROLE_KIND = { session: AGENT, turn: AGENT, subagent: AGENT, logical_call: CALL, attempt: LLM, tool: TOOL };
const TEXT_COLUMNS = [
  "uuid", "role", "category", "name", "outcome", "flags", "call_role", "retries", "provider", "model", "api_mode", "attempt",
  "streaming", "chunk_count", "finish_reason", "output_tokens", "usage_complete", "error", "rewrites", "asked", "cost_usd", "ttft_us", "api_request_id",
];
const CHUNK_LETTER = { t: 0, r: 1, a: 2 };
const EARLY = 5000; // chunks that may wait for the ones before them

const grown = (array, size) => {
  if (array.length >= size) return array;
  const next = new array.constructor(Math.max(size, array.length * 2, 64));
  next.set(array);
  return next;
};

export class TurnModel {
  constructor() {
    this.index = new Map();
    this.count = 0;
    this.turn = {};
    this.col = Object.fromEntries(TEXT_COLUMNS.map((name) => [name, []]));
    this.parentUuid = [];
    this.startUs = new Float64Array(0);
    this.endUs = new Float64Array(0);
    this.start = new Float64Array(0);
    this.end = new Float64Array(0);
    this.kind = new Uint8Array(0);
    this.status = new Uint8Array(0);
    this.parent = new Int32Array(0);
    this.ordinal = new Int32Array(0);
    this.chunks = new Map();
    this.hints = new Map(); // what tools were called with, by uuid
    this.origin = NaN;
    this.latest = 0;
    this.unlinked = true;
  }

  /** Applies a frame of docs/live.md. Returns what must be redone: {shape, nodes, chunks}, shape when the tree itself changed. */
  apply(frame) {
    const done = { shape: false, nodes: false, chunks: false };
    if (frame.turn) Object.assign(this.turn, frame.turn);
    if (frame.nodes?.uuid?.length) {
      done.nodes = true;
      done.shape = this.upsert(frame.nodes);
    }
    if (this.unlinked) this.link();
    if (frame.chunks?.attempt?.length) {
      done.chunks = true;
      this.addChunks(frame.chunks);
    }
    return done;
  }

  upsert(columns) {
    const { uuid } = columns;
    const size = this.count + uuid.length;
    for (const name of ["startUs", "endUs", "start", "end", "kind", "status", "parent", "ordinal"]) this[name] = grown(this[name], size);
    const present = TEXT_COLUMNS.filter((name) => columns[name]);
    let shape = false;
    for (let row = 0; row < uuid.length; row += 1) {
      let i = this.index.get(uuid[row]);
      if (i === undefined) {
        i = this.count;
        this.count += 1;
        this.index.set(uuid[row], i);
        for (const name of TEXT_COLUMNS) this.col[name][i] = null;
        shape = true;
      }
      for (const name of TEXT_COLUMNS) this.col[name][i] = null;
      for (const name of present) this.col[name][i] = columns[name][row];
      const parent = columns.parent_uuid?.[row] ?? null;
      if (this.parentUuid[i] !== parent) shape = true;
      this.parentUuid[i] = parent;
      const category = this.col.category[i];
      this.kind[i] = ROLE_KIND[this.col.role[i]] ?? (category === "guardrail" ? GUARDRAIL : category === "llm" ? LLM : SCOPE);
      const status = STATUSES.indexOf(columns.status?.[row]);
      const next = status < 0 ? (columns.end_us?.[row] == null ? RUNNING : OK) : status;
      if (this.status[i] !== next) shape = true;
      this.status[i] = next;
      const start = columns.start_us?.[row] ?? NaN;
      if (this.startUs[i] !== start) shape = true;
      this.startUs[i] = start;
      const end = columns.end_us?.[row] ?? null;
      this.endUs[i] = end ?? NaN;
    }
    this.unlinked = this.unlinked || shape;
    this.place();
    return shape;
  }

  /** Puts times on the scale of the turn. An end before its start is drawn as no length at all. */
  place() {
    let origin = this.turn.start_us ?? NaN;
    if (!(origin >= 0)) {
      origin = Infinity;
      for (let i = 0; i < this.count; i += 1) if (this.startUs[i] < origin) origin = this.startUs[i];
    }
    const moved = origin !== this.origin;
    if (moved) {
      for (const chunks of this.chunks.values()) {
        for (let k = 0; k < chunks.count; k += 1) chunks.t[k] += (this.origin - origin) / 1e6;
      }
      this.origin = origin;
    }
    this.latest = 0;
    for (let i = 0; i < this.count; i += 1) {
      const known = Number.isNaN(this.startUs[i]) ? this.endUs[i] : this.startUs[i];
      this.start[i] = Number.isNaN(known) ? 0 : (known - origin) / 1e6;
      this.end[i] = this.status[i] === RUNNING ? NaN : Math.max(this.start[i], Number.isNaN(this.endUs[i]) ? this.start[i] : (this.endUs[i] - origin) / 1e6);
      const last = Number.isNaN(this.end[i]) ? this.start[i] : this.end[i];
      if (last > this.latest) this.latest = last;
    }
  }

  /** Children by start, as one array with offsets; numbers of calls within their turn or sub-agent. */
  link() {
    const { count } = this;
    this.unlinked = false;
    const sizes = new Int32Array(count + 2);
    for (let i = 0; i < count; i += 1) {
      // Whose parent is not on record hangs under the turn, so that nothing is lost.
      const parent = this.index.get(this.parentUuid[i]) ?? this.index.get(this.turn.uuid) ?? -1;
      this.parent[i] = parent === i || this.col.uuid[i] === this.turn.uuid ? -1 : parent;
    }
    this.cutLoops();
    for (let i = 0; i < count; i += 1) sizes[this.parent[i] + 2] += 1;
    for (let i = 1; i < sizes.length; i += 1) sizes[i] += sizes[i - 1];
    this.offsets = sizes.slice(0, count + 2);
    const fill = this.offsets.slice();
    this.kids = new Int32Array(count);
    const order = Int32Array.from({ length: count }, (_, i) => i);
    order.sort((a, b) => this.start[a] - this.start[b] || a - b);
    for (const i of order) {
      this.kids[fill[this.parent[i] + 1]] = i;
      fill[this.parent[i] + 1] += 1;
    }
    this.order = order;
    this.number(order);
  }

  /** Whoever claims to be an ancestor of itself becomes a root: a broken stream must not hang the page. */
  cutLoops() {
    const seen = new Int32Array(this.count);
    for (let i = 0; i < this.count; i += 1) {
      let at = i;
      while (at >= 0 && seen[at] === 0) {
        seen[at] = i + 1;
        at = this.parent[at];
      }
      if (at >= 0 && seen[at] === i + 1) this.parent[at] = -1;
    }
  }

  number(order) {
    const counters = new Map();
    for (const i of order) {
      if (this.kind[i] !== CALL) continue;
      // Side tasks are known by their own names and do not disturb the numbers of the rest.
      const role = this.col.call_role[i];
      const key = `${this.home(i)}${role?.includes(":") ? role : ""}`;
      counters.set(key, (counters.get(key) ?? 0) + 1);
      this.ordinal[i] = counters.get(key);
    }
  }

  /** The turn or sub-agent a scope belongs to, -1 where there is none. */
  home(i) {
    let at = this.parent[i];
    while (at >= 0 && this.kind[at] !== AGENT) at = this.parent[at];
    return at;
  }

  children(i) {
    return this.kids.subarray(this.offsets[i + 1], this.offsets[i + 2]);
  }

  get roots() {
    return this.children(-1);
  }

  /** Rows of chunks in columns. Repeats only tell what was not known yet; what comes before its turn waits, and `stale` asks for all of them. */
  addChunks(columns) {
    const { attempt, index } = columns;
    for (let row = 0; row < attempt.length; row += 1) {
      const i = this.index.get(attempt[row]);
      if (i === undefined) continue;
      const chunks = this.chunksOf(i);
      const chunk = { at: columns.at_us[row], kind: CHUNK_LETTER[columns.kind?.[row]] ?? 3, size: columns.size?.[row] ?? 0, text: columns.text?.[row] ?? null };
      if (index[row] > chunks.count) {
        chunks.stale = true;
        if (chunks.early.size < EARLY) chunks.early.set(index[row], chunk);
        continue;
      }
      this.setChunk(chunks, index[row], chunk);
      for (let next = chunks.early.get(chunks.count); next; next = chunks.early.get(chunks.count)) {
        chunks.early.delete(chunks.count);
        this.setChunk(chunks, chunks.count, next);
        if (!chunks.early.size) chunks.stale = false;
      }
    }
  }

  chunksOf(i) {
    let chunks = this.chunks.get(i);
    if (!chunks) {
      chunks = { t: new Float64Array(64), k: new Uint8Array(64), n: new Uint32Array(64), count: 0, stale: false, early: new Map() };
      this.chunks.set(i, chunks);
    }
    return chunks;
  }

  setChunk(chunks, k, { at, kind, size, text }) {
    if (k === chunks.count) {
      for (const name of ["t", "k", "n"]) chunks[name] = grown(chunks[name], k + 1);
      chunks.t[k] = (at - this.origin) / 1e6;
      chunks.k[k] = kind;
      chunks.count = k + 1;
      chunks.stalls = undefined;
    }
    if (size) chunks.n[k] = size;
    if (kind !== 3) chunks.k[k] = kind;
    if (text !== null) chunks.listen?.(k, text, kind);
  }

  find(uuid) {
    return this.index.get(uuid) ?? -1;
  }

  endOr(i, now) {
    return Number.isNaN(this.end[i]) ? Math.max(now, this.start[i]) : this.end[i];
  }

  /** What intercepts did to a call, or in shadow mode would have. */
  hits(i) {
    return (this.col.rewrites[i] ?? []).filter((r) => r.result !== "miss");
  }

  /** Of these what a turn counts as its rewrites: it changed, answered or stopped the call. */
  changes(i) {
    return (this.col.rewrites[i] ?? []).filter((r) => r.changed);
  }

  shadows(i) {
    return this.hits(i).filter((r) => r.mode === "shadow" && r.result !== "error");
  }

  has(i, flag) {
    return this.col.flags[i]?.includes(flag) ?? false;
  }

  get running() {
    return this.turn.status === "running";
  }

  /** Attempts of the turn itself whose tokens are known and whose price is not: the sum of its costs leaves them out. */
  unpriced() {
    const { role, output_tokens: tokens, cost_usd: cost } = this.col;
    const own = this.find(this.turn.uuid);
    const found = [];
    for (let i = 0; i < this.count; i += 1) {
      if (role[i] === "attempt" && tokens[i] !== null && cost[i] === null && this.status[i] !== RUNNING && this.home(i) === own) found.push(i);
    }
    return found;
  }

  /** Indices of failed, blocked and interrupted work, by start. */
  troubles() {
    const bad = [];
    for (const i of this.order) {
      if ((this.kind[i] === LLM || this.kind[i] === TOOL || this.kind[i] === GUARDRAIL) && (this.status[i] === FAILED || this.status[i] === BLOCKED || this.status[i] === INTERRUPTED)) bad.push(i);
    }
    return bad;
  }
}

/** Gaps over five times the median and a quarter of a second: pairs of [from, to] in seconds. */
export function stalls(chunks) {
  if (chunks.stalls) return chunks.stalls;
  const gaps = new Float64Array(Math.max(0, chunks.count - 1));
  for (let k = 1; k < chunks.count; k += 1) gaps[k - 1] = chunks.t[k] - chunks.t[k - 1];
  const median = quantile(gaps, 0.5);
  const list = [];
  if (gaps.length >= 4) {
    for (let k = 0; k < gaps.length; k += 1) {
      if (gaps[k] > Math.max(5 * median, 0.25)) list.push([chunks.t[k], chunks.t[k + 1], k]);
    }
  }
  chunks.stalls = list;
  return list;
}

/** The share-quantile of numbers, by nearest rank; NaN of none. */
export function quantile(numbers, share) {
  if (!numbers.length) return NaN;
  const sorted = Float64Array.from(numbers).sort();
  return sorted[Math.min(sorted.length - 1, Math.max(0, Math.ceil(share * sorted.length) - 1))];
}
