// The inspector: fragments made by the server, one for each scope, tab and form. Here is only what moves: loading, replay, live text.
import { span } from "../format.js";
import { unanswered } from "../live.js";
import { Growing } from "./growing.js";
import { RUNNING, TOOL } from "./model.js";
import { rhythm } from "./strip.js";
import { element } from "./tree.js";

const KEEP = 24; // fragments kept, so that going back is instant
const UNANSWERED = Symbol("unanswered");

export class Inspector {
  /** @param host the pane @param {{url: (uuid: string) => string, model, stream: (uuid: string) => Promise<object|null>, state: object, changed: () => void}} page */
  constructor(host, page) {
    Object.assign(this, { host, page, cache: new Map(), replaying: null });
    host.addEventListener("click", (event) => this.click(event));
    host.addEventListener("change", (event) => this.change(event));
    host.addEventListener("keydown", (event) => this.key(event));
  }

  /** Shows what `page.state` says: {s, tab, form, a, b, against}. */
  show(how) {
    this.showing = this.renew(how);
    return this.showing;
  }

  async renew({ keepScroll = false } = {}) {
    const { state } = this.page;
    clearTimeout(this.again);
    this.stopReplay();
    if (!state.s) return;
    const query = new URLSearchParams();
    for (const name of ["tab", "form", "a", "b", "against", "diff"]) if (state[name] !== undefined && state[name] !== null) query.set(name, state[name]);
    const url = `${this.page.url(state.s)}?${query}`;
    this.url = url;
    this.said = this.sign();
    this.known = this.page.model.count;
    this.host.setAttribute("aria-busy", "true");
    const html = this.cache.get(url) ?? (await this.fetch(url));
    if (this.url !== url || html === null) return;
    if (html !== UNANSWERED) {
      this.tries = 0;
      this.put(html, keepScroll);
      return;
    }
    // What is shown stays until there is an answer.
    if (!keepScroll) this.put(this.failure("The server did not answer.", "Nothing is lost: this page asks again until it does."), false);
    this.tries = (this.tries ?? 0) + 1;
    this.again = setTimeout(() => this.show({ keepScroll: true }), Math.min(10_000, 250 * 2 ** this.tries));
  }

  async fetch(url) {
    this.abort?.abort();
    this.abort = new AbortController();
    try {
      const answer = await fetch(url, { signal: this.abort.signal, headers: { "x-requested-with": "fetch" } });
      if (answer.redirected && new URL(answer.url).pathname.startsWith("/login")) {
        location.reload();
        return null;
      }
      if (unanswered(answer)) return UNANSWERED;
      if (!answer.ok) return this.failure(`The server answered ${answer.status}.`, answer.status === 404 ? "This scope is not on record; it may have been pruned." : "The fault is written in its log. Nothing recorded is lost.");
      const html = await answer.text();
      if (answer.ok && answer.headers.get("x-final") === "1") {
        if (this.cache.size >= KEEP) this.cache.delete(this.cache.keys().next().value);
        this.cache.set(url, html);
      }
      return html;
    } catch (error) {
      return error.name === "AbortError" ? null : UNANSWERED;
    }
  }

  failure(title, text) {
    const box = element("div", "state");
    box.append(element("b", "", title), element("p", "", text));
    return box.outerHTML;
  }

  put(html, keepScroll) {
    const scroll = keepScroll ? this.panel?.scrollTop : 0;
    const focused = this.host.contains(document.activeElement) ? document.activeElement : null;
    const again = focused?.id || (focused?.getAttribute("role") === "tab" && `tab-${focused.dataset.tab}`);
    // Made by our own templates, which escape everything that was recorded.
    const parsed = new DOMParser().parseFromString(html, "text/html");
    this.host.replaceChildren(...parsed.body.childNodes);
    this.host.removeAttribute("aria-busy");
    this.panel = this.host.querySelector(".tabpanel");
    if (this.panel && scroll) this.panel.scrollTop = scroll;
    if (again) document.getElementById(again)?.focus({ preventScroll: true });
    const tab = this.host.querySelector('[role="tab"][aria-selected="true"]');
    // Only the row of tabs scrolls to it, not the page.
    const row = tab?.closest(".tabs");
    const beside = row?.querySelector(".right")?.offsetWidth ?? 0;
    if (row) row.scrollLeft = Math.max(0, tab.offsetLeft + tab.offsetWidth + beside - row.clientWidth + 24);
    this.connect();
  }

  /** Gives the strip its stream, and running text its listener. */
  async connect() {
    const strip = this.host.querySelector("relay-strip");
    this.listenTo(null, null);
    if (!strip) return;
    const stream = await this.page.stream(strip.dataset.attempt);
    if (stream && strip.isConnected) strip.show(stream);
    const live = this.host.querySelector("[data-live-text]");
    if (live) this.listenTo(strip.dataset.attempt, live);
  }

  listenTo(uuid, into) {
    const { model } = this.page;
    if (this.heard) this.heard.chunks.listen = undefined;
    // The fragment holds what had arrived when it was made; after a lost connection the text goes on where it was.
    const next = into && this.heard?.into === into ? this.heard.text.next : Number(into?.dataset.from ?? 0);
    this.heard = null;
    const chunks = uuid ? model.chunks.get(model.find(uuid)) : null;
    if (!chunks) return;
    const text = new Growing(next, (said, kind) => appendText(into, said, kind), () => this.page.texts(uuid));
    this.heard = { chunks, into, text };
    chunks.listen = (k, said, kind) => text.hear(k, said, kind);
    if (chunks.count > next) text.fill();
  }

  /** Called after each frame: what is selected may have grown or ended. */
  update({ nodes, chunks }) {
    const { model, state } = this.page;
    const i = model.find(state.s ?? "");
    if (i < 0) return;
    if (chunks) this.refreshStrip();
    if (!nodes) return;
    const said = this.sign();
    if (said === this.said && !this.overtaken()) return;
    this.said = said;
    this.refresh();
  }

  /** What of the chosen scope the panel tells, in brief; taken when the panel is asked for. */
  sign() {
    const { model, state } = this.page;
    const i = model.find(state.s ?? "");
    return i < 0 ? "" : JSON.stringify([state.s, model.status[i], model.col.rewrites[i]?.length, model.col.finish_reason[i], model.col.name[i], model.children(i).length, model.endUs[i]]);
  }

  /** Whether a tool that the panel shows as running has ended, or one that it asked for has begun. */
  overtaken() {
    const { model } = this.page;
    const ended = (link) => model.find(link.dataset.select) >= 0 && model.status[model.find(link.dataset.select)] !== RUNNING;
    if ([...this.host.querySelectorAll("[data-running]")].some(ended)) return true;
    const awaited = new Set(Array.from(this.host.querySelectorAll("[data-awaits]"), (call) => call.dataset.awaits));
    for (let i = this.known; awaited.size && i < model.count; i += 1) if (model.kind[i] === TOOL && awaited.has(model.col.name[i])) return true;
    return false;
  }

  refresh() {
    clearTimeout(this.refreshing);
    this.refreshing = setTimeout(() => {
      if (this.replaying || this.host.matches(":has(select:focus)")) return;
      this.cache.clear();
      this.show({ keepScroll: true });
    }, 250);
  }

  async refreshStrip() {
    const strip = this.host.querySelector("relay-strip");
    if (!strip || this.replaying) return;
    const stream = await this.page.stream(strip.dataset.attempt);
    if (stream && !this.replaying) strip.show(stream);
    const count = this.host.querySelector("[data-chunk-count]");
    if (stream && count) count.textContent = String(stream.count);
    const live = this.host.querySelector("[data-live-text]");
    if (stream && live) this.showRhythm(stream);
    if (live && (!this.heard || this.heard.chunks !== this.page.model.chunks.get(this.page.model.find(strip.dataset.attempt)))) this.listenTo(strip.dataset.attempt, live);
  }

  showRhythm(stream) {
    const now = performance.now();
    if (now - (this.figured ?? -Infinity) < 250) return;
    this.figured = now;
    const figures = rhythm(stream).map(([name, seconds]) => {
      const figure = element("span", "", `${name} `);
      figure.append(element("b", "", span(seconds)));
      return figure;
    });
    this.host.querySelector("[data-rhythm]")?.replaceChildren(...figures);
  }

  set(changes) {
    Object.assign(this.page.state, changes);
    this.page.changed();
    return this.show();
  }

  click(event) {
    const target = event.target.closest("button, a, [data-load]");
    if (!target) return;
    const { tab, form, stage, load, verb, select } = target.dataset;
    // All tabs control one panel, made anew by the server: the page's own tab script must not hide it.
    if (tab) event.stopPropagation();
    if (tab) this.set({ tab, form: undefined, diff: undefined });
    else if (form) this.set({ form });
    else if (target.dataset.diff) this.set({ diff: target.dataset.diff });
    else if (stage !== undefined) this.pickStage(Number(stage), event.shiftKey);
    else if (load) this.load(target);
    else if (verb === "replay") this.replay();
    else if (verb === "diff") this.diff();
    else if (verb === "step") this.stepChange(Number(target.dataset.by));
    else if (verb === "copy") this.copy(target);
    else if (select) this.page.select(select);
    else return;
    event.preventDefault();
  }

  change(event) {
    const side = event.target.dataset.pick;
    if (side) this.set({ [side]: event.target.value });
  }

  /** An intercept is compared with what came before it, the ends with each other; with shift it becomes the left side. */
  pickStage(stage, left) {
    const last = this.host.querySelectorAll("[data-stage]").length - 1;
    if (left) this.set({ a: stage });
    else if (stage === 0 || stage === last) this.set({ a: undefined, b: undefined });
    else this.set({ a: stage - 1, b: stage });
  }

  diff() {
    const against = this.host.querySelector("[data-against]")?.dataset.against;
    this.set({ tab: "rewrites", against: this.page.state.against ? undefined : against, a: undefined, b: undefined });
  }

  key(event) {
    const tab = event.target.closest?.('[role="tab"]');
    const steps = { ArrowRight: 1, ArrowLeft: -1 };
    if (!tab || !(event.key in steps)) return;
    event.preventDefault();
    event.stopPropagation();
    const tabs = [...this.host.querySelectorAll('[role="tab"]')];
    const next = tabs[(tabs.indexOf(tab) + steps[event.key] + tabs.length) % tabs.length];
    next.focus();
    this.set({ tab: next.dataset.tab, form: undefined });
  }

  /** Loads what was left out: into the slot named by the button, else instead of the nearest `[data-slot]`. */
  async load(button) {
    const whole = "whole" in button.dataset;
    const slot = button.closest(whole ? "tbody" : "[data-slot]");
    if (!slot || button.disabled) return;
    button.disabled = true;
    button.setAttribute("aria-busy", "true");
    const answer = await fetch(button.dataset.load, { headers: { "x-requested-with": "fetch" } }).catch(() => null);
    if (!answer?.ok) {
      button.disabled = false;
      button.textContent = "Not loaded; try again";
      return;
    }
    const text = await answer.text();
    if (answer.headers.get("content-type")?.startsWith("text/plain")) {
      slot.textContent = text;
      slot.tabIndex = -1;
    } else {
      const parsed = new DOMParser().parseFromString(whole ? `<table><tbody>${text}` : text, "text/html");
      if (whole) slot.replaceChildren(...parsed.querySelectorAll("tbody > tr"));
      else slot.replaceWith(...parsed.body.childNodes);
    }
  }

  async copy(button) {
    const source = button.dataset.from ? await fetch(button.dataset.from).then((answer) => answer.text()) : button.closest("article, section")?.querySelector("[data-copy-text], .text, .code")?.innerText ?? "";
    try {
      await navigator.clipboard.writeText(source);
      button.classList.add("done");
      button.title = "Copied";
    } catch {
      button.title = "The browser did not allow it";
    }
    setTimeout(() => button.classList.remove("done"), 1500);
  }

  /** Moves through the changed lines of the request with blame. */
  stepChange(by) {
    const marks = [...this.host.querySelectorAll(".blamed .first")];
    if (!marks.length) return;
    this.change_ = ((this.change_ ?? (by > 0 ? -1 : 0)) + by + marks.length) % marks.length;
    for (const mark of marks) mark.classList.remove("at");
    marks[this.change_].classList.add("at");
    marks[this.change_].scrollIntoView({ block: "center" });
    const where = this.host.querySelector("[data-change-at]");
    if (where) where.textContent = `${this.change_ + 1} of ${marks.length}`;
  }

  /** Plays the stream at the pace it came: strip, text and clock. Pressing again ends it. */
  async replay() {
    if (this.replaying) {
      this.stopReplay();
      return;
    }
    await this.showing; // a panel that is still on its way would take the replay with it
    const strip = this.host.querySelector("relay-strip");
    if (!strip) {
      if (this.host.querySelector('[data-tab="response"]')) await this.set({ tab: "response" });
      if (!this.host.querySelector("relay-strip")) return;
      this.replay();
      return;
    }
    const uuid = strip.dataset.attempt;
    const [stream, texts] = await Promise.all([this.page.stream(uuid), this.page.texts(uuid)]);
    if (!stream?.count || this.replaying) return;
    if (!strip.isConnected) return this.replay();
    const box = element("div", "replay");
    const text = element("div", "replaytext");
    text.setAttribute("aria-live", "off");
    const time = element("span", "mono faint");
    box.append(time, text);
    strip.closest(".strip").after(box);
    const button = this.host.querySelector('[data-verb="replay"]');
    button?.setAttribute("aria-pressed", "true");
    const length = stream.t[stream.count - 1] - stream.start;
    const run = { box, button, strip, stream };
    this.replaying = run;
    const began = performance.now();
    let shown = 0;
    const frame = () => {
      if (this.replaying !== run || !strip.isConnected) return;
      const at = (performance.now() - began) / 1000;
      while (shown < stream.count && stream.t[shown] - stream.start <= at) {
        if (texts[shown]?.text) appendText(text, texts[shown].text, texts[shown].kind);
        shown += 1;
      }
      box.scrollTop = box.scrollHeight;
      time.textContent = `${span(Math.min(at, length))} of ${span(length)} · chunk ${shown} of ${stream.count}`;
      strip.show(stream, stream.start + at);
      if (at < length + 0.05) requestAnimationFrame(frame);
      else {
        strip.show(stream);
        time.textContent = `Replayed in ${span(length)}. Press r to close.`;
      }
    };
    frame();
  }

  stopReplay() {
    if (!this.replaying) return;
    const { box, button, strip, stream } = this.replaying;
    this.replaying = null;
    box.remove();
    button?.setAttribute("aria-pressed", "false");
    if (strip.isConnected) strip.show(stream);
  }
}

const KIND_CLASS = { 1: "c-reasoning", 2: "c-args", r: "c-reasoning", a: "c-args" };

/** Adds text in the colour of its kind; neighbours of one kind share an element. Always as text, never as markup. */
export function appendText(into, text, kind) {
  const tone = KIND_CLASS[kind] ?? "c-plain";
  let last = into.lastElementChild;
  if (!last || last.className !== tone) {
    last = element("span", tone);
    into.append(last);
  }
  last.append(text);
}

