from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from adapters import intercepts
from relayweb.intercepts import publish
from tests.writers import own_writer


@pytest.fixture(autouse=True)
def rules_of_this_test() -> Iterator[None]:
    """Each test starts without rules in force and leaves none."""
    publish._applied.number = None
    before = intercepts.swap(intercepts.RuleSet())
    yield
    publish.close()
    publish._applied.number = None
    publish._applied.unusable = {}
    intercepts.failures.clear()
    intercepts.failures.on_disabled = None
    intercepts.swap(before)


@pytest.fixture(autouse=True)
def own_writer_of_the_test() -> Iterator[None]:
    with own_writer():
        yield


@pytest.fixture
def value() -> dict[str, Any]:
    """A config that sets a parameter."""
    return {
        "key": "cooler",
        "title": "Cooler answers",
        "enabled": True,
        "mode": "enforce",
        "priority": 100,
        "break_chain": False,
        "on_error": "open",
        "match": {},
        "action": {"type": "set_parameters", "parameters": {"temperature": 0.2}},
    }
