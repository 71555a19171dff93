"""What the helpers of these tests leave behind when a test fails."""

from __future__ import annotations

import asyncio

import nemo_relay
import pytest

from adapters import intercepts
from tests.adapters.relay_calls import body, dispatched, run


def test_a_failure_takes_the_dispatcher_away() -> None:
    with pytest.raises(ZeroDivisionError), dispatched(True):
        assert intercepts._registered
        raise ZeroDivisionError
    assert not intercepts._registered


async def test_a_call_cancelled_while_it_flushes_takes_its_subscriber_away(monkeypatch: pytest.MonkeyPatch) -> None:
    removed: list[str] = []
    real = nemo_relay.subscribers.deregister

    async def cancelled() -> None:
        raise asyncio.CancelledError

    def deregister(name: str) -> None:
        removed.append(name)
        real(name)

    monkeypatch.setattr(nemo_relay.subscribers, "flush_async", cancelled)
    monkeypatch.setattr(nemo_relay.subscribers, "deregister", deregister)
    with pytest.raises(asyncio.CancelledError):
        await run(body("chat_completions"), "chat_completions")
    assert len(removed) == 1
