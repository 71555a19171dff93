"""The live sockets: `/live/turns/` and `/live/turns/<uuid>/`, a plain ASGI application beside Django (docs/live.md)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from uuid import UUID

from django.db import DatabaseError

from relayweb.access import hosts, readers, tokens
from relayweb.live import frames
from relayweb.live.hub import FRAME_SECONDS, Hub, Key, Topic, hub

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

UNACKNOWLEDGED = 2
"""Frames that may be under way to a viewer."""
SILENT_SECONDS = 1.0
"""A viewer that does not acknowledge gets at most a frame in this time."""
IDLE_SECONDS = 5.0
"""An empty frame after so much silence, so that both sides notice a dead connection."""
HELLO_SECONDS = 20.0
RECHECK_SECONDS = 15.0
"""How often it is asked again whether a viewer may see what it sees."""
MERGED_BYTES = 1_000_000
"""A viewer that lacks more than this is served from the database instead of the ring."""

_PATH = re.compile(r"/live/turns/(?:([0-9a-fA-F-]{32,36})/)?")

BAD_PATH, FOREIGN, SIGNED_OUT, BAD_MESSAGE, TOO_MANY, GOING_AWAY, CANNOT_TELL = 4404, 4403, 4401, 4400, 4429, 1012, 1013


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    """Serve one websocket.

    Closes with 4401 (no login or token), 4403 (foreign Origin), 4404 (no such path), 4429 (too often),
    1013 (the database does not answer).
    """
    await receive()  # websocket.connect
    if code := await refusal(scope):
        # Accepted first: a browser only shows the reader a reason that comes after the handshake.
        if code != FOREIGN:
            await send({"type": "websocket.accept"})
        await send({"type": "websocket.close", "code": code})
        return
    match = _PATH.fullmatch(scope["path"])
    key = UUID(match[1]) if match and match[1] else None
    await send({"type": "websocket.accept"})
    await Viewer(hub(), key, receive, send, allowed=lambda: still_allowed(scope)).run()


async def still_allowed(scope: Scope) -> bool:
    """Whether who opened this socket may keep it. A log-out and a revoked token end it; a fault of ours does not."""
    return await refusal(scope) in (None, TOO_MANY, CANNOT_TELL)


async def refusal(scope: Scope) -> int | None:
    """Why this socket may not be opened, as a close code."""
    match = _PATH.fullmatch(scope.get("path", ""))
    with contextlib.suppress(ValueError):
        if match and (match[1] is None or UUID(match[1])):
            if not (hosts.host_allowed(scope) and hosts.origin_allowed(scope)):
                return FOREIGN
            try:
                return None if await readers.may_read(scope) else SIGNED_OUT
            except tokens.TooMany:
                return TOO_MANY
            except (tokens.CannotTell, DatabaseError):
                return CANNOT_TELL
    return BAD_PATH


class Viewer:
    """One socket: a cursor, what is not acknowledged yet, and nothing else."""

    def __init__(
        self, source: Hub, key: Key, receive: Receive, send: Send, allowed: Callable[[], Awaitable[bool]] | None = None
    ) -> None:
        self.hub, self.key, self._receive, self._send = source, key, receive, send
        self._allowed = allowed
        self._check_at = time.monotonic() + RECHECK_SECONDS
        self.cursor = 0
        self.unacknowledged = 0
        self.acknowledges = False
        self.sent_at = 0.0
        self.event = asyncio.Event()
        self.gone = False

    async def run(self) -> None:
        if not await self._hello():
            return
        topic = await self.hub.watch(self.key, self.event)
        reader = asyncio.create_task(self._read())
        try:
            await self._catch_up(topic)
            while not self.gone and await self._may_stay():
                await self._step(topic)
        finally:
            self.hub.leave(topic, self.event)
            reader.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reader

    async def _may_stay(self) -> bool:
        if self._allowed is None or time.monotonic() < self._check_at:
            return True
        self._check_at = time.monotonic() + RECHECK_SECONDS
        if await self._allowed():
            return True
        await self._close(SIGNED_OUT)
        return False

    async def _hello(self) -> bool:
        try:
            message = await asyncio.wait_for(self._receive(), HELLO_SECONDS)
        except TimeoutError:
            await self._close(BAD_MESSAGE)
            return False
        if message["type"] == "websocket.disconnect":
            return False
        found = _number(message, "cursor")
        if found is None:
            await self._close(BAD_MESSAGE)
            return False
        self.cursor = found
        return True

    async def _read(self) -> None:
        """Take acknowledgements until the client goes."""
        while not self.gone:
            message = await self._receive()
            if message["type"] == "websocket.disconnect":
                self.gone = True
            elif _number(message, "ack") is not None:
                self.acknowledges = True
                self.unacknowledged = max(0, self.unacknowledged - 1)
            self.event.set()

    async def _catch_up(self, topic: Topic) -> None:
        """Bring a cursor from before this connection up to the ring."""
        ahead = self.cursor > topic.cursor and self.cursor > await self.hub.read(self.hub.source.latest)
        if ahead:  # a cursor of another record: this one was replaced
            self.cursor = 0
        if ahead or topic.after(self.cursor) is None:
            await self._resync(topic)

    async def _step(self, topic: Topic) -> None:
        """Wait until there is something to send and leave to send it; then send it as one frame."""
        if self.hub.topics.get(topic.key) is not topic:
            await self._close(GOING_AWAY)
            self.gone = True
            return
        self.event.clear()
        if self.cursor >= topic.cursor or not self._has_leave():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.event.wait(), self._patience())
            if self.gone or not self._has_leave():
                return
            if self.cursor >= topic.cursor:
                await self._break_silence()
                return
        if (early := self.sent_at + FRAME_SECONDS - time.monotonic()) > 0.005:
            await asyncio.sleep(early)
        missing = topic.after(self.cursor)
        if missing is None or sum(map(len, missing)) > MERGED_BYTES:
            await self._resync(topic)
        elif missing:
            await self._deliver(topic.cursor, frames.merge(missing))
        else:  # other turns changed, which moves the cursor of this one too
            self.cursor = topic.cursor
            await self._break_silence()

    async def _break_silence(self) -> None:
        if time.monotonic() - self.sent_at >= IDLE_SECONDS:
            await self._deliver(self.cursor, frames.encode(self.cursor))

    def _has_leave(self) -> bool:
        if self.unacknowledged < UNACKNOWLEDGED:
            return True
        return not self.acknowledges and time.monotonic() - self.sent_at >= SILENT_SECONDS

    def _patience(self) -> float:
        quiet = IDLE_SECONDS if self.unacknowledged < UNACKNOWLEDGED else SILENT_SECONDS
        return max(0.01, self.sent_at + quiet - time.monotonic())

    async def _resync(self, topic: Topic) -> None:
        cursor, frame = await self.hub.snapshot(self.key, min(self.cursor, topic.cursor))
        await self._deliver(cursor, frame)

    async def _deliver(self, cursor: int, frame: bytes) -> None:
        self.cursor = cursor
        self.unacknowledged += 1
        self.sent_at = time.monotonic()
        await self._send({"type": "websocket.send", "text": frame.decode()})

    async def _close(self, code: int) -> None:
        with contextlib.suppress(Exception):
            await self._send({"type": "websocket.close", "code": code})


def _number(message: MutableMapping[str, Any], name: str) -> int | None:
    """The whole number that a client's message gives for `name`, or None."""
    text = message.get("text") or message.get("bytes") or ""
    try:
        value = json.loads(text[:200])
    except (ValueError, UnicodeDecodeError):
        return None
    found = value.get(name) if isinstance(value, dict) else None
    return found if isinstance(found, int) and not isinstance(found, bool) and found >= 0 else None
