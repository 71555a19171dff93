"""What the tools of a turn were called with, in a few words."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from django.test import Client
from django.urls import reverse

from bench._agent import Agent, lines, uuid7
from relayweb.recording.writing.writer import writer

ARGUMENTS: list[tuple[Any, str]] = [
    ({"path": "src/app.py", "lines": 40, "deep": {"x": 1}, "sure": True}, "src/app.py 40"),
    ("ls -la\n  src", "ls -la src"),
    (["a", 2, None], "a 2"),
    (None, ""),
    ({"text": "x" * 500}, "x" * 79 + "…"),
    ({"html": "<script>alert(1)</script>"}, "<script>alert(1)</script>"),
]


@pytest.mark.parametrize(("data", "said"), ARGUMENTS)
def test_a_tool_tells_its_plain_arguments(viewer: Client, data: Any, said: str) -> None:
    agent, tool = Agent("hints"), uuid7()
    start = agent.scope("start", tool, "read_file", "tool", agent.turn, data=data)
    assert not writer().submit_sync(lines([*agent.begin(), start]), source="post").rejected
    address = reverse("ui:turn-hints", args=[agent.turn])
    told = viewer.get(address, {"scope": f"{tool},{uuid4()},no uuid"}).json()
    assert told == {"hints": {tool: said}}


def test_tools_of_another_turn_and_other_scopes_are_not_told(viewer: Client) -> None:
    one, other, tool = Agent("hints-1"), Agent("hints-2"), uuid7()
    start = one.scope("start", tool, "read_file", "tool", one.turn, data={"path": "secret"})
    writer().submit_sync(lines([*one.begin(), start, *other.begin()]), source="post")
    asked = {"scope": f"{tool},{one.turn}"}
    assert viewer.get(reverse("ui:turn-hints", args=[other.turn]), asked).json() == {"hints": {}}
    assert list(viewer.get(reverse("ui:turn-hints", args=[one.turn]), asked).json()["hints"]) == [tool]
    assert Client().get(reverse("ui:turn-hints", args=[one.turn])).status_code == 302
