from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from relayweb.server import limits
from relayweb.server.flow import Gate, Inbox


def inbox() -> tuple[Inbox, list[str]]:
    calls: list[str] = []
    return Inbox(lambda: calls.append("pause"), lambda: calls.append("resume")), calls


def part(body: bytes, more: bool = True) -> dict:
    return {"type": "http.request", "body": body, "more_body": more}


@given(st.lists(st.binary(max_size=20)), st.lists(st.booleans()))
def test_a_body_comes_whole_and_in_order_whenever_it_is_asked_for(pieces: list[bytes], asks: list[bool]) -> None:
    async def run() -> None:
        box, _ = inbox()
        seen = []
        for piece, ask in zip(pieces, asks + [False] * len(pieces), strict=False):
            box.put_nowait(part(piece))
            if ask:
                seen.append(await box.get())
        box.put_nowait(part(b"", more=False))
        box.put_nowait({"type": "http.disconnect"})
        while (message := await box.get())["type"] == "http.request":
            seen.append(message)
        assert b"".join(message["body"] for message in seen) == b"".join(pieces)
        assert [message["more_body"] for message in seen] == [True] * (len(seen) - 1) + [False]

    asyncio.run(run())


async def test_a_client_is_read_again_only_when_there_is_room() -> None:
    box, calls = inbox()
    for _ in range(5):
        box.put_nowait({"type": "websocket.receive", "text": "x" * (limits.INBOX_BYTES // 3)})
    assert calls and set(calls) == {"pause"}
    calls.clear()
    await box.get()
    await box.get()
    assert calls == []
    await box.get()
    assert calls == ["resume"]


async def test_many_small_messages_count_for_what_they_cost() -> None:
    box, calls = inbox()
    for _ in range(10_000):
        box.put_nowait({"type": "websocket.receive", "text": "{}"})
    assert "pause" in calls
    for _ in range(10_000):
        await box.get()
    assert calls[-1] == "resume" and calls.count("resume") == 1


async def test_a_disconnect_comes_after_everything_else_and_for_ever() -> None:
    box, _ = inbox()
    box.put_nowait({"type": "websocket.receive", "text": "last"})
    box.put_nowait({"type": "websocket.disconnect", "code": 1001})
    assert [(await box.get())["type"] for _ in range(3)] == [
        "websocket.receive",
        "websocket.disconnect",
        "websocket.disconnect",
    ]


async def test_a_message_is_not_lost_when_the_one_waiting_for_it_is_cancelled() -> None:
    box, _ = inbox()
    waiting = asyncio.create_task(box.get())
    await asyncio.sleep(0)
    waiting.cancel()
    box.put_nowait(part(b"here", more=False))
    assert (await box.get())["body"] == b"here"


async def test_a_gate_holds_writers_while_the_client_takes_nothing() -> None:
    gate = Gate()
    await gate.passed()
    gate.pauseProducing()
    waiting = asyncio.create_task(gate.passed())
    await asyncio.sleep(0.01)
    assert not waiting.done() and not gate.stalled()
    gate.resumeProducing()
    await waiting
