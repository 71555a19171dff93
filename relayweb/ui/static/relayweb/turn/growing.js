// Text that arrives in numbered pieces: said in order, each once, and what was missed is asked for. A piece whose text is
// null has come, but not yet what it says; where a later one says something, it never will. Pure.

export class Growing {
  /** @param {number} next the first piece to come @param {(text: string, kind: number | string) => void} say @param {() => Promise<{text: string | null, kind: string}[]>} all gives every piece there is */
  constructor(next, say, all) {
    Object.assign(this, { next, say, all, waiting: new Map(), filling: false });
  }

  hear(k, text, kind) {
    if (k < this.next || text === null) return;
    this.waiting.set(k, { text, kind });
    this.flush();
    if (this.waiting.size) this.fill();
  }

  flush() {
    for (let piece = this.waiting.get(this.next); piece; piece = this.waiting.get(this.next)) {
      this.waiting.delete(this.next);
      this.next += 1;
      if (piece.text) this.say(piece.text, piece.kind);
    }
  }

  async fill() {
    if (this.filling) return;
    this.filling = true;
    const pieces = await this.all().catch(() => []);
    this.filling = false;
    const last = pieces.findLastIndex(({ text }) => text !== null);
    for (let k = this.next; k <= last; k += 1) this.waiting.set(k, pieces[k]);
    this.flush();
  }
}
