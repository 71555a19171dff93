"""The sockets: who may open one, and what a viewer is sent."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from relayweb.live import consumers, frames, hub
from tests.live.test_hub import TURN, Record, soon


class Socket:
    """The other side of a viewer."""

    def __init__(self, viewer_hub: hub.Hub, *, cursor: int = 0, acks: bool = True) -> None:
        self.inbox: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.sent: list[dict[str, Any]] = []
        self.acks = acks
        self.say({"cursor": cursor})
        self.viewer = consumers.Viewer(viewer_hub, TURN, self.inbox.get, self._take)
        self.task = asyncio.create_task(self.viewer.run())

    def say(self, message: Any) -> None:
        self.inbox.put_nowait({"type": "websocket.receive", "text": json.dumps(message)})

    async def _take(self, message: Any) -> None:
        self.sent.append(message)
        if self.acks and message["type"] == "websocket.send":
            self.say({"ack": json.loads(message["text"])["cursor"]})

    @property
    def frames(self) -> list[dict[str, Any]]:
        return [json.loads(m["text"]) for m in self.sent if m["type"] == "websocket.send"]

    async def leave(self) -> None:
        self.inbox.put_nowait({"type": "websocket.disconnect", "code": 1000})
        await asyncio.wait_for(self.task, 3)


@pytest.fixture
async def started() -> Any:
    one = hub.Hub(Record())
    one.start()
    yield one
    await one.close()


async def test_a_viewer_gets_what_comes_after_its_cursor(started: hub.Hub) -> None:
    record: Any = started.source
    socket = Socket(started)
    await soon(lambda: started.topics)
    for n in range(1, 4):
        record.commit(TURN)
        await soon(lambda n=n: socket.frames and socket.frames[-1]["cursor"] == n)  # type: ignore[misc]
    assert all(not frame["resync"] for frame in socket.frames)
    await socket.leave()
    assert started.topics == {}


async def test_a_viewer_that_does_not_acknowledge_gets_two_frames_and_then_one_a_second(started: hub.Hub) -> None:
    record: Any = started.source
    socket = Socket(started, acks=False)
    await soon(lambda: started.topics)
    for _ in range(12):
        record.commit(TURN)
        await asyncio.sleep(0.06)
    assert len(socket.frames) == consumers.UNACKNOWLEDGED
    await soon(lambda: len(socket.frames) > consumers.UNACKNOWLEDGED, 2)
    assert socket.frames[-1]["cursor"] == record.seq
    await socket.leave()


async def test_a_slow_viewer_gets_fewer_larger_frames_and_misses_nothing(started: hub.Hub) -> None:
    record: Any = started.source
    socket = Socket(started, acks=False)
    await soon(lambda: started.topics)
    for _ in range(8):
        record.commit(TURN)
        await asyncio.sleep(0.06)
    socket.say({"ack": 1})
    await soon(lambda: socket.frames[-1]["cursor"] == record.seq)
    assert len(socket.frames) == consumers.UNACKNOWLEDGED + 1
    await socket.leave()


async def test_a_cursor_from_before_the_ring_is_served_from_the_database(started: hub.Hub) -> None:
    record: Any = started.source
    record.seq = 500
    socket = Socket(started, cursor=3)
    await soon(lambda: socket.frames)
    assert socket.frames[0]["resync"] is True
    assert socket.frames[0]["cursor"] == 500
    await socket.leave()


async def test_a_cursor_of_another_record_starts_anew(started: hub.Hub) -> None:
    record: Any = started.source
    record.seq = 10
    socket = Socket(started, cursor=99_999)
    await soon(lambda: socket.frames)
    assert socket.frames[0] == socket.frames[0] | {"resync": True, "cursor": 10}
    await socket.leave()


async def test_too_much_waiting_becomes_a_resync(started: hub.Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumers, "MERGED_BYTES", 100)
    record: Any = started.source
    socket = Socket(started, acks=False)
    await soon(lambda: started.topics)
    for _ in range(8):
        record.commit(TURN)
        await asyncio.sleep(0.06)
    socket.say({"ack": 1})
    await soon(lambda: socket.frames[-1]["resync"])
    assert socket.frames[-1]["cursor"] == record.seq
    await socket.leave()


async def test_an_empty_frame_breaks_a_long_silence(started: hub.Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumers, "IDLE_SECONDS", 0.1)
    socket = Socket(started)
    await soon(lambda: len(socket.frames) >= 2)
    assert set(socket.frames[0]) == {"cursor", "now_us", "resync"}
    await socket.leave()


async def test_an_empty_frame_breaks_the_silence_of_a_turn_while_others_change(
    started: hub.Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumers, "IDLE_SECONDS", 0.1)
    socket = Socket(started)

    async def others_change() -> None:
        while True:
            for topic in started.topics.values():
                topic.cursor += 1
            await asyncio.sleep(0.001)

    changing = asyncio.create_task(others_change())
    await soon(lambda: len(socket.frames) >= 3)
    assert all(set(frame) == {"cursor", "now_us", "resync"} for frame in socket.frames)
    changing.cancel()
    await socket.leave()


@pytest.mark.parametrize(
    "first", ['{"cursor": "1"}', '{"cursor": -1}', "[]", "nonsense", '{"ack": 1}', '{"cursor": true}']
)
async def test_a_first_message_that_is_no_cursor_closes_the_socket(started: hub.Hub, first: str) -> None:
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "websocket.receive", "text": first}

    async def send(message: Any) -> None:
        sent.append(message)

    await consumers.Viewer(started, TURN, receive, send).run()
    assert sent == [{"type": "websocket.close", "code": consumers.BAD_MESSAGE}]


def scope(path: str = "/live/turns/", **headers: str) -> dict[str, Any]:
    given = {"host": "localhost:8000", **headers}
    return {"type": "websocket", "path": path, "headers": [(k.encode(), v.encode()) for k, v in given.items()]}


@pytest.mark.django_db(transaction=True)
async def test_without_a_login_or_a_token_a_socket_is_refused() -> None:
    assert await consumers.refusal(scope()) == consumers.SIGNED_OUT
    assert await consumers.refusal(scope(cookie="sessionid=made-up")) == consumers.SIGNED_OUT


@pytest.mark.django_db(transaction=True)
async def test_a_page_of_another_site_and_an_unknown_path_are_refused() -> None:
    assert await consumers.refusal(scope(origin="http://evil.example")) == consumers.FOREIGN
    assert await consumers.refusal(scope("/live/other/")) == consumers.BAD_PATH
    assert await consumers.refusal(scope("/live/turns/------------------------------------/")) == consumers.BAD_PATH


@pytest.mark.django_db(transaction=True)
async def test_a_read_token_opens_a_socket_and_an_ingest_token_does_not() -> None:
    from asgiref.sync import sync_to_async

    from relayweb.access import tokens

    read = await sync_to_async(tokens.create)("viewer", "read")
    ingest = await sync_to_async(tokens.create)("sender", "ingest")
    assert await consumers.refusal(scope(authorization=f"Bearer {read}")) is None
    assert await consumers.refusal(scope(authorization=f"Bearer {ingest}")) == consumers.SIGNED_OUT


async def test_a_login_that_ends_ends_its_socket(started: hub.Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumers, "RECHECK_SECONDS", 0.05)
    monkeypatch.setattr(consumers, "IDLE_SECONDS", 0.05)
    inbox: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    inbox.put_nowait({"type": "websocket.receive", "text": '{"cursor": 0}'})
    sent: list[Any] = []
    answers = iter([True, True, False])

    async def allowed() -> bool:
        return next(answers)

    async def send(message: Any) -> None:
        sent.append(message)

    await asyncio.wait_for(consumers.Viewer(started, TURN, inbox.get, send, allowed).run(), 5)
    assert sent[-1] == {"type": "websocket.close", "code": consumers.SIGNED_OUT}
    assert next(answers, None) is None
    assert started.topics == {}


def test_frames_carry_the_time_they_were_made() -> None:
    before = frames.now_us()
    assert json.loads(frames.encode(1))["now_us"] >= before
