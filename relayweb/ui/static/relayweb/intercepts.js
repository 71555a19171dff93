// The intercept pages: says when the form is a draft, warns before leaving one, and reorders the list by drag or keys.

const form = document.querySelector("[data-config-form]");
if (form) {
  const badge = document.querySelector("[data-draft]");
  const said = form.querySelector("[data-said]");
  let dirty = form.hasAttribute("data-dirty");
  const show = () => {
    if (badge) badge.hidden = !dirty;
    if (dirty && said && !said.dataset.before) {
      said.dataset.before = said.textContent;
      said.textContent = said.textContent.replace("is in force.", "stays in force until you publish.");
    }
  };
  const changed = (event) => {
    dirty = true;
    show();
    event.target.removeAttribute?.("aria-invalid");
    const field = event.target.closest?.(".field.invalid");
    field?.classList.remove("invalid");
    for (const error of field?.querySelectorAll(".error-text") ?? []) error.remove();
  };
  form.addEventListener("input", changed);
  form.addEventListener("change", changed);
  form.addEventListener("submit", () => (dirty = false));
  for (const link of form.querySelectorAll("a[href]")) link.addEventListener("click", () => (dirty = false));
  addEventListener("beforeunload", (event) => {
    if (dirty) event.preventDefault();
  });
  form.querySelector('[aria-invalid="true"]')?.focus();
  show();

  // A new intercept takes its key from its title, until somebody writes one.
  const key = form.querySelector("#id_key:not(:disabled)");
  const title = form.querySelector("#id_title");
  let own = key?.value !== "";
  key?.addEventListener("input", () => (own = key.value !== ""));
  title?.addEventListener("input", () => {
    if (key && !own) key.value = title.value.normalize("NFD").replace(/[\u0300-\u036f]/g, "").toLowerCase().replace(/[^a-z0-9._]+/g, "-").replace(/^[^a-z0-9]+|-+$/g, "").slice(0, 64);
  });
}

const revision = location.hash.match(/^#r\d+$/) && document.querySelector(location.hash);
if (revision) {
  revision.classList.add("asked");
  const details = revision.querySelector("details");
  if (details) details.open = true;
}

const list = document.querySelector("[data-reorder] tbody");
if (list) {
  let held = null;
  const send = () => document.getElementById("reorder").submit();
  list.addEventListener("dragstart", (event) => {
    held = event.target.closest("tr");
    held.classList.add("held");
    event.dataTransfer.effectAllowed = "move";
    event.dataTransfer.setData("text/plain", held.dataset.key);
  });
  list.addEventListener("dragover", (event) => {
    const over = event.target.closest("tr");
    if (!held || !over) return;
    event.preventDefault();
    if (over === held) return;
    const box = over.getBoundingClientRect();
    over[event.clientY < box.top + box.height / 2 ? "before" : "after"](held);
  });
  list.addEventListener("drop", (event) => {
    event.preventDefault();
    if (held) send();
  });
  // From the keyboard the order is sent when the keys have rested.
  let rest = null;
  list.addEventListener("keydown", (event) => {
    const grip = event.target.closest(".grip");
    const row = grip?.closest("tr");
    const other = event.key === "ArrowUp" ? row?.previousElementSibling : event.key === "ArrowDown" ? row?.nextElementSibling : null;
    if (!other) return;
    event.preventDefault();
    if (event.key === "ArrowUp") other.before(row);
    else other.after(row);
    grip.focus();
    clearTimeout(rest);
    rest = setTimeout(send, 900);
  });
  list.addEventListener("dragend", () => {
    held?.classList.remove("held");
    held = null;
  });
}

const tester = document.querySelector("[data-back-test]");
if (tester) {
  const report = document.getElementById("backtest");
  const progress = document.getElementById("backtest-progress");
  const bar = progress.querySelector("progress");
  const status = progress.querySelector("[role=status]");
  let running = null;
  const figures = (at) =>
    `${at.tried} of ${at.total}: ${at.matched} matched, ${at.changed} changed` +
    (at.stopped ? `, ${at.stopped} never sent` : "") + (at.failed ? `, ${at.failed} would fail` : "");
  const show = (html) => {
    report.innerHTML = html;
    const words = report.querySelector("[data-would-match]");
    if (words) document.getElementById("would-match").textContent = words.textContent;
  };
  const say = (text) => {
    const words = document.createElement("p");
    words.className = "muted";
    words.textContent = text;
    report.replaceChildren(words);
  };
  const read = async (answer) => {
    const lines = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    let last = null;
    for (;;) {
      const { value, done } = await lines.read();
      if (done) break;
      const whole = (rest + value).split("\n");
      rest = whole.pop();
      for (const line of whole) {
        last = JSON.parse(line);
        if (last.html !== undefined) show(last.html);
        else if (last.error) say(last.error);
        else {
          bar.max = last.total || 1;
          bar.value = last.tried;
          status.textContent = figures(last);
        }
      }
    }
    if (last?.html === undefined && !last?.error) say("The back-test broke off: the server went away.");
  };
  tester.addEventListener("click", async () => {
    const own = new AbortController();
    running = own;
    tester.disabled = true;
    bar.value = 0;
    status.textContent = "Looking for requests";
    progress.hidden = false;
    report.classList.add("stale");
    try {
      const answer = await fetch(tester.dataset.backTest, { method: "POST", body: new FormData(form), signal: own.signal });
      if (answer.headers.get("content-type")?.startsWith("application/x-ndjson")) await read(answer);
      else show(answer.ok ? await answer.text() : "");
      if (!answer.ok) say(`The server answered ${answer.status}.`);
    } catch (error) {
      say(own.signal.aborted ? `Cancelled after ${status.textContent}.` : `No answer from the server: ${error.message}`);
    } finally {
      running = null;
      tester.disabled = false;
      progress.hidden = true;
      report.classList.remove("stale");
    }
  });
  progress.querySelector("button").addEventListener("click", () => running?.abort());
}
