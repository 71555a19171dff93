// Time travel: the panel that shows what was open at a moment, and what had been said by then.
import { clock, plural, span } from "../format.js";
import { KINDS, LLM } from "./model.js";
import { chunksBy, openAt } from "./past.js";
import { element, glyph } from "./tree.js";
import { icon, meta, name } from "./words.js";

const TAIL = 600; // characters of what had been said, from its end

export class Moment {
  /** @param host element of the inspector @param page {model, now, load, texts, select, sheet, closed} */
  constructor(host, page) {
    Object.assign(this, { host, page, known: new Map(), box: null });
  }

  get open() {
    return this.box !== null;
  }

  async show(t) {
    const { model, now, load } = this.page;
    this.t = t;
    if (!this.box) {
      this.box = element("section", "moment");
      this.box.setAttribute("aria-label", "The turn at a moment");
      this.host.append(this.box);
      this.host.classList.add("travelling");
    }
    const nodes = openAt(model, t, now());
    const streams = nodes.filter((i) => model.kind[i] === LLM && model.col.chunk_count[i]);
    this.draw(nodes);
    await load(streams.filter((i) => !model.chunks.get(i)?.count));
    for (const i of streams) {
      const uuid = model.col.uuid[i];
      if (this.known.has(uuid)) continue;
      const texts = await this.page.texts(uuid);
      if (texts.length) this.known.set(uuid, texts);
    }
    if (this.t === t && this.box) this.draw(openAt(model, t, now()));
  }

  draw(nodes) {
    const { model, sheet } = this.page;
    const head = element("header", "inspected");
    const close = element("button", "btn btn-ghost btn-s", "Back to now");
    close.type = "button";
    close.addEventListener("click", () => this.close());
    head.append(element("h2", "name", `At ${clock(this.t, 0.01)}`), element("span", "muted", `${plural(nodes.length, "scope")} open`), element("span", "grow"), close);
    const list = element("ol", "openlist");
    for (const i of nodes) list.append(this.row(i, sheet));
    if (!nodes.length) list.append(element("li", "faint", model.start[model.order[0]] > this.t ? "Nothing had begun." : "Nothing was open: the turn was between two things."));
    this.box.replaceChildren(head, list);
  }

  row(i, sheet) {
    const { model, select } = this.page;
    const item = element("li");
    const line = element("p", "row");
    const kind = element("span", `tint ${KINDS[model.kind[i]]}`);
    kind.append(glyph(sheet, icon(model, i), "icon-s"));
    const button = element("button", "link", name(model, i));
    button.type = "button";
    button.addEventListener("click", () => select(i));
    line.append(kind, button, element("span", "faint cut", meta(model, i)), element("span", "grow"), element("span", "faint", `for ${span(this.t - model.start[i])}`));
    item.append(line);
    const count = chunksBy(model.chunks.get(i), this.t);
    const texts = this.known.get(model.col.uuid[i]);
    if (model.kind[i] === LLM) item.append(this.said(i, count, texts));
    return item;
  }

  said(i, count, texts) {
    const { model } = this.page;
    if (!count) return element("p", "faint", model.col.streaming[i] === false ? "the answer came in one piece, later" : "no token yet");
    const all = texts?.slice(0, count).map((piece) => piece.text ?? "").join("") ?? "";
    const box = element("p", "saidsofar", all.length > TAIL ? `…${all.slice(-TAIL)}` : all);
    box.prepend(element("span", "badge", plural(count, "chunk")), " ");
    return box;
  }

  close() {
    this.box?.remove();
    this.box = null;
    this.host.classList.remove("travelling");
    this.page.closed();
  }
}
