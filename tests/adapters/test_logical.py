"""`logical_call`: one wanted answer, however many attempts it takes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from adapters import logical_call
from adapters.sessions import CALL_ROLE_KEY
from tests.adapters.conftest import Conversation, Events, answer, body, chunk


def broken(_request: Any) -> Any:
    raise ConnectionError("down")


def test_its_attempts_share_it_and_it_ends_with_the_block(talk: Conversation, events: Events) -> None:
    with logical_call("p", api_mode="chat_completions", call_role="auxiliary:title", metadata={"why": "test"}) as call:
        with pytest.raises(ConnectionError):
            call.execute(body(), broken)
        assert events.outcomes() == []
        response = answer()
        assert call.execute(body(), lambda r: response) is response
        assert call.attempts == 2
    [logical] = events.starts("relay.logical_llm_call")
    assert events.outcomes() == ["success"]
    assert logical["metadata"][CALL_ROLE_KEY] == "auxiliary:title"
    assert {e["parent_uuid"] for e in events.attempts()} == {logical["uuid"]}
    assert [e["metadata"]["retry_count"] for e in events.attempts()] == [0, 1]
    assert all(e["metadata"]["why"] == "test" and e["metadata"]["relay.provider"] == "p" for e in events.attempts())
    assert events.attempts()[0]["category_profile"]["model_name"] == "m"


@pytest.mark.parametrize(
    "error, outcome",
    [(ValueError("x"), "failed"), (KeyboardInterrupt(), "cancelled"), (asyncio.CancelledError(), "cancelled")],
)
def test_what_leaves_the_block_tells_the_outcome(
    talk: Conversation, events: Events, error: BaseException, outcome: str
) -> None:
    with pytest.raises(type(error)), logical_call("p", api_mode="chat_completions") as call:
        call.execute(body(), lambda r: answer())
        raise error
    assert events.outcomes() == [outcome]


def test_a_stream_that_is_read_to_its_end_leaves_it_open_until_the_block_ends(
    talk: Conversation, events: Events
) -> None:
    with logical_call("p", api_mode="chat_completions") as call:
        assert len(list(call.stream(body(), lambda r: iter([chunk("a"), chunk("b", "stop")])))) == 2
        assert events.outcomes() == []
    assert events.outcomes() == ["success"]


async def test_the_async_forms(talk: Conversation, events: Events) -> None:
    async def source(_request: Any) -> Any:
        yield chunk("a", "stop")

    with talk.turn.activate():
        async with logical_call("p", api_mode="chat_completions") as call:
            assert await call.execute_async(body(), lambda r: {"ok": 1}) == {"ok": 1}
            assert [c async for c in await call.stream_async(body(), source)] == [chunk("a", "stop")]
    assert events.outcomes() == ["success"] and len(events.attempts()) == 2


def test_outside_a_turn_it_only_calls() -> None:
    with logical_call("p", api_mode="chat_completions") as call:
        assert call.execute(request := body(), lambda r: r) is request
