// The turn page: one model, four views of it, one selection, and all of it in the URL.
import { span } from "../format.js";
import { ask, Live, bindChip } from "../live.js";
import { typing } from "../shell.js";
import { splitters } from "../splitters.js";
import { readUrl, writeUrl } from "./address.js";
import { Head } from "./head.js";
import { Inspector } from "./inspector.js";
import { Loading } from "./loading.js";
import { LLM, TurnModel } from "./model.js";
import { Moment } from "./moment.js";
import { Sheet } from "./sheet.js";
import { waited } from "./gaps.js";
import "./timeline.js";
import { element } from "./tree.js";
import { attemptsOf, name } from "./words.js";

const page = document.querySelector("[data-turn]");
const { turn: uuid, hints: hintsUrl, frame: frameUrl, chunks: chunksUrl, socket, scopes: scopeUrl } = page.dataset;
const tree = page.querySelector("relay-tree");
const timeline = page.querySelector("relay-timeline");
const sheet = new Sheet(page.querySelector("#spans"));
const model = new TurnModel();
const state = readUrl();
let live = null;
let chasing = state.s === undefined;

// ---- Data ----
const now = () => (model.running ? Math.max((live?.now() ?? Date.now() * 1000) - model.origin, 0) / 1e6 : NaN);

const head = new Head(page, { model, now, icons: tree.dataset.icons });
const loading = new Loading(model, { urls: { chunks: chunksUrl, hints: hintsUrl }, now, loaded: spread });
const [load, hint, stream, texts] = ["chunks", "hint", "stream", "texts"].map((what) => loading[what].bind(loading));

/** Tells the views what a frame changed. */
function spread(done) {
  if (!(done.shape || done.nodes || done.chunks)) return;
  if (done.shape) {
    chase();
    sheet.renew();
    showWaited();
  }
  tree.update(done);
  timeline.update(done);
  inspector.update(done);
  if (done.nodes) foot();
}

function apply(frame) {
  if (frame.resync) {
    model.chunks.clear();
    loading.asked.clear();
  }
  const done = model.apply(frame);
  done.chunks ||= frame.resync;
  if (frame.turn) head.show();
  spread(done);
}

// ---- Foot of the tree ----
function foot() {
  const { scopes, failed, blocked, interrupted } = tree.summary();
  const at = page.querySelector(".pane-tree .panefoot");
  const parts = [element("span", "", scopes), element("span", "grow")];
  for (const [status, count] of Object.entries({ failed, blocked, interrupted })) if (count) parts.push(element("span", `tint st-${status}`, `${count} ${status}`));
  at.replaceChildren(...parts);
  const bad = failed + blocked + interrupted;
  page.querySelector('[data-verb="error"]').disabled = !bad;
}

// ---- Selection ----
const inspector = new Inspector(page.querySelector("#inspector"), { url: (scope) => scopeUrl.replace("00000000-0000-0000-0000-000000000000", scope), model, state, stream, texts, changed: () => writeUrl(state), select: selectUuid });

const moment = new Moment(page.querySelector("#pane-3"), {
  model, now, load, texts, sheet: tree.dataset.icons,
  select: (i) => {
    moment.close();
    select(i);
  },
  closed: () => timeline.travel(NaN),
});

/** Steps the moment through what happened: the next start, end or chunk of what is open. */
function stepMoment(by) {
  const times = new Set();
  for (let i = 0; i < model.count; i += 1) {
    times.add(model.start[i]);
    if (!Number.isNaN(model.end[i])) times.add(model.end[i]);
  }
  for (const chunks of model.chunks.values()) for (let k = 0; k < chunks.count; k += 1) times.add(chunks.t[k]);
  const sorted = [...times].sort((a, b) => a - b);
  const next = by > 0 ? sorted.find((t) => t > timeline.at + 1e-6) : sorted.findLast((t) => t < timeline.at - 1e-6);
  if (next !== undefined) timeline.travel(next);
}

function select(i, { push = true, from = null, chased = false } = {}) {
  if (i < 0) return;
  if (!chased) chasing = false;
  const next = model.col.uuid[i];
  const same = state.s === next;
  if (!same) Object.assign(state, { s: next, a: undefined, b: undefined, against: undefined, diff: undefined, form: undefined });
  tree.select(i);
  timeline.select(i, from !== timeline);
  sheet.reveal([next, ...Array.from(attemptsOf(model, i), (at) => model.col.uuid[at])]);
  if (!same) {
    writeUrl(state, push);
    inspector.show();
  }
}

function selectUuid(next) {
  const i = model.find(next);
  if (i >= 0) select(i);
}

/** What is worth seeing first: trouble, else the newest answer, else the turn. */
function first() {
  const bad = model.troubles();
  if (!model.running && model.turn.status === "failed" && bad.length) return bad.at(-1);
  for (let k = model.order.length - 1; k >= 0; k -= 1) if (model.kind[model.order[k]] === LLM) return model.order[k];
  return model.find(uuid);
}

/** While following, the newest attempt is what is looked at; the first choice of the reader ends that. */
function chase() {
  if (!timeline.follow || !chasing || !model.running) return;
  const i = first();
  if (i >= 0 && model.col.uuid[i] !== state.s) select(i, { push: false, chased: true });
}

function nextError(by = 1) {
  const bad = model.troubles();
  if (!bad.length) return;
  const at = bad.indexOf(model.find(state.s));
  const i = at >= 0 ? bad[(at + by + bad.length) % bad.length] : by > 0 ? bad[0] : bad.at(-1);
  select(i);
}

function slowest() {
  let best = -1;
  const length = (i) => model.endOr(i, now()) - model.start[i];
  for (let i = 0; i < model.count; i += 1) if (model.kind[i] === LLM && (best < 0 || length(i) > length(best))) best = i;
  select(best);
}

/** Event by event: the next scope by the time it began. */
function stepTime(by) {
  const at = model.order.indexOf(model.find(state.s));
  const i = model.order[Math.max(0, Math.min(model.order.length - 1, at + by))];
  if (i !== undefined) select(i);
}

// ---- Controls ----
function follow(on) {
  timeline.follow = on;
  chasing = on;
  if (on) chase();
  if (on && timeline.fitted) {
    const length = Math.min(timeline.domain, 30);
    timeline.fitted = timeline.domain <= 30;
    timeline.view = { from: timeline.domain - length, to: timeline.domain };
  }
  showFollow();
  timeline.dirty();
}

function showFollow() {
  const button = page.querySelector('[data-verb="follow"]');
  button.setAttribute("aria-pressed", String(timeline.follow));
  button.hidden = !model.running && !timeline.follow;
}

/** How long nothing worked, and whether that is pressed together. */
function showWaited() {
  const box = page.querySelector("[data-waited]");
  timeline.settleLanes();
  const seconds = waited(timeline.gaps);
  // Little waiting is not worth a word; what is pressed can always be let go.
  box.hidden = !(timeline.press || seconds > 0.05 * model.latest);
  if (box.hidden) return;
  box.querySelector("span").textContent = `${span(seconds)} of waiting, ${Math.round((100 * seconds) / Math.max(model.latest, 1e-9))} %`;
  const button = box.querySelector("button");
  button.setAttribute("aria-pressed", String(timeline.press));
  button.textContent = timeline.press ? "Compressed" : "Compress";
}

function compress(on = !timeline.press) {
  state.press = on ? "1" : undefined;
  timeline.compress(on);
  writeUrl(state);
  showWaited();
}

/** The same turn as "lanes", "table" or "transcript". */
function show(view) {
  const others = ["table", "transcript"];
  state.view = others.includes(view) ? view : undefined;
  writeUrl(state);
  timeline.hidden = Boolean(state.view);
  page.dataset.view = state.view ?? "lanes";
  for (const button of page.querySelectorAll("[data-view]")) button.setAttribute("aria-pressed", String(button.dataset.view === page.dataset.view));
  page.querySelector(".pane-timeline h2").textContent = { table: "Spans", transcript: "Conversation" }[state.view] ?? "Timeline";
  sheet.show(state.view);
  if (!state.view) timeline.dirty();
}

const verbs = {
  fit: () => timeline.fit(),
  in: () => timeline.zoom(1 / 1.4),
  out: () => timeline.zoom(1.4),
  follow: () => follow(!timeline.follow),
  compress: () => compress(),
  error: () => nextError(),
  slowest,
  "fold-all": () => tree.foldAll(false),
  "open-all": () => tree.foldAll(true),
};

const panes = [".trow[tabindex='0']", "relay-timeline", "#inspector [role=tab][aria-selected=true]", "#inspector .tabpanel"];

const keys = {
  j: () => tree.step(1),
  k: () => tree.step(-1),
  w: verbs.in,
  s: verbs.out,
  a: () => timeline.pan(-0.15),
  d: () => timeline.pan(0.15),
  f: verbs.fit,
  c: verbs.compress,
  z: () => timeline.back(),
  F: () => timeline.selected >= 0 && timeline.fitTo(timeline.selected),
  ",": () => (moment.open ? stepMoment(-1) : stepTime(-1)),
  ".": () => (moment.open ? stepMoment(1) : stepTime(1)),
  Escape: () => moment.close(),
  e: () => nextError(1),
  E: () => nextError(-1),
  S: slowest,
  D: () => inspector.diff(),
  r: () => inspector.replay(),
  L: verbs.follow,
  l: verbs.follow,
  v: () => cycleForm(),
  T: () => show(state.view === "table" ? "lanes" : "table"),
  t: () => show(state.view === "transcript" ? "lanes" : "transcript"),
  ArrowLeft: (event) => document.activeElement === document.body && tree.key(event),
  ArrowRight: (event) => document.activeElement === document.body && tree.key(event),
  ...Object.fromEntries(panes.map((where, k) => [String(k + 1), () => page.querySelector(where)?.focus()])),
};

function cycleForm() {
  const forms = [...page.querySelectorAll("#inspector [data-form]")];
  const at = forms.findIndex((button) => button.getAttribute("aria-pressed") === "true");
  forms[(at + 1) % forms.length]?.click();
}

function listen() {
  page.addEventListener("relay:select", (event) => {
    const { node, rewrite = -1 } = event.detail;
    if (rewrite >= 0) Object.assign(state, { tab: "rewrites", a: rewrite, b: rewrite + 1 });
    const same = state.s === model.col.uuid[node];
    const picks = rewrite >= 0 ? { a: state.a, b: state.b } : {};
    select(node, { from: event.target });
    if (rewrite >= 0) {
      Object.assign(state, picks);
      writeUrl(state);
      inspector.show();
    } else if (!same) tree.render();
  });
  page.addEventListener("relay:fit", (event) => timeline.fitTo(event.detail.node));
  page.addEventListener("relay:travel", ({ detail: { t } }) => !Number.isNaN(t) && moment.show(t));
  page.addEventListener("relay:follow", showFollow);
  let pending = 0;
  page.addEventListener("relay:view", () => {
    clearTimeout(pending);
    pending = setTimeout(() => {
      Object.assign(state, timeline.fitted ? { from: undefined, to: undefined } : timeline.view);
      writeUrl(state);
      timeline.setAttribute("aria-label", timeline.say());
    }, 200);
  });
  page.addEventListener("click", (event) => {
    const button = event.target.closest("[data-verb], [data-view], [data-page], [data-select-row]");
    if (!button) return;
    if (button.dataset.verb in verbs) verbs[button.dataset.verb]();
    else if (button.dataset.view) show(button.dataset.view);
    else if (button.dataset.page) sheet.load(button.dataset.page);
    else if (button.dataset.selectRow) selectUuid(button.dataset.selectRow);
    else return;
    button.closest("details.menu")?.removeAttribute("open");
  });
  // Messages of the transcript have the same buttons as those of the inspector.
  page.querySelector("#spans").addEventListener("click", (event) => inspector.click(event));
  page.querySelector(".filter input").addEventListener("input", (event) => {
    const left = tree.filter(event.target.value.trim());
    page.querySelector("[data-filter-said]").textContent = event.target.value ? `${left} rows` : "";
  });
  page.querySelector(".filter input").addEventListener("keydown", (event) => {
    if (event.key !== "Escape" && event.key !== "Enter") return;
    if (event.key === "Escape") {
      event.target.value = "";
      tree.filter("");
    } else tree.step(tree.selectedId && tree.place.has(tree.selectedId) ? 0 : 1);
    page.querySelector(".trow[tabindex='0']")?.focus();
  });
  window.addEventListener("keydown", (event) => {
    if (typing(event) || !(event.key in keys)) return;
    if (event.key === "Escape" && !moment.open) return;
    if (event.key.startsWith("Arrow") && document.activeElement !== document.body) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    keys[event.key](event);
  }, true);
  window.addEventListener("popstate", () => {
    const old = { ...state };
    for (const key of Object.keys(state)) delete state[key];
    Object.assign(state, readUrl());
    restore(old);
  });
}

function restore(old = {}) {
  const i = state.s ? model.find(state.s) : first();
  if (state.from !== undefined && state.to > state.from) {
    timeline.fitted = false;
    timeline.view = { from: state.from, to: state.to };
  } else timeline.fitted = true;
  if (timeline.press !== Boolean(state.press)) timeline.compress(Boolean(state.press));
  showWaited();
  timeline.settle();
  if (i >= 0) {
    // What the page chose by itself stays out of the URL: an hour later it would choose something else.
    state.s = model.col.uuid[i];
    tree.select(i);
    timeline.select(i);
    inspector.show();
  }
  if (state.view !== old.view) show(state.view);
  timeline.dirty();
}

/** A turn of few lanes leaves its room to the inspector; a size the reader chose stays. */
function sizeTimeline() {
  const stack = page.querySelector(".stack");
  if (stack.style.getPropertyValue("--h-timeline") || matchMedia("(max-width: 860px)").matches) return;
  const lanes = Math.max(timeline.rows.length + 1, model.running ? 14 : 4);
  const wanted = 36 + 40 + 22 + lanes * 24 + 10;
  if (wanted < 414) stack.style.setProperty("--h-timeline", `${wanted}px`);
}

/** On phones the switch of the panes tells which one is in sight. */
function watchPanes() {
  const links = [...page.querySelectorAll(".panejump a")];
  const watch = new IntersectionObserver((seen) => {
    for (const { target, isIntersecting } of seen) {
      if (!isIntersecting) continue;
      for (const link of links) {
        if (link.hash === `#${target.id}`) link.setAttribute("aria-current", "true");
        else link.removeAttribute("aria-current");
      }
    }
  }, { rootMargin: "-30% 0px -60% 0px" });
  for (const link of links) watch.observe(page.querySelector(link.hash));
}

async function start() {
  let frame = await ask(frameUrl);
  for (let wait = 250; !frame && wait <= 4000; wait *= 2) {
    await new Promise((over) => setTimeout(over, wait));
    frame = await ask(frameUrl);
  }
  if (!frame) throw new Error("the server does not answer");
  model.apply(frame);
  timeline.bind(model, { now, load });
  tree.bind(model, { now, hint });
  head.show();
  foot();
  listen();
  timeline.follow = model.running && chasing;
  restore();
  splitters(page);
  sizeTimeline();
  watchPanes();
  showFollow();
  page.classList.add("ready");
  performance.mark("relay:painted");
  const say = bindChip(document.querySelector("[data-live]"), () => live);
  live = new Live(socket, { cursor: frame.cursor, onFrame: apply, onState: say });
  setInterval(() => {
    if (document.hidden) return;
    if (model.running) head.duration();
    showFollow();
  }, 500);
}

/** For tests and the bench: the same objects the page uses. */
globalThis.relayTurn = { model, timeline, tree, inspector, state, now, apply, select, names: (i) => name(model, i), attempts: (i) => attemptsOf(model, i), get live() { return live; } };
start().catch((error) => {
  page.querySelector("#inspector").replaceChildren(element("p", "state", `The turn could not be shown: ${error.message}. Reload to try again.`));
});
