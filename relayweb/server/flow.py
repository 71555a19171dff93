"""Back-pressure in both directions: nobody is read, and nobody written to, faster than the other side goes."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from twisted.internet.interfaces import IPushProducer
from zope.interface import implementer

from relayweb.server import limits

Message = dict[str, Any]


class Inbox:
    """Messages from a client that the application has not taken yet, bounded in bytes by not reading on."""

    def __init__(self, pause: Callable[[], None], resume: Callable[[], None]) -> None:
        self._messages: deque[Message] = deque()
        self._arrived = asyncio.Event()
        self._size = 0
        self._pause, self._resume = pause, resume
        self.before_first_get: Callable[[], None] | None = None

    @property
    def full(self) -> bool:
        return self._size > limits.INBOX_BYTES

    def put_nowait(self, message: Message) -> None:
        self._messages.append(message)
        self._size += _size(message)
        self._arrived.set()
        if self.full:
            self._pause()

    async def get(self) -> Message:
        """The next message. All of a body that has arrived comes as one; a disconnect comes for ever."""
        if self.before_first_get:
            self.before_first_get()
            self.before_first_get = None
        while not self._messages:
            self._arrived.clear()
            await self._arrived.wait()
        message = self._messages[0]
        if message["type"].endswith(".disconnect"):
            return message
        was_full = self.full
        message = self._joined_body() if message["type"] == "http.request" else self._pop()
        if was_full and not self.full:
            self._resume()
        return message

    def _joined_body(self) -> Message:
        parts = []
        more = True
        while more and self._messages and self._messages[0]["type"] == "http.request":
            message = self._pop()
            parts.append(message["body"])
            more = message["more_body"]
        return {"type": "http.request", "body": b"".join(parts), "more_body": more}

    def _pop(self) -> Message:
        message = self._messages.popleft()
        self._size -= _size(message)
        return message


def _size(message: Message) -> int:
    # Small messages cost more than their bytes.
    return 200 + len(message.get("body") or message.get("text") or message.get("bytes") or b"")


@implementer(IPushProducer)
class Gate:
    """Shut while the client does not take what was written; Twisted opens and shuts it."""

    def __init__(self) -> None:
        self._open = asyncio.Event()
        self._open.set()
        self._shut_at = 0.0

    def pauseProducing(self) -> None:
        self._shut_at = time.monotonic()
        self._open.clear()

    def resumeProducing(self) -> None:
        self._open.set()

    stopProducing = resumeProducing

    async def passed(self) -> None:
        await self._open.wait()

    @property
    def is_open(self) -> bool:
        return self._open.is_set()

    def stalled(self) -> bool:
        return not self.is_open and time.monotonic() - self._shut_at > limits.STALL_SECONDS
