// Numbers to words, the same everywhere. Pure: no DOM, no clock, no locale.

const MINUS = "−";

/** Seconds on an axis whose ticks stand `step` seconds apart: "1:45", "0.5 s", "20 ms". */
export function clock(seconds, step = 1) {
  if (seconds < 0) return MINUS + clock(-seconds, step);
  if (seconds === 0) return "0 s";
  const digits = step >= 1 ? 0 : Math.min(6, Math.ceil(-Math.log10(step) - 1e-9));
  if (step < 1e-3 || (seconds < 1e-3 && seconds > 0)) return `${Math.round(seconds * 1e6)} µs`;
  if (step < 0.1 && seconds < 1) return `${Math.round(seconds * 1e3)} ms`;
  const whole = Number(seconds.toFixed(digits));
  const hours = Math.floor(whole / 3600);
  const minutes = Math.floor((whole - hours * 3600) / 60);
  const rest = (whole - hours * 3600 - minutes * 60).toFixed(digits);
  const padded = rest.padStart(digits ? digits + 3 : 2, "0");
  if (hours) return `${hours}:${String(minutes).padStart(2, "0")}:${padded}`;
  return minutes ? `${minutes}:${padded}` : `${rest} s`;
}

/** A length of time in seconds, three digits where they matter: "212 µs", "840 ms", "6.16 s", "2 m 30 s". */
export function span(seconds) {
  if (seconds === null || seconds === undefined || Number.isNaN(seconds)) return "–";
  if (seconds < 0) return MINUS + span(-seconds);
  if (seconds === 0) return "0 ms";
  if (seconds < 9.995e-4) return `${Math.round(seconds * 1e6)} µs`;
  if (seconds < 0.01) return `${(seconds * 1e3).toFixed(1)} ms`;
  if (seconds < 0.9995) return `${Math.round(seconds * 1e3)} ms`;
  if (seconds < 9.995) return `${seconds.toFixed(2)} s`;
  if (seconds < 59.95) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  if (whole < 3600) return `${Math.floor(whole / 60)} m ${whole % 60} s`;
  if (whole < 86400) return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} m`;
  return `${Math.floor(whole / 86400)} d ${Math.floor((whole % 86400) / 3600)} h`;
}

/** A count in few characters: 950, "6.9k", "1.2M". */
export function short(count) {
  if (count === null || count === undefined) return "–";
  if (Math.abs(count) < 1000) return String(count);
  const [by, letter] = Math.abs(count) < 999_950 ? [1e3, "k"] : Math.abs(count) < 999_950_000 ? [1e6, "M"] : [1e9, "G"];
  return `${(count / by).toFixed(1).replace(/\.0$/, "")}${letter}`;
}

/** A cost in dollars: "$0.412", "$12.30", "<$0.001". */
export function money(dollars) {
  if (dollars === null || dollars === undefined) return "–";
  if (dollars === 0) return "$0";
  if (dollars < 0.001) return "<$0.001";
  return `$${dollars.toFixed(dollars < 1 ? 3 : 2)}`;
}

export function plural(count, one, many = `${one}s`) {
  return `${count} ${count === 1 ? one : many}`;
}
