// <relay-tree>: the scopes of the turn as rows. Only the rows in sight are elements, however many there are.
import { span, plural } from "../format.js";
import { AGENT, BLOCKED, CALL, FAILED, KINDS, LLM, RUNNING, STATUSES, TOOL } from "./model.js";
import { reveal, rows, runWords } from "./rows.js";
import { attemptsOf, errorWord, icon, meta, name, rewriteBadges, waits } from "./words.js";

const SPARE = 8; // rows kept above and below the sight

const SVG = "http://www.w3.org/2000/svg";
export function glyph(sheet, symbol, classes = "") {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("class", `icon ${classes}`.trim());
  svg.setAttribute("aria-hidden", "true");
  const use = document.createElementNS(SVG, "use");
  use.setAttribute("href", `${sheet}#${symbol}`);
  svg.append(use);
  return svg;
}

export function element(tag, classes = "", text = "") {
  const made = document.createElement(tag);
  if (classes) made.className = classes;
  if (text) made.textContent = text;
  return made;
}

class RelayTree extends HTMLElement {
  bind(model, source) {
    Object.assign(this, { model, source, open: new Map(), query: "", selectedId: null, drawn: new Map(), wished: new Set() });
    this.sheet = this.dataset.icons;
    this.setAttribute("role", "tree");
    this.space = element("div", "tree-space");
    this.replaceChildren(this.space);
    this.list = [];
    this.addEventListener("scroll", () => this.render());
    this.addEventListener("click", (event) => this.click(event));
    this.addEventListener("dblclick", (event) => {
      const row = this.rowUnder(event);
      if (row && row.rewrite < 0) this.dispatchEvent(new CustomEvent("relay:fit", { bubbles: true, detail: { node: row.node } }));
    });
    this.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.render()).observe(this);
    matchMedia("(pointer: coarse)").addEventListener("change", () => this.render());
    this.update({ shape: true });
    setInterval(() => {
      if (!document.hidden && this.model.running) this.render();
    }, 500);
  }

  update({ shape, nodes, chunks }) {
    if (shape || nodes) this.relist();
    else if (chunks) this.render();
  }

  filter(query) {
    this.query = query;
    this.relist();
    return this.list.length;
  }

  relist() {
    this.list = rows(this.model, { open: this.open, query: this.query });
    this.place = new Map(this.list.map((row, k) => [row.id, k]));
    this.render();
  }

  /** The height of a row, as the tokens say it: rows for fingers are taller. */
  get pitch() {
    return Number.parseFloat(getComputedStyle(this).getPropertyValue("--h-tree")) || 26;
  }

  render() {
    const { pitch, list } = this;
    this.space.style.height = `${list.length * pitch + 20}px`;
    const first = Math.max(0, Math.floor(this.scrollTop / pitch) - SPARE);
    const last = Math.min(list.length, Math.ceil((this.scrollTop + this.clientHeight) / pitch) + SPARE);
    const wanted = new Set();
    let before = null;
    for (let k = first; k < last; k += 1) {
      wanted.add(list[k].id);
      before = this.draw(list[k], k * pitch, before);
    }
    // The row with the focus stays, else the keyboard would be lost while scrolling.
    const focused = document.activeElement?.closest?.(".trow")?.dataset.id;
    if (focused && this.place.has(focused) && !wanted.has(focused)) {
      wanted.add(focused);
      this.draw(list[this.place.get(focused)], this.place.get(focused) * pitch, before);
    }
    for (const [id, kept] of this.drawn) {
      if (wanted.has(id)) continue;
      kept.el.remove();
      this.drawn.delete(id);
    }
    this.wish(list.slice(first, last));
    const tabbable = this.selectedId && this.drawn.has(this.selectedId) ? this.selectedId : list[first]?.id;
    for (const [id, { el }] of this.drawn) el.tabIndex = id === tabbable ? 0 : -1;
  }

  /** Asks what the tools in sight were called with, once for each. */
  wish(shown) {
    const { model } = this;
    const tools = shown.filter((row) => !row.group && row.rewrite < 0 && model.kind[row.node] === TOOL && !this.wished.has(row.id)).map((row) => row.id);
    if (!tools.length || !this.source.hint) return;
    clearTimeout(this.wishing);
    this.wishing = setTimeout(async () => {
      for (const id of tools) this.wished.add(id);
      if (await this.source.hint(tools)) this.render();
    }, 80);
  }

  draw(row, top, before) {
    let kept = this.drawn.get(row.id);
    if (!kept) {
      kept = { el: element("div"), said: "" };
      this.drawn.set(row.id, kept);
      kept.el.setAttribute("role", "treeitem");
      kept.el.dataset.id = row.id;
      this.space.append(kept.el);
    }
    // Readers that speak walk the document, so rows stand in it in the order they are seen.
    if (before ? before.nextSibling !== kept.el : this.space.firstChild !== kept.el) this.space.insertBefore(kept.el, before ? before.nextSibling : this.space.firstChild);
    kept.el.style.top = `${top}px`;
    const words = this.words(row);
    const said = JSON.stringify([words, row.level, row.open, row.at, row.size, row.id === this.selectedId]);
    if (kept.said !== said) {
      kept.said = said;
      this.fill(kept.el, row, words);
    }
    return kept.el;
  }

  words(row) {
    const { model } = this;
    const i = row.node;
    if (row.group) {
      const { title, count, meta: more } = runWords(model, row.group);
      const length = row.group.reduce((sum, node) => sum + model.end[node] - model.start[node], 0);
      const lead = row.group.find((node) => model.kind[node] === CALL) ?? i;
      return { kind: KINDS[model.kind[lead]], icon: icon(model, lead), title, badges: [["badge", "", `×${count}`]], meta: more, dur: span(length), tone: "quiet" };
    }
    if (row.rewrite >= 0) return this.rewriteWords(model.col.rewrites[i][row.rewrite]);
    const running = model.status[i] === RUNNING;
    const never = model.status[i] === BLOCKED && model.endOr(i, 0) - model.start[i] < 0.001;
    return {
      kind: icon(model, i) === "guardrail" ? "k-guardrail" : KINDS[model.kind[i]],
      icon: icon(model, i),
      title: name(model, i),
      badges: this.badges(i, row.open),
      meta: never ? "never sent" : meta(model, i),
      dur: never ? "" : span(model.endOr(i, this.source.now()) - model.start[i]),
      running,
      tone: model.kind[i] === AGENT || (model.kind[i] === CALL && row.open) ? "group" : "",
    };
  }

  rewriteWords(rewrite) {
    const sign = rewrite.result === "miss" ? "rewrite-o" : rewrite.mode === "shadow" ? "rewrite-s" : "rewrite";
    const version = rewrite.revision == null ? "" : ` r${rewrite.revision}`;
    const change = rewrite.bytes_after != null && rewrite.bytes_before != null ? rewrite.bytes_after - rewrite.bytes_before : null;
    const said = rewrite.result !== "hit" ? rewrite.result : change ? `${change > 0 ? "+" : "−"}${Math.abs(change).toLocaleString("en").replaceAll(",", " ")} B` : rewrite.action ?? "";
    return {
      kind: "k-intercept", icon: sign, title: `${rewrite.key}${version}`, badges: rewrite.mode === "shadow" ? [["badge outline", "", "shadow"]] : [],
      meta: said, dur: rewrite.duration_us == null ? "" : span(rewrite.duration_us / 1e6), tone: rewrite.result === "miss" ? "quiet" : "",
    };
  }

  /** What needs to be seen without opening: retries, rewrites, errors, lateness. Each is [classes, icon, text]. */
  badges(i, open) {
    const { model } = this;
    const list = [];
    if (model.kind[i] === CALL) {
      const attempts = attemptsOf(model, i);
      const retries = model.col.retries[i] ?? 0;
      if (retries) list.push(["badge plain st-interrupted", "retry", String(retries)]);
      else if (attempts.length > 1) list.push(["badge", "", `×${attempts.length}`]);
      list.push(...rewriteBadges(model, [i, ...attempts]));
    } else if (model.kind[i] === LLM && !open) list.push(...rewriteBadges(model, [i]));
    // A folded call says what went wrong inside it, also when it ended well.
    const bad = model.kind[i] === CALL && open === false ? attemptsOf(model, i).filter((a) => model.status[a] >= FAILED).at(-1) : undefined;
    const at = errorWord(model, i) ? i : bad ?? i;
    const error = errorWord(model, at);
    if (error) list.push([`badge tinted st-${STATUSES[model.status[at]]}`, "", error]);
    if (waits(model, i)) list.push(["badge outline", "", "waits for a retry"]);
    if (model.has(i, "late_child")) list.push(["badge outline", "", "late"]);
    if (model.has(i, "clock_skew")) list.push(["badge outline", "", "clock skew"]);
    if (model.has(i, "conflict")) list.push(["badge outline", "", "conflict"]);
    if (model.has(i, "missing_parent")) list.push(["badge outline", "", "no parent"]);
    return list;
  }

  fill(el, row, words) {
    el.className = `trow ${words.tone}`.trim();
    el.setAttribute("aria-level", String(row.level));
    el.setAttribute("aria-posinset", String(row.at));
    el.setAttribute("aria-setsize", String(row.size));
    el.setAttribute("aria-selected", String(row.id === this.selectedId));
    el.style.setProperty("--depth", String(Math.min(row.level - 1, 9)));
    if (row.open === null) el.removeAttribute("aria-expanded");
    else el.setAttribute("aria-expanded", String(row.open));
    const twist = row.open === null ? element("span") : glyph(this.sheet, row.open ? "chev-d" : "chev-r", "twist icon-s");
    const kind = element("span", `kind ${words.kind}`);
    kind.append(glyph(this.sheet, words.icon));
    const label = element("span", "name");
    label.append(element("span", "t", words.title));
    for (const [classes, sign, text, said] of words.badges) {
      const badge = element("span", classes);
      if (said) Object.assign(badge, { title: said, role: "img", ariaLabel: said });
      if (sign) badge.append(glyph(this.sheet, sign));
      badge.append(text);
      label.append(badge);
    }
    if (words.meta) label.append(element("span", "meta", words.meta));
    label.title = words.meta.length > 24 ? `${words.title} ${words.meta}` : "";
    const dur = element("span", "dur");
    if (words.running) {
      dur.classList.add("row");
      const ring = element("span", "tint st-running");
      ring.append(glyph(this.sheet, "running", "spin icon-s"));
      ring.append(element("span", "sr", "running"));
      dur.append(ring);
    }
    dur.append(words.dur);
    el.replaceChildren(twist, kind, label, dur);
  }

  rowUnder(event) {
    const el = event.target.closest(".trow");
    return el ? this.list[this.place.get(el.dataset.id)] : null;
  }

  click(event) {
    const row = this.rowUnder(event);
    if (!row) return;
    const twist = event.target.closest(".twist");
    if (row.open !== null && (twist || row.group)) {
      this.fold(row, !row.open);
      if (twist) return;
    }
    this.choose(row);
  }

  fold(row, open) {
    if (row.open === null || row.open === open) return;
    this.open.set(row.id, open);
    this.relist();
  }

  foldAll(open) {
    this.open.clear();
    if (!open) for (const row of this.list) if (row.level > 1 && row.open !== null) this.open.set(row.id, false);
    if (open) for (let i = 0; i < this.model.count; i += 1) this.open.set(this.model.col.uuid[i], true);
    this.relist();
  }

  choose(row, focus = true) {
    this.mark(row.id);
    if (focus) this.drawn.get(row.id)?.el.focus({ preventScroll: true });
    if (!row.group) this.dispatchEvent(new CustomEvent("relay:select", { bubbles: true, detail: { node: row.node, rewrite: row.rewrite } }));
  }

  mark(id) {
    this.selectedId = id;
    const k = this.place.get(id);
    if (k !== undefined) this.bring(k);
    this.render();
  }

  bring(k) {
    const top = k * this.pitch;
    if (top < this.scrollTop) this.scrollTop = Math.max(0, top - this.pitch);
    else if (top + this.pitch > this.scrollTop + this.clientHeight) this.scrollTop = top + 2 * this.pitch - this.clientHeight;
  }

  /** Selects a node from elsewhere, opening what hides it. */
  select(i) {
    if (i < 0) return;
    if (reveal(this.model, this.open, i)) this.relist();
    const id = this.model.col.uuid[i];
    if (this.selectedId?.startsWith(id)) return;
    this.mark(id);
  }

  step(by) {
    const at = this.place.get(this.selectedId) ?? -1;
    const row = this.list[Math.max(0, Math.min(this.list.length - 1, at + by))];
    if (row) this.choose(row, this.contains(document.activeElement));
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const at = this.place.get(this.selectedId) ?? 0;
    const row = this.list[at];
    const verbs = {
      ArrowDown: () => this.step(1),
      ArrowUp: () => this.step(-1),
      ArrowRight: () => (row.open === false ? this.fold(row, true) : row.open ? this.step(1) : null),
      ArrowLeft: () => (row.open ? this.fold(row, false) : this.toParent(at)),
      Home: () => this.choose(this.list[0]),
      End: () => this.choose(this.list.at(-1)),
      Enter: () => (row.group ? this.fold(row, !row.open) : this.choose(row)),
      " ": () => this.choose(row),
      "*": () => this.foldAll(true),
    };
    if (!row || !verbs[event.key]) return;
    event.preventDefault();
    event.stopPropagation();
    verbs[event.key]();
    this.drawn.get(this.selectedId)?.el.focus({ preventScroll: true });
  }

  toParent(at) {
    for (let k = at - 1; k >= 0; k -= 1) {
      if (this.list[k].level < this.list[at].level) {
        this.choose(this.list[k]);
        return;
      }
    }
  }

  /** What stands below the tree: "51 scopes", and how many went wrong. */
  summary() {
    const counts = { failed: 0, blocked: 0, interrupted: 0 };
    for (const i of this.model.troubles()) counts[STATUSES[this.model.status[i]]] += 1;
    return { scopes: plural(this.model.count, "scope"), ...counts };
  }
}
customElements.define("relay-tree", RelayTree);
