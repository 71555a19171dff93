"""A proxy before several web processes that gives each request to the next of them, whoever sends it."""

from __future__ import annotations

import asyncio
import contextlib
import re
import threading

_CONNECTION = re.compile(rb"\r\nconnection:[^\r]*", re.IGNORECASE)
_UPGRADE = re.compile(rb"\r\nupgrade:", re.IGNORECASE)
_NOBODY = b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
_HEAD_BYTES = 1 << 20


class Balancer:
    """Serves on a port, its own if none is given, until closed. A process that cannot be reached is passed over."""

    def __init__(self, ports: list[int], port: int = 0) -> None:
        self.ports = ports
        self.url = ""
        self.served = dict.fromkeys(ports, 0)
        """Requests by port."""
        self._next = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="balancer", daemon=True)
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(port), self._loop).result(10)

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _start(self, port: int) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port, limit=_HEAD_BYTES)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _stop(self) -> None:
        self._server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(
            OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, asyncio.CancelledError
        ):
            try:
                head = await reader.readuntil(b"\r\n\r\n")
                if not _UPGRADE.search(head):  # one request a connection, so that the next one goes elsewhere
                    head = _CONNECTION.sub(b"", head).replace(b"\r\n", b"\r\nConnection: close\r\n", 1)
                await self._forward(head, reader, writer)
            finally:
                writer.close()

    async def _forward(self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = await self._connect()
        if connection is None:
            writer.write(_NOBODY)
            return
        up_reader, up_writer = connection
        try:
            up_writer.write(head)
            sending = asyncio.ensure_future(_pump(reader, up_writer))
            answering = asyncio.ensure_future(_pump(up_reader, writer))
            # Whoever closes first, closes both: an answer at its end, or a client that hung up.
            _, left = await asyncio.wait((sending, answering), return_when=asyncio.FIRST_COMPLETED)
            for task in left:
                task.cancel()
            await asyncio.gather(sending, answering, return_exceptions=True)
        finally:
            up_writer.close()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        first = self._next
        self._next += 1
        for k in range(len(self.ports)):  # each is tried, whatever other requests do meanwhile
            port = self.ports[(first + k) % len(self.ports)]
            with contextlib.suppress(OSError):
                found = await asyncio.open_connection("127.0.0.1", port)
                self.served[port] += 1
                return found
        return None


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
        await writer.drain()
