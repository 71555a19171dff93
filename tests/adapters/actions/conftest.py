"""Rules run by Relay's dispatch, where there are other intercepts, and without it, where there are none."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.adapters.relay_calls import dispatched


@pytest.fixture(autouse=True, params=[False, True], ids=["alone", "dispatched"])
def way(request: pytest.FixtureRequest) -> Iterator[None]:
    with dispatched(request.param):
        yield
