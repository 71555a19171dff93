// What the frame of a turn leaves out, fetched when somebody looks: chunks, their texts, and what tools were called with.
import { ask } from "../live.js";
import { RUNNING } from "./model.js";

const NOTHING = { t: new Float64Array(0), k: new Uint8Array(0), n: new Uint32Array(0), count: 0 };

export class Loading {
  /** @param urls {chunks, hints} @param now seconds from the turn's start @param loaded is told what changed in the model */
  constructor(model, { urls, now, loaded }) {
    Object.assign(this, { model, urls, now, loaded, asked: new Map() });
  }

  /** Loads the chunks of attempts, times and kinds only; waits also for those that are under way. */
  async chunks(nodes) {
    const { asked } = this;
    const fresh = nodes.filter((i) => !asked.has(i));
    if (fresh.length) {
      const answer = this.fetched(fresh).finally(() => {
        for (const i of fresh) if (asked.get(i) === answer) asked.delete(i);
      });
      for (const i of fresh) asked.set(i, answer);
    }
    await Promise.all(nodes.map((i) => asked.get(i)));
  }

  async fetched(nodes) {
    const query = new URLSearchParams({ attempt: nodes.map((i) => this.model.col.uuid[i]).join(",") });
    const frame = await ask(`${this.urls.chunks}?${query}`);
    if (frame) this.loaded(this.model.apply({ chunks: frame.chunks }));
  }

  /** Learns what some tools were called with; false where nothing came. */
  async hint(tools) {
    const told = await ask(`${this.urls.hints}?${new URLSearchParams({ scope: tools.join(",") })}`);
    if (!told) return false;
    for (const [tool, words] of Object.entries(told.hints)) this.model.hints.set(tool, words);
    return true;
  }

  /** The whole stream of an attempt; null for one that is not of this turn. */
  async stream(attempt) {
    const { model } = this;
    const i = model.find(attempt);
    if (i < 0) return null;
    const held = model.chunks.get(i);
    if (!held || held.stale || (model.status[i] !== RUNNING && held.count < (model.col.chunk_count[i] ?? 0))) await this.chunks([i]);
    const { t, k, n, count } = model.chunks.get(i) ?? NOTHING;
    const ttft = model.col.ttft_us[i];
    return { t, k, n, count, start: model.start[i], end: model.endOr(i, this.now()), ttft: ttft === null ? NaN : ttft / 1e6 };
  }

  /** What each chunk of an attempt says. */
  async texts(attempt) {
    const told = await ask(`${this.urls.chunks}?${new URLSearchParams({ attempt, text: "1" })}`);
    return told?.chunks.text.map((text, k) => ({ text, kind: told.chunks.kind[k] })) ?? [];
  }
}
