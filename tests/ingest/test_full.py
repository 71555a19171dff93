"""What senders are told, and what is held for them, while the record takes nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from django.db import OperationalError

from relayweb.ingest import posts, signals, sockets, tally
from relayweb.recording.writing.submissions import Full, Receipt


class FullWriter:
    """A writer that refuses some times before it takes."""

    def __init__(self, *refusals: Exception) -> None:
        self.refusals = list(refusals)
        self.taken: list[bytes] = []

    async def submit(self, data: bytes, **_: Any) -> Receipt:
        await asyncio.sleep(0)
        if self.refusals:
            raise self.refusals.pop(0)
        self.taken.append(data)
        return Receipt(accepted=data.count(b"\n"))


@pytest.fixture
def writing(monkeypatch: pytest.MonkeyPatch) -> Callable[..., FullWriter]:
    def install(*refusals: Exception) -> FullWriter:
        writer = FullWriter(*refusals)
        monkeypatch.setattr(tally, "writer", lambda: writer)
        return writer

    return install


async def post(
    *pieces: bytes, length: bool = True, left: bool = False, door: Any = posts.atof, **headers: bytes
) -> tuple[int, dict[bytes, bytes], dict]:
    messages = [{"type": "http.request", "body": piece, "more_body": True} for piece in pieces]
    messages[-1]["more_body"] = left
    messages.append({"type": "http.disconnect"})
    sent: list[dict] = []

    async def receive() -> dict:
        return messages.pop(0)

    async def send(message: dict) -> None:
        sent.append(message)

    named = [(name.replace("_", "-").encode(), value) for name, value in headers.items()]
    named += [(b"content-length", b"1")] if length else []
    await door({"headers": named}, receive, send)
    return sent[0]["status"], dict(sent[0]["headers"]), json.loads(sent[1]["body"])


async def test_a_full_record_sends_a_batch_away_and_says_for_how_long(writing: Callable[..., FullWriter]) -> None:
    writing(Full(1, "the record is busy"))
    status, headers, told = await post(b"{}\n")
    assert (status, headers[b"retry-after"]) == (429, b"1")
    assert told == {
        "error": "the record is busy; send this again in 1 s",
        "accepted": 0,
        "duplicates": 0,
        "rejected": [],
    }


@pytest.mark.parametrize("door", [signals.traces, signals.logs])
async def test_a_full_record_tells_exporters_to_try_again(writing: Callable[..., FullWriter], door: Any) -> None:
    request = {"resourceLogs": [{"scopeLogs": [{"logRecords": [{"eventName": "a"}]}]}]}
    if door is signals.traces:
        request = {"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": "a" * 32, "spanId": "1" * 16}]}]}]}
    writer = writing(Full(1, "the record is busy"))
    body = json.dumps(request).encode()
    status, headers, told = await post(body, door=door, content_type=b"application/json")
    assert (status, headers[b"retry-after"], told["accepted"]) == (503, b"1", 0)
    status, _, told = await post(body, door=door, content_type=b"application/json")
    assert (status, told) == (200, {}) and len(writer.taken) == 1


async def test_an_upload_without_end_waits_instead(writing: Callable[..., FullWriter]) -> None:
    writer = writing(Full(1, "busy"), Full(1, "busy"))
    status, _, told = await post(b"{}\n", b"{}\n{}\n", length=False)
    assert (status, told["accepted"]) == (200, 3)
    assert writer.taken == [b"{}\n", b"{}\n{}\n"]


async def test_a_database_that_fails_is_an_answer_to_try_again(writing: Callable[..., FullWriter]) -> None:
    writing(OperationalError("disk I/O error"))
    status, headers, told = await post(b"{}\n")
    assert (status, headers[b"retry-after"]) == (503, b"5")
    assert "disk I/O error" in told["error"]


async def test_a_stopping_server_tells_an_upload_how_far_it_got(writing: Callable[..., FullWriter]) -> None:
    writing()
    status, _, told = await post(b"{}\n{}\n{", length=False, left=True)
    assert status == 503
    assert told["accepted"] == 2 and "stopping" in told["error"]


async def test_a_websocket_holds_what_came_until_the_record_takes_it(
    writing: Callable[..., FullWriter], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sockets, "RETRY_SECONDS", 0.01)
    writer = writing(Full(1, "busy"), OperationalError("locked"), Full(5, "busy"))
    messages = [{"type": "websocket.connect"}]
    messages += [{"type": "websocket.receive", "text": f'{{"n":{n}}}'} for n in range(50)]
    messages += [{"type": "websocket.disconnect", "code": 1006}]

    async def receive() -> dict:
        await asyncio.sleep(0)
        return messages.pop(0)

    sent = []

    async def send(message: dict) -> None:
        sent.append(message["type"])

    await sockets.atof({}, receive, send)
    assert b"".join(writer.taken) == b"".join(b'{"n":%d}\n' % n for n in range(50))
    assert len(writer.taken) < 25, "what gathers meanwhile is committed together"
    assert sent == ["websocket.accept"]


async def test_a_websocket_is_not_read_while_more_than_a_batch_waits(writing: Callable[..., FullWriter]) -> None:
    open_now = asyncio.Event()
    writer = writing()
    take = writer.submit

    async def slow(data: bytes, **members: Any) -> Receipt:
        await open_now.wait()
        return await take(data, **members)

    writer.submit = slow  # type: ignore[method-assign]
    batches = sockets.Batches(tally.Tally("websocket"))
    batches.add(b"{}")
    await asyncio.sleep(0)
    batches.add(b"x" * (sockets.BATCH_BYTES + 1))
    waiting = asyncio.create_task(batches.room())
    await asyncio.sleep(0.01)
    assert not waiting.done()
    open_now.set()
    await waiting
    await batches.close()
    assert len(writer.taken) == 2


async def test_rejections_beyond_a_thousand_are_counted_only() -> None:
    counted = tally.Tally("post")
    for number in range(1, 1501):
        counted.reject(number, "bad")
    told = counted.answer()
    assert len(told["rejected"]) == 1000 and told["rejected_more"] == 500
