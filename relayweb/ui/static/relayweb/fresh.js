// Pages that are drawn once and stay true: `[data-fresh]` says what is done when turns begin or change.
// "pill": a pill tells how many, a press loads the page anew. "rows": what the reader sees is renewed in its place.
import { ages } from "./ages.js";
import { plural } from "./format.js";
import { Live, bindChip } from "./live.js";

const EVERY = 1000; // ms between two renewals, at least

const main = document.querySelector("[data-fresh]");
const changed = new Set();
let live = null;
let soon = 0;

/** Turns of the frame that concern this page: of its session, or such as begin after it was drawn. */
function concerns({ turns }) {
  const wanted = main.dataset.session;
  if (wanted === undefined) return turns.uuid;
  return turns.uuid.filter((uuid, row) => turns.session_id?.[row] === wanted || main.querySelector(`[data-uuid="${CSS.escape(uuid)}"]`));
}

function take(frame) {
  if (!frame.turns?.uuid?.length) return;
  const found = concerns(frame);
  for (const uuid of found) changed.add(uuid);
  if (!found.length) return;
  if (main.dataset.fresh === "pill") showPill();
  else if (!soon) soon = setTimeout(renew, EVERY);
}

function showPill() {
  const pill = document.querySelector("[data-newpill]");
  pill.hidden = false;
  pill.querySelector("span").textContent = `${plural(changed.size, "turn")} since`;
}

/** Swaps the parts of the page that hold figures; the page itself, its scroll and its selection stay. */
async function renew() {
  soon = 0;
  const answer = await fetch(location.href).catch(() => null);
  if (!answer?.ok) return;
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const chosen = document.querySelector('tr[data-row][aria-selected="true"]')?.dataset.uuid;
  for (const part of document.querySelectorAll("[data-part]")) {
    const next = page.querySelector(`[data-part="${part.dataset.part}"]`);
    if (next) part.replaceChildren(...next.childNodes);
  }
  if (chosen) document.querySelector(`tr[data-uuid="${CSS.escape(chosen)}"]`)?.setAttribute("aria-selected", "true");
  ages(live);
}

if (main) {
  document.querySelector("[data-newpill]")?.addEventListener("click", () => location.reload());
  live = new Live("/live/turns/", { cursor: Number(main.dataset.seq), onFrame: take, onState: bindChip(document.querySelector("[data-live]"), () => live) });
  setInterval(() => ages(live), 1000);
}
