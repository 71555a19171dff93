// Text that arrives in numbered pieces: said in order, each once, and what was missed is asked for. Pure.

export class Growing {
  /** @param {number} next the first piece to come @param {(text: string, kind: number | string) => void} say @param {() => Promise<{text: string | null, kind: string}[]>} all gives every piece there is */
  constructor(next, say, all) {
    Object.assign(this, { next, say, all, waiting: new Map(), filling: false });
  }

  hear(k, text, kind) {
    if (k < this.next) return;
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
    for (let k = this.next; k < pieces.length; k += 1) this.waiting.set(k, pieces[k]);
    this.flush();
  }
}
