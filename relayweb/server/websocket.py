"""Websockets: viewers that are pinged, and agents that are not."""

from __future__ import annotations

import logging
import time
from typing import Any

from autobahn.exception import Disconnected
from daphne import ws_protocol
from twisted.internet import reactor as _reactor

from relayweb.server import limits
from relayweb.server.flow import Gate, Message

logger = logging.getLogger(__name__)
reactor: Any = _reactor

SLICE = 2048
"""Bytes parsed before the clock is looked at: 64 KB of the smallest frames take a tenth of a second."""


class Socket(ws_protocol.WebSocketProtocol):
    """One websocket. What it sent is parsed a few milliseconds at a time, and not while its application is behind."""

    gate: Gate | None = None
    application_queue: Any = None  # an Inbox, from when the application runs

    def __init__(self) -> None:
        super().__init__()
        self._unparsed = bytearray()
        self._turn: Any = None
        self._paused = False
        self._frames = 0

    def dataReceived(self, data: bytes) -> None:
        self._unparsed += data
        if self._paused:  # on the way already, or Daphne let it in after the handshake
            self.transport.pauseProducing()
        if self._turn is None:
            self._parse()

    def resume_reading(self) -> None:
        """The application has caught up."""
        if self._turn is None:
            self._turn = reactor.callLater(0, self._parse)

    @property
    def _waits(self) -> bool:
        """For the answer to its handshake, or for its application."""
        return hasattr(self, "handshake_deferred") or (
            self.application_queue is not None and self.application_queue.full
        )

    def _parse(self) -> None:
        self._turn = None
        until = time.monotonic() + limits.TURN_SECONDS
        while self._unparsed and not self._waits and time.monotonic() < until:
            self._parse_some()
        behind = self._waits or bool(self._unparsed)
        if behind != self._paused:
            self._paused = behind
            (self.transport.pauseProducing if behind else self.transport.resumeProducing)()
        if self._unparsed and not self._waits:
            self._turn = reactor.callLater(0, self._parse)

    def _parse_some(self) -> None:
        frame = getattr(self, "current_frame", None)
        size = SLICE if frame is None else max(SLICE, frame.length - self.current_frame_masker.pointer())
        data = bytes(self._unparsed[:size])
        del self._unparsed[:size]
        if not self.failedByMe:
            super().dataReceived(data)

    def _parse_rest(self) -> None:
        while self._unparsed:
            self._parse_some()

    def onOpen(self) -> None:
        super().onOpen()
        self.resume_reading()

    def onMessageBegin(self, isBinary: bool) -> None:
        self._frames = 0
        super().onMessageBegin(isBinary)

    def onMessageFrameBegin(self, length: int) -> None:
        super().onMessageFrameBegin(length)
        self._frames += 1
        if self._frames > limits.FRAGMENTS and not self.failedByMe:
            reason = f"a message has more than {limits.FRAGMENTS} fragments; send it in fewer"
            logger.warning("%s closed: %s", self.path.decode(), reason)
            self._max_message_size_exceeded(self.message_data_total_length, self.maxMessagePayloadSize, reason)

    def onPing(self, payload: bytes) -> None:
        if self.gate is None or self.gate.is_open:  # pongs that are not taken would fill the memory
            super().onPing(payload)

    def onConnect(self, request: Any) -> Any:
        self.gate = Gate()
        # Until now the transport told the HTTP channel to pause, which knows nothing of this socket.
        self.transport.unregisterProducer()
        self.transport.registerProducer(self.gate, True)
        self._from_agent = request.path.startswith("/ingest/")
        if self._from_agent:
            self.transport.setTcpKeepAlive(1)
        return super().onConnect(request)

    def connectionMade(self) -> None:
        self.factory.open += 1
        super().connectionMade()

    def connectionLost(self, reason: Any) -> None:
        self.factory.open -= 1
        if self._turn is not None:
            self._turn.cancel()
        self._parse_rest()
        super().connectionLost(reason)

    def onClose(self, wasClean: bool, code: int, reason: str) -> None:
        if self.gate:
            self.gate.resumeProducing()
        if hasattr(self, "server"):
            super().onClose(wasClean, code, reason)

    async def writable(self) -> None:
        if self.gate:
            await self.gate.passed()

    def handle_reply(self, message: Message) -> None:
        # ASGI's websocket denial response: says why, where a plain close could only say 403.
        if message["type"] == "websocket.http.response.start":
            self._denial = message["status"]
        elif message["type"] == "websocket.http.response.body":
            self._deny(self._denial, message.get("body", b"").decode())
        else:
            try:
                super().handle_reply(message)
            except Disconnected as error:  # the client left a moment ago, which is no fault of the application
                raise ConnectionAbortedError(str(error)) from error

    def _deny(self, status: int, reason: str) -> None:
        if hasattr(self, "handshake_deferred"):
            self.handshake_deferred.errback(ws_protocol.ConnectionDeny(status, reason))
            del self.handshake_deferred
            self.server.protocol_disconnected(self)

    def serverReject(self) -> None:
        self._deny(403, "Access denied")

    def serverClose(self, code: int | None = None) -> None:
        # sendClose() refuses 1001, 1008 and 1011, which servers are meant to send.
        if self.state == self.STATE_OPEN:
            self.sendCloseFrame(code=code or 1000, isReply=False)

    def handle_exception(self, exception: BaseException) -> None:
        if hasattr(self, "handshake_deferred"):
            self._deny(500, "Internal server error")
        else:
            self._end(1011)

    def application_returned(self) -> None:
        if hasattr(self, "handshake_deferred"):
            self._deny(403, "Access denied")
        else:
            self._end(1000)

    def _end(self, code: int) -> None:
        if self._from_agent:
            # Relay's sink reads nothing, so a close frame would go unnoticed and frames be lost until TCP breaks.
            self.transport.abortConnection()
        else:
            self.serverClose(code)

    def check_timeouts(self) -> None:
        if self.gate and self.gate.stalled():
            self.transport.abortConnection()
        elif not self._from_agent or self.state == self.STATE_CONNECTING:
            super().check_timeouts()

    def drain(self) -> None:
        if self._from_agent:
            self.transport.pauseProducing()
            self._parse_rest()
            self.application_queue.put_nowait({"type": "websocket.disconnect", "code": 1001})
        else:
            self.serverClose(1001)


class SocketFactory(ws_protocol.WebSocketFactory):
    protocol = Socket
    open = 0
