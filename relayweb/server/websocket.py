"""Websockets: viewers that are pinged, and agents that are not."""

from __future__ import annotations

from typing import Any

from autobahn.exception import Disconnected
from daphne import ws_protocol

from relayweb.server.flow import Gate, Message


class Socket(ws_protocol.WebSocketProtocol):
    """One websocket."""

    gate: Gate | None = None

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
            self.application_queue.put_nowait({"type": "websocket.disconnect", "code": 1001})
        else:
            self.serverClose(1001)


class SocketFactory(ws_protocol.WebSocketFactory):
    protocol = Socket
    open = 0
