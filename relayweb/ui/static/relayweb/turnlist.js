// The live list: new turns wait behind a pill (or come in at once when following), shown rows change in place,
// and the peek follows the selected row. The server draws every row; this only asks which ones and puts them where they go.
import { ages } from "./ages.js";
import { bindChip, Live, unanswered } from "./live.js";
import { brush, moment } from "./brush.js";
import { toast, typing } from "./shell.js";

const EVERY = 300; // ms between two requests for changed rows, at least
const SHOWN = 150; // rows kept in the page
const HELD = 100; // new rows kept behind the pill; beyond that the pill reloads the page

let list = null;
let live = null;

class TurnList {
  constructor(main) {
    this.main = main;
    this.box = main.querySelector("[data-rowbox]");
    this.table = main.querySelector(".table");
    this.scroller = main.querySelector("[data-scroll]");
    this.pill = main.querySelector("[data-newpill]");
    this.split = main.querySelector(".withpeek");
    this.peekBox = main.querySelector("[data-peek]");
    this.followButton = main.querySelector("[data-follow]");
    this.first = main.hasAttribute("data-first");
    this.changed = new Set();
    this.waiting = new Map();
    this.expecting = 0;
    this.more = false;
    this.cost = 0;
    if (sessionStorage.getItem("follow") === "on" && this.first) this.follow(true);
    if (!this.first) this.followButton?.setAttribute("disabled", "");
    brush(main.querySelector("[data-brush]"));
    this.scroller?.addEventListener("scroll", () => {
      if (this.following && this.scroller.scrollTop > 60) this.follow(false);
    });
    const asked = new URLSearchParams(location.search).get("peek");
    if (asked) this.peek(asked);
  }

  get seq() {
    return Number(this.main.dataset.seq);
  }

  rows() {
    return [...(this.box?.querySelectorAll("tr[data-row]") ?? [])];
  }

  row(uuid) {
    return this.box?.querySelector(`tr[data-uuid="${CSS.escape(uuid)}"]`);
  }

  // ---- What changed ----
  take(frame) {
    if (this.main.hasAttribute("data-broken")) return;
    for (const uuid of frame.turns?.uuid ?? []) this.changed.add(uuid);
    if (this.changed.size) {
      this.ask();
      this.refreshAround();
    }
    const peeked = this.peeked;
    if (peeked && this.changed.has(peeked)) this.refreshPeek();
  }

  ask() {
    // After a long absence the page as a whole is less work than its rows one by one.
    if (this.changed.size > 300) {
      this.changed.clear();
      this.reload();
      return;
    }
    if (this.asking) return;
    // A slow server is asked less often: at most a fifth of the time is spent waiting for it.
    this.asking = setTimeout(() => this.fetchRows(), Math.max(EVERY, this.cost * 4));
  }

  async fetchRows() {
    const uuids = [...this.changed].slice(0, 100);
    for (const uuid of uuids) this.changed.delete(uuid);
    const query = new URLSearchParams({ q: this.main.dataset.q, largest: this.table?.dataset.largest ?? "", peeked: this.peeked ?? "" });
    for (const uuid of uuids) query.append("uuid", uuid);
    const began = performance.now();
    try {
      const answer = await fetch(`${this.main.dataset.rows}?${query}`, { headers: { "x-requested-with": "fetch" } });
      if (unanswered(answer)) throw new Error("nobody answered");
      if (answer.ok) this.place(uuids, await answer.text());
    } catch {
      for (const uuid of uuids) this.changed.add(uuid);
    }
    this.cost = performance.now() - began;
    this.asking = null;
    if (this.changed.size) this.ask();
  }

  /** Facets, histogram and figures follow slowly, and never while the pointer or the focus is on them. */
  refreshAround() {
    this.around ??= setTimeout(async () => {
      this.around = null;
      const parts = ["#facets", ".histo", "[data-shown]"].map((part) => [part, this.main.querySelector(part)]);
      if (document.hidden || parts.some(([, old]) => old?.matches(":hover, :focus-within, .open"))) return this.refreshAround();
      const answer = await fetch(location.href, { headers: { "x-requested-with": "fetch" } }).catch(() => null);
      if (!answer?.ok || !this.main.isConnected) return;
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      for (const [part, old] of parts) {
        const fresh = page.querySelector(part);
        if (!old || !fresh || old.matches(":hover, :focus-within")) continue;
        old.innerHTML = fresh.innerHTML;
        if (part === ".histo") brush(old.querySelector("[data-brush]"));
        window.htmx?.process(old);
      }
    }, 4000);
  }

  place(uuids, html) {
    const holder = document.createElement("template");
    holder.innerHTML = `<table><tbody>${html}</tbody></table>`;
    const came = new Map([...holder.content.querySelectorAll("tr[data-row]")].map((row) => [row.dataset.uuid, row]));
    for (const uuid of uuids) {
      const old = this.row(uuid);
      const fresh = came.get(uuid);
      if (old && fresh) old.replaceWith(fresh);
      else if (old) {
        old.classList.add("gone");
        old.title = "No longer fits the search";
      } else if (fresh) this.hold(uuid, fresh);
    }
    const asked = this.waiting.size > 0 && performance.now() < this.expecting;
    if (asked) this.expecting = 0;
    if (this.following || asked) this.release();
    else this.showPill();
    tick();
  }

  /** The reader has asked for a turn: the next one comes in at once, the pill is for those of others. */
  expect() {
    this.expecting = performance.now() + 5000;
    this.scroller?.scrollTo({ top: 0 });
  }

  hold(uuid, row) {
    if (!this.first) return;
    const last = this.rows().at(-1);
    if (last && start(row) < start(last)) return;
    if (!this.box) return this.reload();
    if (this.waiting.size >= HELD) this.more = true;
    else this.waiting.set(uuid, row);
  }

  showPill() {
    const count = this.waiting.size;
    this.pill.hidden = count === 0;
    this.pill.querySelector("span").textContent = this.more ? `${HELD}+ new` : `${count} new`;
  }

  release() {
    if (this.more) return this.reload();
    if (!this.waiting.size) return;
    for (const row of [...this.waiting.values()].sort((a, b) => start(a) - start(b))) {
      const after = this.rows().find((shown) => start(shown) <= start(row));
      if (after) after.before(row);
      else this.box.append(row);
      row.classList.add("fresh");
    }
    this.waiting.clear();
    this.showPill();
    const surplus = this.rows().slice(SHOWN);
    if (surplus.length) {
      surplus.forEach((row) => row.remove());
      const older = this.main.querySelector('.pager a[rel="next"]');
      const until = moment(start(this.rows().at(-1)));
      if (older) older.href = `?${new URLSearchParams({ q: `${this.main.dataset.q} until:${until}`.trim() })}`;
    }
  }

  reload() {
    document.querySelector("#main").dispatchEvent(new CustomEvent("relay:reload", { bubbles: true }));
  }

  follow(on) {
    this.following = on && this.first;
    this.followButton?.setAttribute("aria-pressed", String(this.following));
    sessionStorage.setItem("follow", this.following ? "on" : "off");
    if (!this.following) return;
    this.scroller?.scrollTo({ top: 0 });
    this.release();
  }

  // ---- Selection and peek ----
  get peeked() {
    return this.split?.classList.contains("closed") ? null : this.split?.dataset.peeked ?? null;
  }

  select(row, peek = true) {
    for (const other of this.rows()) if (other !== row) other.removeAttribute("aria-selected");
    row.setAttribute("aria-selected", "true");
    row.scrollIntoView({ block: "nearest" });
    if (peek) {
      clearTimeout(this.soon);
      this.soon = setTimeout(() => this.peek(row.dataset.uuid), this.peeked ? 90 : 0);
    }
  }

  step(by) {
    const rows = this.rows();
    if (!rows.length) return;
    const at = rows.findIndex((row) => row.getAttribute("aria-selected") === "true");
    this.select(rows[at < 0 ? 0 : Math.max(0, Math.min(rows.length - 1, at + by))]);
  }

  async peek(uuid) {
    this.split.dataset.peeked = uuid;
    const query = new URLSearchParams({ q: this.main.dataset.q });
    const answer = await fetch(`/turns/${encodeURIComponent(uuid)}/peek/?${query}`).catch(() => null);
    if (this.split.dataset.peeked !== uuid) return;
    if (!answer?.ok) {
      toast("failed", "The peek did not load", answer ? `The server answered ${answer.status}. The record is safe.` : "The server did not answer.");
      return;
    }
    const scrolled = this.peekBox.firstElementChild?.dataset.uuid === uuid ? this.peekBox.querySelector(".body")?.scrollTop : 0;
    this.peekBox.innerHTML = await answer.text();
    this.peekBox.querySelector(".body").scrollTop = scrolled ?? 0;
    this.split.classList.remove("closed");
    for (const row of this.rows()) row.toggleAttribute("aria-selected", row.dataset.uuid === uuid);
    this.row(uuid)?.setAttribute("aria-selected", "true");
    remember(uuid);
  }

  refreshPeek() {
    if (this.peeking) return;
    this.peeking = setTimeout(async () => {
      this.peeking = null;
      if (this.peeked) await this.peek(this.peeked);
    }, 1000);
  }

  closePeek() {
    if (!this.peeked) return false;
    this.split.classList.add("closed");
    remember(null);
    return true;
  }
}

function start(row) {
  return Number(row.querySelector("[data-at]").dataset.at);
}

/** Keeps the peeked turn in the URL, so that a link opens what its sender saw. */
function remember(uuid) {
  const url = new URL(location.href);
  if (uuid) url.searchParams.set("peek", uuid);
  else url.searchParams.delete("peek");
  history.replaceState(history.state, "", url);
}

// ---- The page as a whole ----
async function swapMain(url) {
  const answer = await fetch(url, { headers: { "x-requested-with": "fetch" } }).catch(() => null);
  if (unanswered(answer)) setTimeout(() => location.href.endsWith(url) && swapMain(url), 1000);
  if (!answer?.ok) return;
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const fresh = page.getElementById("main");
  document.getElementById("main").replaceWith(fresh);
  document.title = page.title;
  window.htmx?.process(fresh);
  begin();
}

function begin() {
  const main = document.querySelector("[data-turnlist]");
  const waiting = document.querySelector("[data-first-turn]");
  list = main ? new TurnList(main) : null;
  const seq = Number((main ?? waiting)?.dataset.seq ?? 0);
  if (!main && !waiting) return;
  if (!live) {
    const chip = bindChip(document.querySelector("[data-live]"), () => live);
    live = new Live("/live/turns/", { cursor: seq, onFrame: frame, onState: chip });
  } else if (seq !== live.cursor) {
    // What changed between the drawing of this page and the last frame would be missed.
    live.cursor = seq;
    live.reconnect();
  }
  tick();
}

let swapping = false;
async function frame(message) {
  if (list) list.take(message);
  else if (message.turns?.uuid?.length && !swapping) {
    swapping = true;
    await swapMain(location.pathname + location.search).finally(() => (swapping = false));
  }
}

document.addEventListener("relay:reload", () => swapMain(location.href));
document.addEventListener("htmx:afterSettle", (event) => {
  if (event.target.id === "main" || event.detail.elt?.id === "main") begin();
});
document.addEventListener("htmx:historyRestore", begin);

document.addEventListener("click", (event) => {
  if (!list) return;
  if (event.target.closest("[data-newpill]")) {
    list.scroller.scrollTo({ top: 0 });
    list.release();
  } else if (event.target.closest("[data-follow]")) list.follow(!list.following);
  else if (event.target.closest("[data-close-peek]")) list.closePeek();
  else if (event.target.closest("[data-filters]")) document.getElementById("facets").classList.toggle("open");
  else {
    const row = event.target.closest("tr[data-row]");
    if (row && !event.target.closest("a, button") && !String(getSelection())) list.select(row);
  }
});
document.addEventListener("dblclick", (event) => {
  const link = event.target.closest("tr[data-row]")?.querySelector("a");
  if (link) location.assign(link.href);
});

document.addEventListener("keydown", (event) => {
  if (!list) return;
  const field = event.target.closest?.(".searchbar input[type=search]");
  if (field && event.key === "Backspace" && field.value === "") return takeBack(event, field);
  if (field && event.key === "Escape") return field.blur();
  if (event.target.matches?.('[role="checkbox"]') && event.key === " ") {
    event.preventDefault();
    return event.target.click();
  }
  if (typing(event)) return;
  const keys = {
    j: () => list.step(1),
    k: () => list.step(-1),
    Enter: () => {
      const link = list.box?.querySelector('tr[aria-selected="true"] a');
      if (link && !event.target.closest("a, button")) location.assign(link.href);
    },
    Escape: () => list.closePeek(),
    L: () => list.follow(!list.following),
    l: () => list.follow(!list.following),
  };
  keys[event.key]?.();
});

/** Backspace in the empty field takes the last chip apart for editing. */
function takeBack(event, field) {
  const chip = [...field.parentElement.querySelectorAll(".qchip")].at(-1);
  if (!chip) return;
  event.preventDefault();
  editChip(chip, field);
}
function editChip(chip, field) {
  field.value = chip.dataset.term;
  chip.remove();
  const kept = [...field.parentElement.querySelectorAll(".qchip")].map((other) => other.dataset.term);
  field.parentElement.querySelector('input[name="q"]').value = kept.join(" ");
  field.focus();
}
document.addEventListener("click", (event) => {
  const chip = event.target.closest(".qchip");
  if (chip && !event.target.closest("a")) editChip(chip, chip.parentElement.querySelector("input[type=search]"));
});

document.addEventListener("submit", async (event) => {
  const form = event.target.closest("[data-demo]");
  if (!form) return;
  event.preventDefault();
  const button = form.querySelector("button");
  button.disabled = true;
  const answer = await fetch(form.action, { method: "POST", body: new FormData(form), headers: { "x-requested-with": "fetch" } }).catch(() => null);
  button.disabled = false;
  await answer?.text().catch(() => "");
  if (answer?.ok) {
    list?.expect();
    toast("ok", "Demo turn started", "It shows here while it runs.");
  } else toast("failed", "The demo turn did not start", answer ? `The server answered ${answer.status}.` : "The server did not answer.");
});

const tick = () => ages(live);
setInterval(tick, 1000);
begin();
