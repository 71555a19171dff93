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

document.addEventListener("htmx:afterSwap", (event) => {
  const words = event.target.querySelector?.("[data-would-match]");
  if (words) document.getElementById("would-match").textContent = words.textContent;
});
