"""HTTP/1.1: requests whose application runs from the headers on."""

from __future__ import annotations

import json
import logging
import resource
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from daphne import http_protocol
from twisted.internet import reactor as _reactor
from twisted.internet.protocol import Protocol
from twisted.web import http

from relayweb import conf
from relayweb.access.log import route
from relayweb.gateway.conversation import MESSAGES
from relayweb.gateway.errors import GatewayError
from relayweb.server import limits
from relayweb.server.flow import Gate, Message

if TYPE_CHECKING:
    from relayweb.server import Server

reactor: Any = _reactor
access_logger = logging.getLogger("relayweb.access")


class NoContent:
    """Stands where Twisted would spool a body. Looking closed, it also keeps Daphne from sending an empty one."""

    closed = True

    def tell(self) -> int:
        return 0

    def seek(self, *_: int) -> int:
        return 0

    def read(self, *_: int) -> bytes:
        return b""

    def close(self) -> None: ...


class Request(http_protocol.WebRequest):
    """A request whose application runs from the headers on."""

    gate: Gate | None = None
    body_done = True
    _body_seen = 0
    _counted = 0  # of them, in the server's count
    _endless = False
    _limit = limits.PAGE_BODY
    _began = 0.0
    channel: Any = None  # Twisted deletes a request's own when it is over
    method: bytes | None
    path: bytes | None
    content: Any

    def gotLength(self, length: int | None) -> None:
        super().gotLength(0)
        if length == 0:
            return
        self.body_done = False
        self._began = time.monotonic()
        self.content.close()
        self.content = NoContent()
        path = self.channel._path.partition(b"?")[0]
        self._endless = length is None and path == b"/ingest/atof"
        self._limit = conf.MAX_BODY if path.startswith((b"/ingest/", b"/gw/", b"/v1/")) else limits.PAGE_BODY
        if self._endless:
            # An agent may think for an hour between two events. A dead peer is found by TCP itself.
            self.channel.setTimeout(None)
            self.channel.transport.setTcpKeepAlive(1)
        super().requestReceived(self.channel._command, self.channel._path, self.channel._version)
        if length is not None and length > self._limit and not self._response_started:
            self._too_large()

    def process(self) -> Any:
        if self.server.draining:
            return self.answer(503, "the server is stopping; try again in a moment", {b"retry-after": b"2"})
        channel = self.channel
        result = super().process()
        if self.transport is None:  # it is a websocket now
            channel.factory.channels.discard(channel)
        return result

    def handleContentChunk(self, data: bytes) -> None:
        if self.finished:
            return
        self._body_seen += len(data)
        if self._limit == limits.PAGE_BODY:
            self.server.page_bytes += len(data)
            self._counted += len(data)
        if self._body_seen > self._limit and not self._endless:
            self._too_large()
        elif self._counted and self.server.page_bytes > limits.PAGES_BYTES:
            self.answer(503, "too many requests are being read; try again in a moment", {b"retry-after": b"2"})
        elif self.application_queue:
            self.application_queue.put_nowait({"type": "http.request", "body": data, "more_body": True})

    def requestReceived(self, command: bytes, path: bytes, version: bytes) -> None:
        if self.body_done:
            super().requestReceived(command, path, version)
            return
        self.body_done = True
        if self.application_queue and not self.finished:
            self.application_queue.put_nowait({"type": "http.request", "body": b"", "more_body": False})

    def _too_large(self) -> None:
        if self._response_started:
            self.abort()
            return
        mend = "" if self._limit == limits.PAGE_BODY else ", or raise RELAYWEB_MAX_BODY"
        self.answer(413, f"the body is larger than {self._limit} bytes; send less at once{mend}")

    def answer(self, status: int, error: str, headers: dict[bytes, bytes] | None = None) -> None:
        """Refuse the request in the server's own name."""
        path = (self.path or b"?").decode("latin-1")
        peer, method = getattr(self.client, "host", "-"), (self.method or b"?").decode("latin-1")
        access_logger.info("%s %s %s %s by the server", peer, method, route(path), status)
        if (self.path or b"").startswith(b"/gw/"):
            code = "request_too_large" if status == 413 else "api_error"
            api_mode = MESSAGES if path.endswith("/messages") else None
            status, fixed, data = GatewayError(status, code, error).response(api_mode)
        else:
            data = json.dumps({"error": error}).encode()
            fixed = [(b"content-type", b"application/json"), (b"content-length", str(len(data)).encode())]
        all_headers = [*fixed, *(headers or {}).items()]
        self.handle_reply({"type": "http.response.start", "status": status, "headers": all_headers})
        self.handle_reply({"type": "http.response.body", "body": data})

    def handle_reply(self, message: Message) -> None:
        if self.finished or self.channel is None:
            return
        if message["type"] == "http.response.start" and (not self.body_done or self.server.draining):
            self.channel.persistent = False
            self.responseHeaders.setRawHeaders(b"connection", [b"close"])
        super().handle_reply(message)
        if message["type"] == "http.response.body" and message.get("more_body") and self.gate is None:
            self.gate = Gate()
            self.registerProducer(self.gate, True)

    async def writable(self) -> None:
        if self.gate and not self.finished:
            await self.gate.passed()

    def finish(self) -> None:
        self._open_gate()
        self._uncount()
        super().finish()

    def connectionLost(self, reason: Any) -> None:
        self._open_gate()
        self._uncount()
        super().connectionLost(reason)

    def _uncount(self) -> None:
        self.server.page_bytes -= self._counted
        self._counted = 0

    def _open_gate(self) -> None:
        if self.gate:
            self.gate.resumeProducing()
            if self.producer:
                self.unregisterProducer()

    def abort(self) -> None:
        """Cut the connection after what was written, so that the client learns that the answer broke off."""
        if self.channel is not None and not self.finished:
            self.channel.cut()

    def handle_exception(self, exception: BaseException) -> None:
        if self._response_started:
            self.abort()
        elif not self.finished and self.channel is not None:
            self.answer(500, "relayweb failed at this request; its log says why")

    def application_returned(self) -> None:
        if self.channel is not None and not self.finished:
            self.handle_exception(RuntimeError("the application did not answer"))

    def check_timeouts(self) -> None:
        if self.channel is None or self.finished:
            return
        if self.gate and self.gate.stalled():
            self.channel.forceAbortClient()
        elif not self.body_done and self._limit == limits.PAGE_BODY and self._late():
            self.answer(408, f"the body did not come within {limits.PAGE_SECONDS} seconds")

    def _late(self) -> bool:
        return not self._response_started and time.monotonic() - self._began > limits.PAGE_SECONDS

    def drain(self) -> None:
        """An upload without end is told to end; anything else may finish."""
        if not self.body_done and self._endless and self.application_queue:
            self.channel._networkProducer.pauseProducing()
            self.application_queue.put_nowait({"type": "http.disconnect"})


class Channel(http.HTTPChannel):
    """One HTTP connection."""

    MAX_LENGTH = totalHeadersSize = limits.HEADER_BYTES
    requestFactory = Request

    def connectionMade(self) -> None:
        super().connectionMade()
        self.factory.channels.add(self)

    def connectionLost(self, reason: Any) -> None:
        self.factory.channels.discard(self)
        super().connectionLost(reason)

    def resetTimeout(self) -> None:
        # A head has to arrive within one idle period, however slowly it is fed; a body may take longer.
        idle = not self.requests and not self._buffer
        if idle or self.line_mode == 0:
            super().resetTimeout()

    def _send100Continue(self) -> None:
        """Only when the application wants the body, so that a refusal spares the client from sending it."""
        inbox = self.requests[-1].application_queue if self.requests else None
        if inbox:
            inbox.before_first_get = partial(self._continue, self.requests[-1])

    def _continue(self, request: Request) -> None:
        if request.channel is not None and not request._response_started:
            super()._send100Continue()

    def requestDone(self, request: Request) -> None:
        if request.body_done:
            super().requestDone(request)
        else:
            self.requests.remove(request)
            self._linger()

    def _linger(self) -> None:
        """Close after an early answer. Closing at once would reset the connection and lose the answer on its way."""
        self.dataReceived = lambda data: None
        self.setTimeout(None)
        self._networkProducer.resumeProducing()
        self._abortingCall = self.callLater(limits.LINGER_SECONDS, self.forceAbortClient)
        self.transport.loseWriteConnection()

    def cut(self) -> None:
        """Close without the end of the answer that is under way."""
        self._abortingCall = self.callLater(limits.LINGER_SECONDS, self.forceAbortClient)
        self.loseConnection()

    def _respondToBadRequestAndDisconnect(self) -> None:
        body = b'{"error": "not a valid HTTP/1.1 request, or more than %d bytes of headers"}' % limits.HEADER_BYTES
        head = b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\nconnection: close\r\n"
        self.transport.write(head + b"content-length: %d\r\n\r\n" % len(body) + body)
        self.loseConnection()

    def lineLengthExceeded(self, line: bytes) -> None:
        self._respondToBadRequestAndDisconnect()


class Crowded(Protocol):
    """Says to one connection too many to come again, in place of standing silent."""

    def connectionMade(self) -> None:
        body = b'{"error": "too many connections; try again in a moment"}'
        head = b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 2\r\n"
        self.transport.write(head + b"connection: close\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
        # Closed at once, what the client sends meanwhile would reset the connection, and the answer with it.
        self.transport.loseWriteConnection()
        reactor.callLater(1, self.transport.abortConnection)


class Factory(http_protocol.HTTPFactory):
    protocol = Channel

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        self.timeOut = limits.IDLE_SECONDS
        self.channels: set[Channel] = set()
        self._most = most_connections()

    def buildProtocol(self, addr: Any) -> Any:
        if len(self.channels) + self.server.ws_factory.open >= self._most:
            return Crowded()
        return http.HTTPFactory.buildProtocol(self, addr)


def most_connections() -> int:
    """How many connections there are file descriptors for, after taking as many as the system gives."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = limits.FILES if hard == resource.RLIM_INFINITY else min(limits.FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    files = limits.FILES if soft == resource.RLIM_INFINITY else min(limits.FILES, soft)
    return max(16, (files - limits.FILES_KEPT) // 2)
