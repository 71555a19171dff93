"""The turn page in Chromium: first paint of 10 000 scopes, frames while 100 000 are panned and zoomed.

Needs Chromium (RELAYWEB_CHROMIUM, or on the PATH, or Playwright's own); raises where there is none.
"""

from __future__ import annotations

import os
import re
import shutil
import statistics
import subprocess
import sys
from typing import Any
from urllib.parse import urlsplit

import httpx2
from playwright.sync_api import sync_playwright

from bench import Row
from bench._agent import Agent, lines, timestamp
from bench.live import served, token

SCOPES = 10_000
MANY = 100_000
T0 = 1_790_000_000_000_000_000
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
]


def record_large_turn(url: str, secret: str) -> str:
    """A turn of `SCOPES` scopes: calls, their attempts and tools; its uuid."""
    agent = Agent("bench-ui")
    events: list[dict[str, Any]] = []

    def span(start: float, length: float, name: str, category: str, parent: str, **data: Any) -> str:
        from bench._agent import uuid7

        uuid = uuid7()
        for edge, at in (("start", start), ("end", start + length)):
            event = agent.scope(edge, uuid, name, category, parent, data=data or {})
            events.append({**event, "timestamp": timestamp(T0 + int(at * 1e9))})
        return uuid

    events.append({**agent.scope("start", agent.turn, "relay.turn", "function", None), "timestamp": timestamp(T0)})
    for k in range(SCOPES // 3):
        call = span(0.3 * k, 0.18, "relay.logical_llm_call", "function", agent.turn)
        span(0.3 * k, 0.18, "openai", "llm", call, content={"model": "bench-1"})
        span(0.3 * k + 0.19, 0.07, "read_file", "tool", agent.turn)
    end = timestamp(T0 + int(0.1 * SCOPES * 1e9))
    events.append({**agent.scope("end", agent.turn, "relay.turn", "function", None, data={}), "timestamp": end})
    headers = {"authorization": f"Bearer {secret}"}
    for at in range(0, len(events), 4_000):
        answer = httpx2.post(f"{url}/ingest/atof", content=lines(events[at : at + 4_000]), headers=headers, timeout=60)
        answer.raise_for_status()
    return agent.turn


def program() -> str | None:
    """The Chromium to use; None for Playwright's own."""
    return os.environ.get("RELAYWEB_CHROMIUM") or shutil.which("chromium")


def login_path(env: dict[str, str]) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "relayweb", "login"], env=env, capture_output=True, check=True, text=True
    )
    found = re.search(r"http://\S+", done.stdout)
    if found is None:
        raise RuntimeError(f"no login link: {done.stdout}")
    return urlsplit(found[0]).path


FILL = """(many) => {
  // A hundred thousand scopes, put into the open page as one frame: lanes of calls, tools and retries.
  const origin = relayTurn.model.turn.start_us, turn = relayTurn.model.turn.uuid;
  const names = ["uuid", "parent_uuid", "role", "name", "status", "start_us", "end_us", "call_role", "attempt"];
  const n = Object.fromEntries(names.map((name) => [name, []]));
  const put = (uuid, parent, role, name, status, at, length, attempt) => {
    n.uuid.push(uuid); n.parent_uuid.push(parent); n.role.push(role); n.name.push(name); n.status.push(status);
    n.start_us.push(origin + Math.round(at * 1e6)); n.end_us.push(origin + Math.round((at + length) * 1e6));
    n.call_role.push(role === "logical_call" ? "primary" : null); n.attempt.push(attempt ?? null);
  };
  for (let k = 0; n.uuid.length < many; k += 1) {
    const at = 0.31 * k, bad = k % 53 === 0;
    put(`x${k}`, turn, "logical_call", "relay.logical_llm_call", "ok", at, 0.2);
    put(`x${k}a`, `x${k}`, "attempt", "openai", bad ? "failed" : "ok", at, bad ? 0.05 : 0.2, 1);
    if (bad) put(`x${k}b`, `x${k}`, "attempt", "openai", "ok", at + 0.1, 0.1, 2);
    put(`x${k}t`, turn, "tool", "read_file", "ok", at + 0.2, 0.1);
    put(`x${k}u`, turn, "tool", "search", k % 97 ? "ok" : "failed", at + 0.22, 0.15);
  }
  const began = performance.now();
  relayTurn.apply({ cursor: 0, now_us: origin, nodes: n });
  relayTurn.timeline.fit();
  return { count: relayTurn.model.count, took: performance.now() - began };
}"""

MOVE = """async () => {
  const line = relayTurn.timeline, spent = [], gaps = [];
  const frame = () => new Promise((done) => requestAnimationFrame(done));
  let last = await frame();
  for (let k = 0; k < 180; k += 1) {
    const began = performance.now();
    if (k < 60) line.zoom(k % 2 ? 0.94 : 0.95, line.domain * 0.4);
    else if (k < 120) line.pan(k % 40 < 20 ? 0.04 : -0.04);
    else line.zoom(1.06, line.domain * 0.4);
    line.draw();
    spent.push(performance.now() - began);
    const now = await frame();
    gaps.push(now - last);
    last = now;
  }
  return { spent, gaps };
}"""


def p95(values: list[float]) -> float:
    return sorted(values)[int(0.95 * len(values))]


def run() -> list[Row]:
    with served() as (url, env, _), sync_playwright() as p:
        turn = record_large_turn(url, token(env, "ingest"))
        browser = p.chromium.launch(executable_path=program(), args=FLAGS)
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.goto(url + login_path(env))
        if "/login" in page.url:
            page.locator("form button[type=submit]").first.click()
            page.wait_for_url(lambda at: "/login" not in at)
        paints, rows_shown, elements = [], 0, 0
        for _ in range(5):
            page.goto(f"{url}/turns/{turn}/")
            page.wait_for_selector(".turnpage.ready")
            paints.append(page.evaluate("() => performance.getEntriesByName('relay:painted')[0].startTime"))
            rows_shown = page.locator(".trow").count()
            elements = page.evaluate("() => document.querySelectorAll('*').length")
        filled = page.evaluate(FILL, MANY)
        moved = page.evaluate(MOVE)
        browser.close()
    return [
        (f"first paint of a turn of {SCOPES:,} scopes, median of 5", statistics.median(paints), "ms", "≤ 1000"),
        ("rows of the tree that are elements", rows_shown, "", "≤ 200"),
        ("elements in the page", elements, "", ""),
        (f"{filled['count']:,} scopes: laid out and drawn after they came", filled["took"], "ms", ""),
        (
            f"{filled['count']:,} scopes: work of a frame while panning and zooming, p95",
            p95(moved["spent"]),
            "ms",
            "≤ 16.7",
        ),
        (f"{filled['count']:,} scopes: time between frames, median", statistics.median(moved["gaps"]), "ms", ""),
    ]


if __name__ == "__main__":
    from bench import table

    print(table(run()))
