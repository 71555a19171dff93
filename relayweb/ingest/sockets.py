"""The websocket `/ingest/atof/ws`: one event a message, or lines of them.

Relay's sink never reads, so nothing is ever sent to it: no answers, no pings, no close. A socket that comes faster than
the writer can commit is not read meanwhile.
"""

from __future__ import annotations

import asyncio
import logging

from django.db import DatabaseError

from relayweb.access.answers import Receive, Scope, Send
from relayweb.ingest.reading import BodyError
from relayweb.ingest.tally import Tally

logger = logging.getLogger(__name__)

BATCH_BYTES = 1024 * 1024
RETRY_SECONDS = 1.0


async def atof(scope: Scope, receive: Receive, send: Send) -> None:
    """Take events until the other side closes; what arrived before is committed."""
    await receive()  # websocket.connect
    await send({"type": "websocket.accept"})
    batches = Batches(Tally("websocket"))
    try:
        while (message := await receive())["type"] == "websocket.receive":
            data = message.get("text") or message.get("bytes") or b""
            batches.add(data.encode() if isinstance(data, str) else data)
            await batches.room()
    finally:
        await batches.close()


class Batches:
    """Commits what has gathered while the last commit ran, one batch at a time, without end until closed."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._waiting: list[bytes] = []
        self._size = 0
        self._commits: asyncio.Task[None] | None = None

    def add(self, message: bytes) -> None:
        self._waiting.append(message.rstrip(b"\n") + b"\n")
        self._size += len(message)
        if self._commits is None or self._commits.done():
            self._commits = asyncio.create_task(self._commit_all())

    async def room(self) -> None:
        """Return when more may be added. Meanwhile the server does not read the socket."""
        if self._size > BATCH_BYTES and self._commits:
            await self._commits

    async def close(self) -> None:
        """Return when everything is committed."""
        if self._commits:
            await self._commits

    async def _commit_all(self) -> None:
        while self._waiting:
            batch = b"".join(self._waiting)
            self._waiting, self._size = [], 0
            await self._commit(batch)

    async def _commit(self, batch: bytes) -> None:
        while True:
            try:
                await self._tally.submit(batch, patient=True)
                break
            except (DatabaseError, OSError) as error:
                # The sender cannot be told and would not send again: hold on to it, and to the socket.
                logger.error("websocket: the record cannot be written, trying again: %s", error)
                await asyncio.sleep(RETRY_SECONDS)
            except BodyError as error:
                logger.warning("websocket: cut: %s", error)
                raise ConnectionError(str(error)) from None
        if rejected := self._tally.rejected:
            first, more = rejected[0], len(rejected) - 1 + self._tally.rejected_more
            also = f", and {more} more" if more else ""
            logger.warning("websocket: line %d rejected: %s%s", first["line"], first["error"], also)
            rejected.clear()
            self._tally.rejected_more = 0
