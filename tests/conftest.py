"""Fixtures that more than one part's tests use."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.served import Served


@pytest.fixture
def serve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Served]]:
    """Starts servers on fresh homes, and stops them after the test: `serve(RELAYWEB_MAX_BODY="1000")`."""
    started: list[Served] = []

    def start(*args: str, **env: str) -> Served:
        started.append(Served(tmp_path_factory.mktemp("home"), **env))
        return started[-1].start(*args)

    yield start
    for served in started:
        served.stop()
