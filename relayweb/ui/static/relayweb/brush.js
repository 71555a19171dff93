// Drag over the histogram to keep the turns of that time: the choice becomes since: and until: in the search.

/** Makes an `svg[data-brush]` with `data-from` and `data-step` (µs) and `data-buckets` answer to drags. */
export function brush(svg) {
  if (!svg) return;
  const { from, step, buckets } = Object.fromEntries(Object.entries(svg.dataset).map(([name, value]) => [name, Number(value)]));
  const mark = svg.querySelector(".h-brush");
  const width = svg.viewBox.baseVal.width;
  const bucket = (event) => {
    const box = svg.getBoundingClientRect();
    return Math.max(0, Math.min(buckets - 1, Math.floor(((event.clientX - box.left) / box.width) * buckets)));
  };
  svg.addEventListener("pointerdown", (down) => {
    if (down.button !== 0) return;
    svg.setPointerCapture(down.pointerId);
    const first = bucket(down);
    let last = first;
    const draw = (event) => {
      last = bucket(event);
      const [low, high] = [Math.min(first, last), Math.max(first, last)];
      mark.setAttribute("x", String((low / buckets) * width));
      mark.setAttribute("width", String(((high - low + 1) / buckets) * width));
    };
    draw(down);
    svg.addEventListener("pointermove", draw);
    const leave = () => svg.removeEventListener("pointermove", draw);
    svg.addEventListener("pointercancel", leave, { once: true });
    svg.addEventListener("pointerup", () => {
      leave();
      const [low, high] = [Math.min(first, last), Math.max(first, last)];
      choose(moment(from + low * step), moment(from + (high + 1) * step));
    }, { once: true });
  });
}

/** A moment in microseconds as the search language reads it, no microsecond lost: turns may be closer than a millisecond. */
export function moment(us) {
  const whole = Math.floor(us / 1e6);
  return `${new Date(whole * 1000).toISOString().slice(0, 19)}.${String(Math.floor(us - whole * 1e6)).padStart(6, "0")}`;
}

function choose(since, until) {
  const form = document.querySelector("form.searchrow");
  const field = form.querySelector('input[name="q"]');
  const kept = [...form.querySelectorAll(".qchip")].map((chip) => chip.dataset.term).filter((term) => !/^-?(since|until):/.test(term));
  field.value = [...kept, `since:${since}`, `until:${until}`].join(" ");
  form.requestSubmit();
}
