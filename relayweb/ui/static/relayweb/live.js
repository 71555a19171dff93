// The client of the live sockets (docs/live.md): one cursor, frames applied in order, an acknowledgement for each.
// Page, list and tests use the same class; it knows nothing of what is in a frame beyond `cursor`, `now_us` and `resync`.

const DEAD_AFTER = 15_000; // ms without a frame: the server sends an empty one every 5 s
const BUFFER = 400; // frames kept while paused; beyond that the pause ends in a resync

/** Whether a request has come to nobody, or to a process that died of something else meanwhile: then another answers. */
export const unanswered = (answer) => !answer || [502, 503, 504].includes(answer.status);

/** JSON from the server; null where none came: a process may die with a request in its hands. */
export async function ask(url) {
  try {
    const answer = await fetch(url);
    return answer.ok ? await answer.json() : null;
  } catch {
    return null;
  }
}

export class Live {
  /**
   * @param {string} path for example "/live/turns/"
   * @param {{cursor?: number, onFrame: (frame: object) => void, onState?: (state: string, lag: number | null) => void}} options
   *   onState gets "connecting", "live", "paused" or "reconnecting", and the lag in ms where it is known.
   */
  constructor(path, { cursor = 0, onFrame, onState = () => {} }) {
    Object.assign(this, { path, cursor, onFrame, onState, paused: false, held: [], tries: 0, lag: null, floor: Infinity });
    this.open();
  }

  open() {
    clearTimeout(this.retry);
    this.overflowed = false;
    this.tell(this.tries ? "reconnecting" : "connecting");
    const scheme = location.protocol === "https:" ? "wss" : "ws";
    const socket = new WebSocket(`${scheme}://${location.host}${this.path}`);
    this.socket = socket;
    socket.onopen = () => {
      socket.send(JSON.stringify({ cursor: this.cursor }));
      this.watch();
    };
    socket.onmessage = (event) => {
      if (socket === this.socket) this.take(JSON.parse(event.data));
    };
    socket.onclose = (event) => {
      if (socket !== this.socket || this.closed) return;
      clearTimeout(this.dog);
      if (event.code === 4401) {
        this.tell("signed out");
        return;
      }
      this.tries += 1;
      this.tell("reconnecting");
      this.retry = setTimeout(() => this.open(), Math.min(10_000, 250 * 2 ** Math.min(this.tries, 6)) * (0.75 + Math.random() / 2));
    };
  }

  take(frame) {
    this.tries = 0;
    this.watch();
    this.measure(frame);
    this.socket.send(JSON.stringify({ ack: frame.cursor }));
    if (this.paused) {
      if (this.held.length < BUFFER) this.held.push(frame);
      else this.overflowed = true;
      this.tell("paused");
      return;
    }
    this.apply(frame);
    this.tell("live");
  }

  apply(frame) {
    this.cursor = frame.cursor;
    this.onFrame(frame);
  }

  /** Clocks differ, so the fastest frame seen so far counts as no delay; to it comes what waited in the server. */
  measure(frame) {
    const transit = Date.now() - frame.now_us / 1000;
    this.floor = Math.min(this.floor, transit);
    this.offset = this.floor;
    const waited = frame.newest_us ? Math.max(0, (frame.now_us - frame.newest_us) / 1000) : null;
    if (waited !== null && waited < 60_000) this.lag = Math.round(waited + transit - this.floor);
  }

  /** Server time in microseconds, from the clock of this machine and the offset measured by the frames. */
  now() {
    return (Date.now() - (this.offset ?? 0)) * 1000;
  }

  pause() {
    this.paused = true;
    this.tell("paused");
  }

  resume() {
    this.paused = false;
    const held = this.held.splice(0);
    for (const frame of held) this.apply(frame);
    if (this.overflowed) this.reconnect();
    else this.tell(this.socket.readyState === WebSocket.OPEN ? "live" : "reconnecting");
  }

  reconnect() {
    const old = this.socket;
    this.socket = null;
    old?.close();
    this.open();
  }

  close() {
    this.closed = true;
    clearTimeout(this.dog);
    clearTimeout(this.retry);
    this.socket?.close();
  }

  watch() {
    clearTimeout(this.dog);
    this.dog = setTimeout(() => this.reconnect(), DEAD_AFTER);
  }

  tell(state) {
    this.state = this.paused && state === "live" ? "paused" : state;
    this.onState(this.state, this.lag);
  }
}

const CHIP = {
  live: ["st-ok", "Live"],
  paused: ["st-interrupted", "Paused"],
  connecting: ["st-running", "Connecting"],
  reconnecting: ["st-failed", "Reconnecting"],
  "signed out": ["st-failed", "Signed out"],
};

/** Shows the state in the chip of the top bar; pressing it pauses and resumes. */
export function bindChip(chip, live) {
  if (!chip) return () => {};
  chip.hidden = false;
  chip.addEventListener("click", () => (live().paused ? live().resume() : live().pause()));
  let shown = "";
  return (state, lag) => {
    const behind = state === "live" && lag !== null && lag > 2000;
    const [tone, word] = behind ? ["st-interrupted", "Behind"] : CHIP[state];
    const text = lag === null || state !== "live" ? "" : lag < 1000 ? `${lag} ms` : `${(lag / 1000).toFixed(1)} s`;
    const next = `${tone}|${word}|${text}`;
    if (next === shown) return;
    shown = next;
    chip.className = `live ${tone}`;
    chip.querySelector(".word").textContent = word;
    chip.querySelector(".lag").textContent = text;
    const paused = state === "paused";
    chip.setAttribute("aria-label", `Live updates: ${word.toLowerCase()}${text ? `, ${text} behind` : ""}. Press to ${paused ? "go on" : "pause"}.`);
  };
}
