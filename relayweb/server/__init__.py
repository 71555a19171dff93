"""Daphne, with what a recorder needs of its server.

Stock Daphne spools every request body before the application runs, drops clients that answer no ping, lets a slow
reader fill the memory and leaves a client hanging when a started answer breaks off. The subclasses here run the
application as soon as the headers are in, feed it the body as it arrives, stop reading and stop writing when the other
side does not keep up, and cut what cannot be ended properly.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from daphne import server as daphne_server  # first: it chooses Twisted's reactor
from twisted.internet import reactor as _reactor
from twisted.internet.error import CannotListenError
from twisted.logger import globalLogBeginner

from relayweb import conf
from relayweb.server import limits
from relayweb.server.flow import Inbox, Message
from relayweb.server.http import Factory, Request
from relayweb.server.websocket import SocketFactory

logger = logging.getLogger(__name__)
reactor: Any = _reactor


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
        self._ended = False
        self.draining = False
        self.page_bytes = 0
        """Bytes of bodies that anybody may send, of requests that are not over."""

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
            failByDrop=False,  # a close frame says why
        )
        globalLogBeginner.beginLoggingTo([lambda _: None], redirectStandardIO=False, discardBuffer=True)
        self._loop: asyncio.AbstractEventLoop = reactor._asyncioEventloop
        asyncio.set_event_loop(self._loop)
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._told_to_stop)
        self._beginning = self._loop.create_task(self._begin())
        reactor.run(installSignalHandlers=False)
        if self._failed:
            raise OSError(self._failed)

    async def _begin(self) -> None:
        try:
            await self._start()
            if self.draining:
                return None
            interface = socket.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)[0][4][0]
            self._listener = reactor.listenTCP(self._port, self.http_factory, backlog=512, interface=interface)
        except (CannotListenError, OSError) as error:
            reason = getattr(error, "socketError", error)
            self._failed = f"cannot listen at {self._host}:{self._port}: {reason}"
            if getattr(reason, "errno", None) == errno.EADDRINUSE:
                self._failed += "; name another with --port, or make run PORT=…"
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

    def timeout_checker(self) -> None:
        """Every two seconds: late and stalled connections, and pings. One that fails must not end it for all others."""
        for protocol in list(self.connections):
            try:
                protocol.check_timeouts()
            except Exception:
                logger.exception("a connection could not be checked and is not looked at any more")
                self.connections.pop(protocol, None)
        reactor.callLater(2, self.timeout_checker)

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
            watchdog = threading.Timer(limits.STOP_SECONDS, lambda: os._exit(1))
            watchdog.daemon = True
            watchdog.start()
            self._draining = self._loop.create_task(self._drain())

    async def _drain(self) -> None:
        await self._beginning
        if self._listener is None:
            return await self._end()
        self._listener.stopListening()
        for channel in list(self.http_factory.channels):
            if not channel.requests:
                channel.loseConnection()
        for protocol, details in list(self.connections.items()):
            if "disconnected" not in details and details.get("application_instance"):
                protocol.drain()
        deadline = time.monotonic() + limits.GRACE_SECONDS
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
        if not self._ended:
            self._ended = True
            reactor.stop()


def _reading(protocol: Any) -> tuple[Callable[[], None], Callable[[], None]]:
    if isinstance(protocol, Request):
        producer = protocol.channel._networkProducer
        return producer.pauseProducing, producer.resumeProducing
    return lambda: None, protocol.resume_reading  # a socket looks itself whether its inbox is full


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
