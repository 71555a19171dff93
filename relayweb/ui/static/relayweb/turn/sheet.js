// The same turn as a table of its spans or as a conversation: pages made by the server, renewed while the turn grows.

const RENEW = 1500; // ms between two fetches, at least

export class Sheet {
  /** @param box element with the addresses in data-table and data-transcript */
  constructor(box) {
    Object.assign(this, { box, url: "", soon: 0 });
  }

  /** Shows "table" or "transcript", or nothing. */
  show(form) {
    this.form = form;
    this.box.hidden = !form;
    if (form) this.box.replaceChildren(Object.assign(document.createElement("p"), { className: "loading faint", textContent: "Loading…" }));
    return form ? this.load(this.box.dataset[form]) : undefined;
  }

  /** Brings what tells of one of these scopes into sight. */
  reveal(uuids) {
    if (!this.form) return;
    this.sought = uuids;
    const found = uuids.map((uuid) => this.box.querySelector(`[data-select-row="${CSS.escape(uuid)}"]`)).find(Boolean);
    const place = found?.closest(".talk, tr");
    for (const other of this.box.querySelectorAll(".chosen")) if (other !== place) other.classList.remove("chosen");
    if (!place) return;
    place.classList.add("chosen");
    if (!this.box.contains(document.activeElement) || document.activeElement === this.box) place.scrollIntoView({ block: "nearest" });
  }

  /** Called when the turn has grown. */
  renew() {
    if (!this.form || this.soon) return;
    this.soon = setTimeout(() => {
      this.soon = 0;
      if (this.form && !this.box.contains(document.activeElement)) this.load(this.url, this.box.scrollTop);
    }, RENEW);
  }

  async load(url, scrollTop = 0) {
    this.url = url;
    const answer = await fetch(url).catch(() => null);
    if (!answer?.ok || this.url !== url) return;
    // Made by our own templates, which escape everything that was recorded.
    const parsed = new DOMParser().parseFromString(await answer.text(), "text/html");
    this.box.replaceChildren(...parsed.body.childNodes);
    this.box.scrollTop = scrollTop;
    if (this.sought) this.reveal(this.sought);
  }
}
