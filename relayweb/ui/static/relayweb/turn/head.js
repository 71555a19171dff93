// The figures in the head of the page. The server drew them first; they change while the turn runs.
import { money, short, span } from "../format.js";
import { STATUSES } from "./model.js";
import { element, glyph } from "./tree.js";
import { costWords } from "./words.js";

export class Head {
  /** @param page element with the `[data-fact]` @param {{model, now: () => number, icons: string}} source */
  constructor(page, source) {
    Object.assign(this, { page, source });
  }

  place(key, said) {
    const at = this.page.querySelector(`[data-fact="${key}"]`);
    if (!at || at.dataset.said === said) return null;
    at.dataset.said = said;
    return at;
  }

  say(key, text, small = "") {
    this.place(key, `${text}|${small}`)?.replaceChildren(text, ...(small ? [" ", element("small", "", small)] : []));
  }

  show() {
    const { model } = this.source;
    const { turn } = model;
    const usage = turn.usage ?? {};
    const least = usage.complete === false && !model.running ? "≥ " : "";
    const known = (count) => (count === null || count === undefined ? "–" : least + short(count));
    this.status(turn.status, turn.awaiting_retry);
    this.duration();
    this.say("calls", String(turn.logical_calls ?? 0), turn.attempts > turn.logical_calls ? `/ ${turn.attempts} attempts` : "");
    this.say("rewrites", String(turn.rewrites ?? 0));
    this.say("read", known(usage.input_tokens), usage.cached_tokens ? `${short(usage.cached_tokens)} cached` : "");
    this.say("written", known(usage.output_tokens));
    const [cost, title] = costWords(model, least);
    this.say("cost", cost, turn.wasted_usd ? `${money(turn.wasted_usd)} wasted` : "");
    this.page.querySelector('[data-fact="cost"]')?.setAttribute("title", title);
  }

  /** A running turn whose last attempt failed says so, and until when a retry may come, where that is known. */
  status(status, awaiting) {
    const at = STATUSES.includes(status) && this.place("status", `${status}|${awaiting?.until_us}`);
    if (!at) return;
    const box = element("span", `status st-${status}`);
    box.append(glyph(this.source.icons, status, status === "running" ? "spin" : ""), element("span", "", status));
    at.replaceChildren(box);
    if (!awaiting) return;
    const until = awaiting.until_us ? ` until ${new Date(awaiting.until_us / 1000).toLocaleTimeString([], { hour12: false })}` : "";
    at.append(" ", element("small", "", `failed, waits for a retry${until}`));
  }

  duration() {
    const { model, now } = this.source;
    const us = model.turn.duration_us;
    this.say("duration", span(model.running ? now() : us === null || us === undefined ? NaN : us / 1e6));
  }
}
