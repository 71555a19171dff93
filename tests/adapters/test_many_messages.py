"""Rules over many messages run in a thread where there is an event loop, and change nothing else."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from adapters import intercepts, relay_llm
from tests.adapters.conftest import Conversation, Events, answer, body, call

REPLACE = {"key": "r", "action": {"type": "regex_replace", "pattern": "hello", "replacement": "bye"}}


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> list[threading.Thread]:
    """The threads in which rules ran."""
    seen: list[threading.Thread] = []
    prepare = intercepts.prepare

    def noting(call: Any) -> None:
        seen.append(threading.current_thread())
        prepare(call)

    monkeypatch.setattr(intercepts, "prepare", noting)
    return seen


def asking(count: int, text: str = "hello") -> dict[str, Any]:
    return {**body(), "messages": [{"role": "user", "content": f"{text} {n}"} for n in range(count)]}


async def given(request: dict[str, Any], talk: Conversation, id: str) -> Any:
    """What the provider is given."""
    got: list[Any] = []

    def provider(request: Any) -> Any:
        got.append(request)
        return answer()

    with talk.turn.activate():
        await relay_llm.execute_current_async(request, provider, **call(id))
    return got[0]


@pytest.mark.parametrize(("count", "apart"), [(1_000, False), (1_001, True)])
async def test_the_provider_gets_and_the_record_tells_the_same(
    talk: Conversation, events: Events, rules: Any, threads: list[threading.Thread], count: int, apart: bool
) -> None:
    rules(REPLACE)
    request = asking(count)
    out = await given(request, talk, "a")
    assert out["messages"] == asking(count, "bye")["messages"] and out["model"] == "m"
    assert [thread is not threading.main_thread() for thread in threads] == [apart]
    (attempt,), (told,) = events.attempts(), events.marks("relay.request")
    assert attempt["data"]["content"]["messages"] == out["messages"]
    assert len(told["data"]["app_patch"]) == count and len(events.marks("relay.rewrite")) == 1


async def test_a_request_that_no_rule_changes_keeps_its_objects(
    talk: Conversation, rules: Any, threads: list[threading.Thread]
) -> None:
    rules(REPLACE)
    request = asking(2_000, "hi")
    assert (await given(request, talk, "a"))["messages"] is request["messages"]
    assert threads[0] is not threading.main_thread()


async def test_without_rules_there_is_no_thread(talk: Conversation, threads: list[threading.Thread]) -> None:
    request = asking(2_000)
    assert (await given(request, talk, "a"))["messages"] is request["messages"]
    assert threads == [threading.main_thread()]


async def test_a_call_cancelled_while_the_rules_run_holds_no_shutdown_up(
    talk: Conversation, rules: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules(REPLACE)
    begun, go_on = threading.Event(), threading.Event()
    prepare = intercepts.prepare

    def waiting(call: Any) -> None:
        begun.set()
        go_on.wait(20)
        prepare(call)

    monkeypatch.setattr(intercepts, "prepare", waiting)
    asked = asyncio.ensure_future(given(asking(2_000), talk, "a"))
    assert await asyncio.to_thread(begun.wait, 20)
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    go_on.set()
    talk.host.shutdown()
    assert await asyncio.to_thread(talk.host.wait_closed, 20)
