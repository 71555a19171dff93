"""The way out: one pool of connections to all providers, and the upstream that is part of the product.

The transport is used below httpx2's client on purpose: no redirects, no cookies, no retries, no default headers, and
the bytes as they come.
"""

from __future__ import annotations

import ipaddress
import urllib.request
from collections.abc import AsyncIterator, Iterable
from typing import Any

import httpcore2
import httpx2

from relayweb import conf
from relayweb.gateway.addresses import is_forbidden_address
from relayweb.gateway.headers import Headers
from relayweb.gateway.models import DEMO_SCHEME
from relayweb.gateway.upstreams import Target

# Reading may take as long as a model thinks; a client that will not wait hangs up, and so do we.
TIMEOUT = httpx2.Timeout(connect=15.0, write=120.0, read=1200.0, pool=None)
_LIMITS = httpx2.Limits(max_connections=None, max_keepalive_connections=100, keepalive_expiry=30.0)


LARGEST = 4 * conf.MAX_BODY
"""Bytes of an answer that has to be held whole; streams and what passes untouched have no limit."""


class TooLarge(httpx2.ReadError):
    """An answer that is too long to be held whole."""


class _Guarded(httpcore2.AsyncNetworkBackend):
    """Refuses connections that ended at a forbidden address, whatever name led there, before a byte is sent."""

    def __init__(self, inner: httpcore2.AsyncNetworkBackend) -> None:
        self._inner = inner

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        stream = await self._inner.connect_tcp(host, port, timeout, local_address, socket_options)
        address = stream.get_extra_info("server_addr")
        if address and is_forbidden_address(str(address[0])):
            await stream.aclose()
            raise httpcore2.ConnectError(f"{host} is at {address[0]}, an address which is never contacted")
        return stream

    async def sleep(self, seconds: float) -> None:
        await self._inner.sleep(seconds)


class _Answer:
    """An answer's bytes. A connection on which more came than belongs to it is closed after it.

    Those bytes would be taken for the answer to the next call, of another client perhaps.
    """

    def __init__(self, stream: Any, connection: Any) -> None:
        self._stream, self._connection = stream, connection

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self._stream:
            yield part

    async def aclose(self) -> None:
        await self._stream.aclose()
        inner, state = self._connection, None
        while inner is not None and state is None:  # some proxies make it one deeper
            inner = getattr(inner, "_connection", None)
            state = getattr(inner, "_h11_state", None)
        if state is not None and state.trailing_data[0]:
            await self._connection.aclose()


def _tidied(pool: Any) -> None:
    """Has each connection of a pool give its answers as _Answer."""
    create = pool.create_connection

    def created(origin: Any) -> Any:
        connection = create(origin)
        ask = connection.handle_async_request

        async def asked(request: Any) -> Any:
            response = await ask(request)
            response.stream = _Answer(response.stream, connection)
            return response

        connection.handle_async_request = asked
        return connection

    pool.create_connection = created


def _network(proxy: str | None = None) -> httpx2.AsyncHTTPTransport:
    transport = httpx2.AsyncHTTPTransport(limits=_LIMITS, proxy=proxy)
    # httpx2 offers no way to hand its pool a network backend, or connections; tests fail when this stops working.
    _tidied(transport._pool)
    if proxy is None:
        transport._pool._network_backend = _Guarded(transport._pool._network_backend)
    return transport


class Transports:
    """Connections of one event loop. `close` once, at the end."""

    def __init__(self, demo: httpx2.AsyncBaseTransport) -> None:
        self._demo = demo
        self._by_proxy: dict[str | None, httpx2.AsyncHTTPTransport] = {}

    async def send(self, target: Target, method: str, url: str, headers: Headers, body: bytes) -> httpx2.Response:
        """The provider's response once its head is there; iterate `response.stream` for the raw bytes, then aclose it.

        Raises httpx2.TransportError (connection refused, time-out, protocol error, forbidden address) and
        httpx2.InvalidURL.
        """
        request = httpx2.Request(
            method, url, headers=headers, content=body if body or method in ("POST", "PUT", "PATCH") else None
        )
        request.extensions["timeout"] = TIMEOUT.as_dict()
        if is_forbidden_address(request.url.host):  # by way of a proxy too
            raise httpx2.ConnectError(f"{request.url.host} is an address which is never contacted")
        response = await self._for(request.url).handle_async_request(request)
        response.request = request
        return response

    def _for(self, url: httpx2.URL) -> httpx2.AsyncBaseTransport:
        if url.scheme == DEMO_SCHEME:
            return self._demo
        proxy = proxy_for(url.scheme, url.host)
        if proxy not in self._by_proxy:
            self._by_proxy[proxy] = _network(proxy)
        return self._by_proxy[proxy]

    async def close(self) -> None:
        for transport in self._by_proxy.values():
            await transport.aclose()
        self._by_proxy.clear()


def proxy_for(scheme: str, host: str) -> str | None:
    """The proxy the environment names for this host (HTTPS_PROXY, NO_PROXY …); never one for this machine itself."""
    proxies = urllib.request.getproxies_environment()
    proxy = proxies.get(scheme) or proxies.get("all")
    if not proxy or host == "localhost" or _is_loopback(host):
        return None
    return None if urllib.request.proxy_bypass(host) else proxy


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


async def read_all(response: httpx2.Response) -> bytes:
    """The whole body as it came. Raises TooLarge beyond LARGEST bytes."""
    parts, size = [], 0
    async for part in raw(response):
        parts.append(part)
        size += len(part)
        if size > LARGEST:
            raise TooLarge(f"its answer is longer than {LARGEST} bytes, four times RELAYWEB_MAX_BODY")
    return b"".join(parts)


async def raw(response: httpx2.Response) -> AsyncIterator[bytes]:
    """The body's bytes as they arrive, without any decoding."""
    stream = response.stream
    assert isinstance(stream, httpx2.AsyncByteStream)
    async for part in stream:
        yield part


class Held(httpx2.AsyncByteStream):
    """A stream whose beginning was looked at, from its beginning."""

    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream, self._rest = stream, aiter(stream)
        self._seen: list[bytes] = []

    async def look(self) -> bytes:
        """One more piece; empty at the end."""
        async for part in self._rest:
            self._seen.append(part)
            if part:
                return part
        return b""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while self._seen:
            yield self._seen.pop(0)
        async for part in self._rest:
            yield part

    async def aclose(self) -> None:
        await self._stream.aclose()
