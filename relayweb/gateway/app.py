"""The gateway's ASGI application: /gw/<upstream>/… and /gw/t/<token>/<upstream>/….

Nothing here needs the database or Relay to get a call through: upstreams and tokens seen before stay good, and a call
that cannot be placed or recorded goes out all the same.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import MutableMapping
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from adapters import failures
from relayweb import conf
from relayweb.access import tokens
from relayweb.access.answers import deny
from relayweb.gateway import proxy, routes, streaming
from relayweb.gateway.answering import RECHECK_SECONDS, Answering, Cut, Receive, Room, Send, read_body, unless_gone
from relayweb.gateway.demo.upstream import DemoTransport
from relayweb.gateway.errors import GatewayError
from relayweb.gateway.exchange import Exchange, Incoming
from relayweb.gateway.headers import read_caller, read_token
from relayweb.gateway.transport import Transports
from relayweb.gateway.turns import Registry
from relayweb.gateway.turns_shared import SharedRegistry
from relayweb.gateway.upstreams import Target, directory

log = logging.getLogger(__name__)

BODIES = 16
"""Bodies of the greatest length that may be under way at a time; shorter ones may be as many as there is room for."""


class Gateway:
    """What one event loop needs to make calls."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.transports = Transports(DemoTransport())
        self.registry = Registry()
        self.room = Room(BODIES * conf.MAX_BODY)
        if conf.REDIS_URL:
            from relayweb.gateway.sharing import Sharing

            self.registry = registry = SharedRegistry()
            registry.sharing = Sharing(conf.REDIS_URL, registry.hear)

    async def handle(self, scope: MutableMapping[str, Any], receive: Receive, client: Answering) -> None:
        """Answers one request; errors of ours are raised as GatewayError."""
        raw_path = (scope.get("raw_path") or scope["path"].encode()).partition(b"?")[0].decode("latin-1")
        route = routes.parse(raw_path)
        scope["relayweb.api_mode"] = routes.api_mode(scope["method"], route.rest)
        headers: list[tuple[bytes, bytes]] = list(scope["headers"])
        text = route.token or read_token(headers)
        try:
            token = await tokens.aauthenticate(text, "gateway", tokens.peer_of(scope))
        except tokens.NotNow as error:
            code = "too_many_requests" if error.status == 429 else "cannot_check_token"
            raise GatewayError(error.status, code, str(error), retry_after=error.retry_after) from None
        if token is None:
            raise GatewayError(401, "wrong_token", _wrong_token(text), retry=False)
        if scope["method"].upper() in ("CONNECT", "TRACE"):  # RFC 9110, 9.3.6 and 9.3.8: a tunnel, an echo of the keys
            raise GatewayError(405, "method_not_allowed", f"{scope['method']} is not passed on", retry=False)
        target = await self.find(route.upstream)
        url = target.url(route.rest)
        # A base URL may hold a part of the endpoint, or all of it.
        scope["relayweb.api_mode"] = api_mode = routes.api_mode(
            scope["method"], urlsplit(target.base_url).path + "/" + route.rest
        )
        if api_mode is None and target.api_mode == "anthropic_messages":
            scope["relayweb.api_mode"] = "anthropic_messages"  # the shape of errors
        peer = tokens.peer_of(scope)
        allowed = partial(tokens.still_good, text, "gateway", peer)
        began = time.monotonic()
        if query := scope.get("query_string"):
            url += "?" + query.decode("latin-1")
        with self.room.entered() as take:
            content = await read_body(receive, conf.MAX_BODY, take)
            if content is None:
                return
            if time.monotonic() - began > RECHECK_SECONDS and not await allowed():
                raise GatewayError(401, "wrong_token", _wrong_token(text), retry=False)
            incoming = Incoming(target, scope["method"], url, api_mode, headers, content)
            await unless_gone(receive, client, self.call(incoming, (token.pk, peer or "-"), client), allowed)

    async def find(self, name: str) -> Target:
        """The upstream of this name; GatewayError that lists the known ones."""
        target = await directory.find(name)
        if target is None:
            known = ", ".join(directory.names()) or "none"
            raise GatewayError(
                404,
                "unknown_upstream",
                f"no upstream {name!r}; known are: {known}. "
                "Add one: relayweb upstream set NAME --base-url URL --api-mode MODE",
                retry=False,
            )
        return target

    async def call(self, incoming: Incoming, tenant: Any, client: Answering) -> None:
        """Sends a request on and its answer back. Cancel it when the client hangs up. Raises Cut to have it cut off."""
        exchange = Exchange(incoming, self.transports)
        managed = None
        try:
            if incoming.api_mode is None:
                await proxy.pass_through(exchange, client)
                return
            caller = read_caller(incoming.headers)
            managed = await proxy.place(exchange, incoming.api_mode, caller, tenant, self.registry)
            make = streaming.streamed if managed.question.streaming else proxy.buffered
            await make(managed, client)
        except asyncio.CancelledError:
            if managed:
                managed.cancelled(retryable=not client.started and managed.caller.retry_count is not None)
            raise
        except Cut:
            if managed:
                managed.failed(retryable=False)
            raise
        except Exception as error:
            if managed:
                retryable = not client.started and proxy.is_retryable(error)
                managed.failed(retryable=retryable, blocked=failures.is_block(error))
            if client.started:
                raise Cut(f"{type(error).__name__}: {error}") from error
            await client.whole(*proxy.error_answer(error, exchange))
        finally:
            await exchange.close()

    async def close(self) -> None:
        await self.registry.close()
        if self.registry.sharing is not None:
            await self.registry.sharing.close()
        await self.transports.close()


_gateway: Gateway | None = None


def gateway() -> Gateway:
    """The gateway of the running event loop, made at its first use."""
    global _gateway
    if _gateway is None or _gateway.loop is not asyncio.get_running_loop():
        _gateway = Gateway()
    return _gateway


async def startup() -> None:
    """Makes the gateway ready, so that the first call does not wait for it."""
    gateway()
    await directory.find("")


async def shutdown() -> None:
    """Ends open turns and sessions, and the connections to providers."""
    global _gateway
    if _gateway is not None:
        closing, _gateway = _gateway, None
        await closing.close()


def counters() -> dict[str, int]:
    """What is open now, and what went through unrecorded: `lost_calls`, `lost_streams` (in part), `lost_chunks`."""
    registry = _gateway.registry if _gateway else None
    if registry is None:
        return {}
    return {**registry.counts(), **{f"lost_{name}": registry.losses[name] for name in ("calls", "streams", "chunks")}}


async def application(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
    """ASGI. Answers HTTP; a websocket is refused."""
    if scope["type"] != "http":
        await deny(scope, receive, send, 404, "the gateway has no websockets; use HTTP streaming")
        return
    client = Answering(send)
    try:
        await gateway().handle(scope, receive, client)
    except GatewayError as error:
        if client.started:
            raise
        await client.whole(*error.response(scope.get("relayweb.api_mode")))


def _wrong_token(text: str | None) -> str:
    how = "relayweb token create --scope gateway"
    if not text:
        return f"no relayweb token: send one as x-relay-token, or put it into the URL as /gw/t/TOKEN/…; make one: {how}"
    return f"the relayweb token is unknown, revoked or not for the gateway; make one: {how}"
