"""Daphne, with what a recorder needs of its server.

Stock Daphne spools every request body before the application runs, drops clients that answer no ping, lets a slow
reader fill the memory and leaves a client hanging when a started answer breaks off. The subclasses here run the
application as soon as the headers are in, feed it the body as it arrives, stop reading and stop writing when the other
side does not keep up, and cut what cannot be ended properly.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from daphne import http_protocol, ws_protocol
from daphne import server as daphne_server
from twisted.internet import reactor as _reactor
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IPushProducer
from twisted.logger import globalLogBeginner
from twisted.web import http
from zope.interface import implementer

from relayweb import conf
from relayweb.access.log import route

logger = logging.getLogger(__name__)
access_logger = logging.getLogger("relayweb.access")
reactor: Any = _reactor

Message = dict[str, Any]

INBOX_BYTES = 1024 * 1024
"""What a connection may have waiting for the application before it is read no further."""
PAGE_BODY = 8 * 1024 * 1024
"""Bytes a request body may have outside the doors and the gateway."""
HEADER_BYTES = 64 * 1024
IDLE_SECONDS = 120
"""Longer than the 90 s after which Relay's client drops an idle connection: whoever closes first must not be us."""
STALL_SECONDS = 120
"""A client that takes nothing for so long is cut off."""
LINGER_SECONDS = 10
"""How long a refused body is read and thrown away, so that the client gets to the answer."""
GRACE_SECONDS = 8
"""How long answers that have begun may go on after the order to stop."""
STOP_SECONDS = 14
"""After this long the process ends, come what may."""


class Inbox:
    """Messages from a client that the application has not taken yet, bounded in bytes by not reading on."""

    def __init__(self, pause: Callable[[], None], resume: Callable[[], None]) -> None:
        self._messages: deque[Message] = deque()
        self._arrived = asyncio.Event()
        self._size = 0
        self._pause, self._resume = pause, resume
        self.before_first_get: Callable[[], None] | None = None

    def put_nowait(self, message: Message) -> None:
        self._messages.append(message)
        self._size += _size(message)
        self._arrived.set()
        if self._size > INBOX_BYTES:
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
        if not message["type"].endswith(".disconnect"):
            message = self._joined_body() if message["type"] == "http.request" else self._messages.popleft()
        was_full = self._size > INBOX_BYTES
        self._size -= _size(message)
        if was_full and self._size <= INBOX_BYTES:
            self._resume()
        return message

    def _joined_body(self) -> Message:
        parts = []
        more = True
        while more and self._messages and self._messages[0]["type"] == "http.request":
            message = self._messages.popleft()
            parts.append(message["body"])
            more = message["more_body"]
        return {"type": "http.request", "body": b"".join(parts), "more_body": more}


def _size(message: Message) -> int:
    return len(message.get("body") or message.get("text") or message.get("bytes") or b"")


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

    def stalled(self) -> bool:
        return not self._open.is_set() and time.monotonic() - self._shut_at > STALL_SECONDS


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

    inbox: Inbox | None = None
    gate: Gate | None = None
    body_done = True
    _body_seen = 0
    _endless = False
    _limit = PAGE_BODY
    method: bytes | None
    path: bytes | None
    content: Any

    def gotLength(self, length: int | None) -> None:
        super().gotLength(0)
        if length == 0:
            return
        self.body_done = False
        self.content.close()
        self.content = NoContent()
        path = self.channel._path.partition(b"?")[0]
        self._endless = length is None and path == b"/ingest/atof"
        self._limit = conf.MAX_BODY if path.startswith((b"/ingest/", b"/gw/", b"/v1/traces")) else PAGE_BODY
        if self._endless:
            # An agent may think for an hour between two events. A dead peer is found by TCP itself.
            self.channel.setTimeout(None)
            self.channel.transport.setTcpKeepAlive(1)
        self._head_received()
        if length is not None and length > self._limit and not self._response_started:
            self._too_large()

    def _head_received(self) -> None:
        channel = self.channel
        super().requestReceived(channel._command, channel._path, channel._version)

    def process(self) -> Any:
        if self.server.draining:
            return self.answer(503, "the server is stopping; try again in a moment", {b"retry-after": b"2"})
        return super().process()

    def handleContentChunk(self, data: bytes) -> None:
        if self.finished:
            return
        self._body_seen += len(data)
        if self._body_seen > self._limit and not self._endless:
            self._too_large()
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
        else:
            self.answer(
                413, f"the body is larger than {self._limit} bytes; send less at once, or raise RELAYWEB_MAX_BODY"
            )

    def answer(self, status: int, error: str, headers: dict[bytes, bytes] | None = None) -> None:
        """Refuse the request in the server's own name."""
        path = (self.path or b"?").decode("latin-1")
        peer, method = getattr(self.client, "host", "-"), (self.method or b"?").decode("latin-1")
        access_logger.info("%s %s %s %s by the server", peer, method, route(path), status)
        kind = "request_too_large" if status == 413 else "api_error"
        # The gateway's clients read `error.message`, those of the doors `error`.
        gateway = (self.path or b"").startswith(b"/gw/")
        body = {"type": "error", "error": {"type": kind, "message": error}} if gateway else {"error": error}
        data = json.dumps(body).encode()
        fixed = {b"content-type": b"application/json", b"content-length": str(len(data)).encode()}
        all_headers = [*fixed.items(), *(headers or {}).items()]
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
        super().finish()

    def connectionLost(self, reason: Any) -> None:
        self._open_gate()
        super().connectionLost(reason)

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
        if self.gate and self.gate.stalled() and self.channel is not None:
            self.channel.forceAbortClient()

    def drain(self) -> None:
        """An upload without end is told to end; anything else may finish."""
        if not self.body_done and self._endless and self.application_queue:
            self.channel._networkProducer.pauseProducing()
            self.application_queue.put_nowait({"type": "http.disconnect"})


class Channel(http.HTTPChannel):
    """One HTTP connection."""

    MAX_LENGTH = totalHeadersSize = HEADER_BYTES
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
        self._abortingCall = self.callLater(LINGER_SECONDS, self.forceAbortClient)
        self.transport.loseWriteConnection()

    def cut(self) -> None:
        """Close without the end of the answer that is under way."""
        self._abortingCall = self.callLater(LINGER_SECONDS, self.forceAbortClient)
        self.loseConnection()

    def _respondToBadRequestAndDisconnect(self) -> None:
        body = b'{"error": "not a valid HTTP/1.1 request, or more than %d bytes of headers"}' % HEADER_BYTES
        head = b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\nconnection: close\r\n"
        self.transport.write(head + b"content-length: %d\r\n\r\n" % len(body) + body)
        self.loseConnection()

    def lineLengthExceeded(self, line: bytes) -> None:
        self._respondToBadRequestAndDisconnect()


class Factory(http_protocol.HTTPFactory):
    protocol = Channel

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        self.timeOut = IDLE_SECONDS
        self.channels: set[Channel] = set()

    def buildProtocol(self, addr: Any) -> Any:
        return http.HTTPFactory.buildProtocol(self, addr)


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
            super().handle_reply(message)

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


class Server(daphne_server.Server):
    """Starts in order, answers, and drains when told to stop.

    Args:
        application: the ASGI application.
        host: address to listen at.
        port: TCP port to listen at; 0 takes a free one.
        start: awaited before listening.
        stop: awaited when the last answer is out.
        ready: awaited with the host and port listened at.
    """

    def __init__(self, application: Any, host: str, port: int, *, start: Any, stop: Any, ready: Any) -> None:
        super().__init__(
            application,
            endpoints=[f"{host}:{port}"],
            server_name="relayweb",
            websocket_timeout=-1,
            websocket_max_message_size=conf.MAX_BODY,
            websocket_max_frame_size=conf.MAX_BODY,
            verbosity=0,
        )
        self._host, self._port = host, port
        self._start, self._stop, self._ready = start, stop, ready
        self._listener: Any = None
        self._failed: str | None = None
        self.draining = False

    def run(self) -> None:
        """Serve until SIGTERM or SIGINT. Raises OSError when the address cannot be listened at."""
        self.connections: dict[Any, dict[str, Any]] = {}
        self.http_factory = Factory(self)
        self.ws_factory = SocketFactory(self, server=self.server_name)
        self.ws_factory.setProtocolOptions(
            autoPingTimeout=self.ping_timeout,
            allowNullOrigin=True,
            openHandshakeTimeout=self.websocket_handshake_timeout,
            maxMessagePayloadSize=self.websocket_max_message_size,
            maxFramePayloadSize=self.websocket_max_frame_size,
        )
        globalLogBeginner.beginLoggingTo([lambda _: None], redirectStandardIO=False, discardBuffer=True)
        self._loop: asyncio.AbstractEventLoop = reactor._asyncioEventloop
        asyncio.set_event_loop(self._loop)
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._told_to_stop)
        reactor.callWhenRunning(lambda: self._spawn(self._begin()))
        reactor.run(installSignalHandlers=False)
        if self._failed:
            raise OSError(self._failed)

    def _spawn(self, coroutine: Any) -> None:
        self._task = self._loop.create_task(coroutine)

    async def _begin(self) -> None:
        try:
            await self._start()
            interface = socket.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)[0][4][0]
            self._listener = reactor.listenTCP(self._port, self.http_factory, backlog=512, interface=interface)
        except (CannotListenError, OSError) as error:
            reason = getattr(error, "socketError", error)
            self._failed = f"cannot listen at {self._host}:{self._port}: {reason}"
            return await self._end()
        except Exception as error:
            logger.exception("relayweb could not start")
            self._failed = f"relayweb could not start: {error}"
            return await self._end()
        reactor.callLater(1, self.application_checker)
        reactor.callLater(2, self.timeout_checker)
        await self._ready(self._host, self._listener.getHost().port)

    def create_application(self, protocol: Any, scope: Message) -> Inbox | None:
        if protocol not in self.connections:
            return None
        inbox = Inbox(*_reading(protocol))
        scope["asgi"] = {"version": "3.0"}
        if scope["type"] == "websocket":
            scope["extensions"] = {"websocket.http.response": {}}
        task = self._loop.create_task(self.application(scope, inbox.get, partial(self.handle_reply, protocol)))
        self.connections[protocol]["application_instance"] = task
        task.add_done_callback(partial(self._application_done, protocol))
        return inbox

    async def handle_reply(self, protocol: Any, message: Message) -> None:
        await super().handle_reply(protocol, message)
        await protocol.writable()

    def _application_done(self, protocol: Any, task: asyncio.Task[None]) -> None:
        details = self.connections.get(protocol)
        if details is None:
            return
        details.pop("application_instance", None)
        exception = asyncio.CancelledError() if task.cancelled() else task.exception()
        # An application raises ConnectionError to cut a connection on purpose.
        if exception and not isinstance(exception, (asyncio.CancelledError, ConnectionError)):
            logger.error("the application failed: %s", exception, exc_info=exception)
        if "disconnected" in details:
            del self.connections[protocol]
        elif exception:
            protocol.handle_exception(exception)
        else:
            protocol.application_returned()

    def application_checker(self) -> None:
        """Once a second: forgets connections that are gone, cancels applications that outlive theirs."""
        for protocol, details in list(self.connections.items()):
            gone = details.get("disconnected")
            task = details.get("application_instance")
            if gone and task is None:
                del self.connections[protocol]
            elif gone and task and time.time() - gone > self.application_close_timeout:
                task.cancel()
        reactor.callLater(1, self.application_checker)

    def _told_to_stop(self) -> None:
        if self.draining:
            logger.warning("stopping now")
            self._cancel_all()
        else:
            self.draining = True
            # A watchdog outside the loop: a stuck thread or disk must not keep the process for ever.
            watchdog = threading.Timer(STOP_SECONDS, lambda: os._exit(1))
            watchdog.daemon = True
            watchdog.start()
            self._spawn(self._drain())

    async def _drain(self) -> None:
        if self._listener:
            self._listener.stopListening()
        for channel in list(self.http_factory.channels):
            if not channel.requests:
                channel.loseConnection()
        for protocol, details in list(self.connections.items()):
            if "disconnected" not in details and details.get("application_instance"):
                protocol.drain()
        deadline = time.monotonic() + GRACE_SECONDS
        while self._applications() and time.monotonic() < deadline:
            await asyncio.wait(self._applications(), timeout=deadline - time.monotonic())
        self._cancel_all()
        if tasks := self._applications():
            await asyncio.wait(tasks, timeout=1)
        await self._end()

    def _applications(self) -> list[asyncio.Task[None]]:
        return [d["application_instance"] for d in self.connections.values() if d.get("application_instance")]

    def _cancel_all(self) -> None:
        for task in self._applications():
            task.cancel()

    async def _end(self) -> None:
        try:
            await self._stop()
        except Exception:
            logger.exception("relayweb did not stop cleanly")
        reactor.stop()


def _reading(protocol: Any) -> tuple[Callable[[], None], Callable[[], None]]:
    transport = protocol.channel._networkProducer if isinstance(protocol, Request) else protocol.transport
    return transport.pauseProducing, transport.resumeProducing


def serve(host: str, port: int, ready: Callable[[str, int], Awaitable[None]], *, demo: bool = False) -> None:
    """Run relayweb on Daphne until told to stop.

    Args:
        host: address to listen at.
        port: TCP port.
        ready: awaited with host and port when the first request may come.
        demo: keep making turns with the demo provider.

    Raises:
        OSError: the address cannot be listened at, or a part could not start.
    """
    from relayweb import lifecycle
    from relayweb.asgi import application

    Server(application, host, port, start=partial(lifecycle.start, demo=demo), stop=lifecycle.stop, ready=ready).run()
