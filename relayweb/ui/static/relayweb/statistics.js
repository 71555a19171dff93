// The charts of the statistics page: uPlot in the colours of the tokens; a press on a point opens its turns.
import { money, short, span } from "./format.js";
import { onThemeChange, readPalette } from "./palette.js";

const host = document.querySelector("[data-charts]");
const seconds = (value) => span(value / 1e6);
const KINDS = {
  attempts: { series: [["ok", "ok", "k-call", "bars"], ["failed", "failed", "st-failed", "bars"]], format: short },
  share: { series: [["failed_share", "failed", "st-failed"], ["retried_share", "retried", "st-interrupted"]], format: (value) => `${value.toFixed(1)} %` },
  latency: { series: [["p50", "p50", "k-llm"], ["p95", "p95", "k-agent"]], format: seconds },
  ttft: { series: [["ttft_p50", "p50", "k-llm"], ["ttft_p95", "p95", "k-agent"]], format: seconds },
  tokens: { series: [["input_tokens", "read", "k-llm"], ["cached_tokens", "of it cached", "k-tool"], ["output_tokens", "written", "k-agent"]], format: short },
  cost: { series: [["cost", "cost", "k-llm"], ["wasted", "wasted", "st-failed"]], format: money },
};

function chart(figure, answer, palette) {
  const { series, format } = KINDS[figure.dataset.kind];
  const caption = figure.querySelector("figcaption");
  const box = figure.querySelector(".plot") ?? figure.appendChild(Object.assign(document.createElement("div"), { className: "plot" }));
  box.replaceChildren();
  const said = (value) => (value === null || value === undefined ? "–" : format(value));
  // Bars overlay from the back: failed stands in front of all, so "ok" is drawn as the sum.
  const columns = series.map(([name], index) =>
    figure.dataset.kind === "attempts" && index === 0 ? answer.points.attempts : answer.points[name]);
  const axis = { stroke: palette["text-3"], grid: { stroke: palette.line, width: 1 }, ticks: { show: false }, font: `11px ${palette.font}` };
  const long = answer.times.at(-1) - answer.times[0] > 2 * 86400;
  const moments = (at) => new Date(at * 1000).toLocaleString([], long ? { month: "short", day: "numeric" } : { hour: "2-digit", minute: "2-digit", hour12: false });
  const plot = new window.uPlot(
    {
      width: box.clientWidth,
      height: 150,
      cursor: { points: { size: 6 }, drag: { x: false, y: false }, sync: { key: "statistics" } },
      legend: { show: true, live: true },
      scales: { y: { range: (_, low, high) => [0, high > 0 ? high * 1.08 : 1] } },
      padding: [10, 8, 0, 0],
      axes: [{ ...axis, size: 24, gap: 4, values: (_, ticks) => ticks.map(moments) }, { ...axis, size: 58, gap: 6, values: (_, ticks) => ticks.map(said) }],
      series: [
        { value: (_, at) => (at === null ? "" : new Date(at * 1000).toLocaleString([], { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", hour12: false })) },
        ...series.map(([name, label, colour, look], index) => ({
          label,
          stroke: palette[colour],
          width: look ? 0 : 1.5,
          fill: look ? palette[colour] : undefined,
          paths: look ? window.uPlot.paths.bars({ size: [0.8, 12], align: 1 }) : undefined,
          points: { show: look ? false : (u, seriesIndex, from, to) => columns[seriesIndex - 1].slice(from, to + 1).filter((value) => value !== null).length < 40, size: 4 },
          spanGaps: false,
          value: (_, __, ___, at) => (at === null || at === undefined ? "–" : said(answer.points[name][at])),
        })),
      ],
    },
    [answer.times, ...columns],
    box,
  );
  plot.over.addEventListener("click", () => {
    const at = plot.cursor.idx;
    if (at === null || at === undefined || !answer.points.attempts[at]) return;
    const moment = (seconds) => new Date(seconds * 1000).toISOString().replace("Z", "");
    const kept = host.dataset.q.split(" ").filter((term) => term && !/^-?(since|until):/.test(term));
    const q = [...kept, `since:${moment(answer.times[at])}`, `until:${moment(answer.times[at] + answer.step)}`].join(" ");
    location.assign(`${host.dataset.list}?${new URLSearchParams({ q })}`);
  });
  caption.id = `chart-${figure.dataset.kind}`;
  box.setAttribute("role", "img");
  box.setAttribute("aria-labelledby", caption.id);
  return plot;
}

if (host) {
  const answer = await (await fetch(host.dataset.charts)).json();
  let plots = [];
  const draw = () => {
    plots.forEach((plot) => plot.destroy());
    const palette = readPalette(host);
    plots = [...host.querySelectorAll(".chart")].map((figure) => chart(figure, answer, palette));
  };
  draw();
  onThemeChange(draw);
  new ResizeObserver(() => {
    for (const plot of plots) plot.setSize({ width: plot.root.parentElement.clientWidth, height: 150 });
  }).observe(host);
}
