// The charts of the statistics page: uPlot in the colours of the tokens; a press on a point opens its turns.
import { moment } from "./brush.js";
import { money, short, span } from "./format.js";
import { onThemeChange, readPalette } from "./palette.js";

const host = document.querySelector("[data-charts]");
const seconds = (value) => span(value / 1e6);
const share = (series, name) => series.attempts.map((count, at) => (count ? (100 * series[name][at]) / count : null));
const KINDS = {
  attempts: { series: [["attempts", "attempts", "k-call", "bars"], ["failed", "failed", "st-failed", "bars"]], format: short },
  share: { series: [["failed_share", "failed", "st-failed"], ["retried_share", "retried", "st-interrupted"]], format: (value) => `${value.toFixed(1)} %` },
  latency: { series: [["latency_p50_us", "p50", "k-llm"], ["latency_p95_us", "p95", "k-agent"]], format: seconds },
  ttft: { series: [["ttft_p50_us", "p50", "k-llm"], ["ttft_p95_us", "p95", "k-agent"]], format: seconds },
  gaps: { series: [["gap_p50_us", "p50", "k-llm"], ["gap_p95_us", "p95", "k-agent"]], format: seconds },
  stalls: { series: [["stalls", "stalls", "st-interrupted", "bars"]], format: short },
  tokens: { series: [["tokens", "read and written", "k-llm"]], format: short },
  cost: { series: [["cost_usd", "cost", "k-llm"], ["wasted_usd", "wasted", "st-failed"]], format: (value) => (value > 0 && value < 0.001 ? `$${value.toFixed(6)}` : money(value)) },
};

function chart(figure, answer, told, palette) {
  const { series, format } = KINDS[figure.dataset.kind];
  const caption = figure.querySelector("figcaption");
  const box = figure.querySelector(".plot") ?? figure.appendChild(Object.assign(document.createElement("div"), { className: "plot" }));
  box.replaceChildren();
  const said = (value) => (value === null || value === undefined ? "–" : format(value));
  const columns = series.map(([name]) => answer.points[name]);
  const axis = { stroke: palette["text-3"], grid: { stroke: palette.line, width: 1 }, ticks: { show: false }, font: `11px ${palette.font}` };
  const length = answer.times.at(-1) - answer.times[0];
  const clock = { hour: "2-digit", minute: "2-digit", hour12: false, ...(length < 600 && { second: "2-digit" }) };
  const moments = (at) => new Date(at * 1000).toLocaleString([], length > 2 * 86400 ? { month: "short", day: "numeric" } : clock);
  const plot = new window.uPlot(
    {
      width: box.clientWidth,
      height: 150,
      cursor: { points: { size: 6 }, drag: { x: false, y: false }, sync: { key: "statistics" } },
      legend: { show: true, live: true },
      // A bar stands on its bucket, which goes on after its beginning: the newest, too.
      scales: { x: { range: (_, from, to) => [from, to + told.width_us / 1e6] }, y: { range: (_, low, high) => [0, high > 0 ? high * 1.08 : 1] } },
      padding: [10, 22, 0, 0],
      axes: [{ ...axis, size: 24, gap: 4, values: (_, ticks) => ticks.map(moments) }, { ...axis, size: 58, gap: 6, values: (_, ticks) => ticks.map(said) }],
      series: [
        { label: "", value: (_, at) => (at === null ? "" : new Date(at * 1000).toLocaleString([], { month: "short", day: "numeric", ...clock })) },
        ...series.map(([name, label, colour, look], index) => ({
          label,
          stroke: palette[colour],
          width: look ? 0 : 1.5,
          fill: look ? palette[colour] : undefined,
          paths: look ? window.uPlot.paths.bars({ size: [0.8, 12], align: 1 }) : undefined,
          points: { show: look ? false : (u, seriesIndex, from, to) => columns[seriesIndex - 1].slice(from, to + 1).filter((value) => value !== null).length < 40, size: 4 },
          spanGaps: false,
          value: (_, __, ___, at) => (at === null || at === undefined ? "" : said(answer.points[name][at])),
        })),
      ],
    },
    [answer.times, ...columns],
    box,
  );
  plot.over.addEventListener("click", () => {
    const at = plot.cursor.idx;
    if (at === null || at === undefined || !answer.points.attempts[at]) return;
    const q = [host.dataset.q, `since:${moment(told.at_us[at])}`, `until:${moment(told.at_us[at] + told.width_us)}`].join(" ").trim();
    location.assign(`${host.dataset.list}?${new URLSearchParams({ q })}`);
  });
  caption.id = `chart-${figure.dataset.kind}`;
  box.setAttribute("role", "img");
  box.setAttribute("aria-labelledby", caption.id);
  return plot;
}

if (host) {
  const told = JSON.parse(document.getElementById(host.dataset.charts).textContent);
  const points = { ...told.series, failed_share: share(told.series, "failed"), retried_share: share(told.series, "retries") };
  const answer = { times: told.at_us.map((us) => us / 1e6), points };
  let plots = [];
  const draw = () => {
    plots.forEach((plot) => plot.destroy());
    const palette = readPalette(host);
    plots = [...host.querySelectorAll(".chart")].map((figure) => chart(figure, answer, told, palette));
  };
  draw();
  onThemeChange(draw);
  new ResizeObserver(() => {
    for (const plot of plots) plot.setSize({ width: plot.root.parentElement.clientWidth, height: 150 });
  }).observe(host);
}
