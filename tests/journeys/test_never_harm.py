"""Whatever befalls the recorder, calls go on as before; the trouble is said, and ends by itself.

How much slower calls become is measured by `python -m bench harm`; here it must not be more than twice, because other
tests share the machine.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from bench._faults import NotHere, small_disk
from bench.gateway import PROJECT, relayweb
from bench.harm import FAULTS, Scene, scene, share, took

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(os.environ.get("DATABASE_URL")), reason="about the file of SQLite"),
]


def soon(is_so: Callable[[], Any], what: str, seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        time.sleep(0.05)


@pytest.fixture
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    with contextlib.ExitStack() as stack:
        folder = tmp_path
        if request.param == "disk full":
            try:
                folder = stack.enter_context(small_disk(tmp_path / "disk"))
            except NotHere as reason:
                pytest.skip(str(reason))
        made = stack.enter_context(scene(folder / "home"))
        soon(lambda: len(made.agent.calls) > 20 and len(made.client.calls) > 20, "both call")
        yield made


def health(made: Scene) -> dict[str, Any]:
    return made.server.health()


def unharmed(calls: list[tuple[float, float]], begin: float, middle: float, end: float) -> None:
    before, during = took(calls, begin, middle), took(calls, middle, end)
    assert len(during) > 50
    assert share(during, 0.5) <= 2 * share(before, 0.5) + 2, (share(before, 0.5), share(during, 0.5))
    assert during[-1] < 2_000, "a call stood still"


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        ("database locked", "locked"),
        ("disk full", "full"),
        ("no file may grow", "cannot be written|disk"),
    ],
    indirect=["made"],
)
def test_calls_go_on_and_are_recorded_later_while_the_record_takes_nothing(
    made: Scene, reason: str, request: pytest.FixtureRequest
) -> None:
    name = request.node.callspec.params["made"]
    server = made.server
    reader = httpx2.Client(base_url=server.url, timeout=20)
    reader.get(relayweb(server.env, "login").split()[-1])
    begin = time.monotonic()
    time.sleep(2)
    middle = time.monotonic()
    with FAULTS[name][0](made, server.home):
        soon(lambda: health(made)["status"] == "degraded", "trouble is told")
        assert re.search(reason, reader.get("/healthz").json()["reason"])
        page = reader.get("/")
        assert page.status_code == 200 and "The recorder is degraded." in page.text
        time.sleep(2)
        end = time.monotonic()
    soon(lambda: health(made)["status"] == "ok", "it records again")
    assert "The recorder is degraded." not in reader.get("/").text
    reader.close()
    unharmed(made.agent.calls, begin, middle, end)
    unharmed(made.client.calls, begin, middle, end)
    assert made.end() == 0
    assert not made.client.failed
    soon(lambda: health(made)["writer"]["queued_bytes"] == 0, "all is written")
    expected = len(made.agent.calls) + len(made.client.calls)

    def recorded() -> int:
        events = map(json.loads, relayweb(server.env, "export").splitlines())
        return sum(e.get("category") == "llm" and e.get("scope_category") == "end" for e in events)

    soon(lambda: recorded() == expected, f"all {expected} calls are on record")
    assert health(made)["writer"]["dropped"] == 0
    check = subprocess.run([sys.executable, "-m", "relayweb", "check"], env=server.env, cwd=PROJECT)
    assert check.returncode == 0


@pytest.mark.parametrize("made", ["server stopped", "server killed"], indirect=True)
def test_an_agent_does_not_notice_that_its_dashboard_is_gone(made: Scene, request: pytest.FixtureRequest) -> None:
    name = request.node.callspec.params["made"]
    made.client.stop()
    begin = time.monotonic()
    time.sleep(2)
    middle = time.monotonic()
    with FAULTS[name][0](made, made.server.home):
        time.sleep(3)
        end = time.monotonic()
    unharmed(made.agent.calls, begin, middle, end)
    known = health(made)["writer"]["seq"]
    soon(lambda: health(made)["writer"]["seq"] > known, "the agent's events come again")
    assert made.end() == 0
