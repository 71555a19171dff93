"""One request to a provider: what the client gave, what goes out, and the response as it comes back."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, TypeVar

import httpx2
import zstandard

from adapters import sse
from adapters.actions.base import UNREADABLE, Unread
from adapters.json_values import same
from relayweb import conf
from relayweb.gateway import headers as travel
from relayweb.gateway.reading import as_text, is_replaced, read
from relayweb.gateway.splice import dump, splice
from relayweb.gateway.transport import Held, Transports, raw, read_all
from relayweb.gateway.upstreams import Target

T = TypeVar("T")

_WINDOW = 1 << 23  # RFC 9659: as far back as a content coding may refer
_LONG = 100_000  # bytes: to write more anew, value by value, is work for a thread
_RETRYABLE = frozenset({408, 409, 429})


class ProviderError(Exception):
    """The provider's answer was not 2xx. It reaches the client with its status, headers and body unchanged.

    The attributes are those of the SDKs' own errors, from which `relay.attempt_failed` is written.
    """

    def __init__(self, response: httpx2.Response, content: bytes) -> None:
        self.status_code = response.status_code
        self.headers = response.headers
        self.content = content
        shown = plain(response, content)
        self.body = read(shown)
        text = shown.decode("utf-8", "replace")
        self.response = SimpleNamespace(status_code=self.status_code, headers=response.headers, text=text)
        super().__init__(_message(self.body) or f"HTTP {self.status_code} {response.reason_phrase}".strip())

    @property
    def retryable(self) -> bool:
        """Whether an SDK will try again, by the rules openai and anthropic share."""
        told = self.headers.get("x-should-retry")
        if told in ("true", "false"):
            return told == "true"
        return self.status_code in _RETRYABLE or self.status_code >= 500


@dataclass(frozen=True, slots=True)
class Incoming:
    """A client's request, read whole: everything but the place it belongs to."""

    target: Target
    method: str
    url: str
    api_mode: str | None
    headers: travel.Headers
    content: bytes


class Exchange:
    """Sends a request once it is decided what goes out. `close` ends the provider call, wherever it stands."""

    def __init__(self, incoming: Incoming, transports: Transports) -> None:
        self.incoming = incoming
        self._transports = transports
        shown = decoded(incoming.content, _coding(incoming.headers))
        parsed = read(shown)
        self.replaced = is_replaced(shown)
        self.readable = isinstance(parsed, dict) and not isinstance(parsed, Unread)
        # The very object that Relay's side hands back when nothing changed it. What cannot be read, or not wholly, goes
        # out byte for byte for the provider to judge, unless a rule that must not be passed by refuses it.
        self.body: dict[str, Any] = parsed if isinstance(parsed, dict) else Unread({UNREADABLE: _shown(incoming)})
        self.response: httpx2.Response | None = None
        self._tasks: set[asyncio.Task[Any]] = set()

    async def send(self, request: Mapping[str, Any] | None = None) -> httpx2.Response:
        """The response once its head is there.

        `request` is what is to go out: the bytes that came in when it is `body` itself (or None), else its JSON;
        its `extra_headers` are laid over the client's.
        """
        content, extra = self.incoming.content, None
        removed: set[bytes] = set()
        kept = self.incoming.headers
        if request is not None and request is not self.body:
            extra = request.get("extra_headers")
            removed = {name.lower().encode("latin-1", "replace") for name in getattr(extra, "removed", ())}
            changed = {k: v for k, v in request.items() if k != "extra_headers" or k in self.body}
            if self.readable and not same(changed, self.body):  # 1, 1.0 and true are different bodies
                plain_content = decoded(content, _coding(self.incoming.headers))
                if len(plain_content) > _LONG:
                    content = await self._own(asyncio.to_thread(splice, plain_content, self.body, changed))
                else:
                    content = splice(plain_content, self.body, changed)
                removed.add(b"content-encoding")
                kept = [(name, _as_utf8(value) if name.lower() == b"content-type" else value) for name, value in kept]
        kept = [(name, value) for name, value in kept if name not in removed]
        incoming = self.incoming
        if self.response is not None:  # an intercept tries again
            await self.response.aclose()
        url, headers = travel.url_to_upstream(incoming.url), travel.to_upstream(kept, extra)
        self.response = await self._own(self._transports.send(incoming.target, incoming.method, url, headers, content))
        return self.response

    async def read(self) -> bytes:
        """The whole body of the response, as it came."""
        assert self.response is not None
        content = await self._own(read_all(self.response))
        await self.response.aclose()
        return content

    async def streams(self) -> bool:
        """Whether the response is an event stream: as it says, else as it begins."""
        assert self.response is not None
        said = sse.is_said(self.response.headers.get("content-type", ""))
        return said or await self._own(_begins_as_events(self.response))

    async def close(self) -> None:
        """Ends the provider call at once; safe at any time, and twice."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=5)
        if self.response is not None:
            await self.response.aclose()

    async def _own(self, work: Coroutine[Any, Any, T]) -> T:
        """Does I/O in a task of ours: Relay ends its callbacks late, or never, when a call is cancelled."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return await task


async def _begins_as_events(response: httpx2.Response) -> bool:
    """Whether a body begins as an event stream does. It can still be read whole."""
    stream = response.stream
    assert isinstance(stream, httpx2.AsyncByteStream)
    response.stream = held = Held(stream)
    decode, begun = decoder(response), b""
    while part := await held.look():
        begun += decode(part)
        if (told := sse.begins(begun)) is not None:
            return told
    return False


def plain(response: httpx2.Response, content: bytes) -> bytes:
    """A response's body without its content coding, for the record."""
    return decoded(content, response.headers.get("content-encoding", ""))


def decoded(content: bytes, coding: str) -> bytes:
    """A body without its content coding; as it is where we cannot undo that, or it would grow beyond all measure."""
    room = min(conf.MAX_BODY, _room(len(content)))
    try:
        if coding in ("gzip", "x-gzip", "deflate"):
            return zlib.decompressobj(47).decompress(content, room)
        if coding == "zstd":
            return zstandard.ZstdDecompressor(max_window_size=_WINDOW).stream_reader(content).read(room)
    except (zlib.error, zstandard.ZstdError):
        pass
    return content


def decoder(response: httpx2.Response) -> Callable[[bytes], bytes]:
    """Undoes the content coding of a response piece by piece, where a provider compresses though asked not to."""
    coding = response.headers.get("content-encoding", "").strip().lower()
    return Unpacking(coding) if coding in ("gzip", "x-gzip", "deflate", "zstd") else bytes


class Unpacking:
    """Pieces without their content coding; nothing more once they make no sense, or unpack to more than anyone means.

    They still pass to the client, but cannot be read.
    """

    def __init__(self, coding: str) -> None:
        self._undo: Any = (
            zstandard.ZstdDecompressor(max_window_size=_WINDOW).decompressobj()
            if coding == "zstd"
            else zlib.decompressobj(wbits=47)
        )
        self._taken = self._given = 0
        self._broken = False

    def __call__(self, data: bytes) -> bytes:
        parts = []
        # In slices, because four bytes of zstd can hold 128 KB.
        for at in range(0, len(data), 256):
            if self._broken:
                break
            part = data[at : at + 256]
            try:
                parts.append(self._undo.decompress(part))
            except (zlib.error, zstandard.ZstdError):
                self._broken = True
                break
            self._taken += len(part)
            self._given += len(parts[-1])
            self._broken = self._given > _room(self._taken)
        return b"".join(parts)


def _room(taken: int) -> int:
    """What so many bytes may unpack to, which is done while everybody waits."""
    return max(8 * 1024 * 1024, 100 * taken)


def _coding(headers: travel.Headers) -> str:
    return next((v.decode("latin-1").strip().lower() for k, v in headers if k.lower() == b"content-encoding"), "")


def _shown(incoming: Incoming) -> str:
    shown = as_text(incoming.content[:65_536])
    return shown if len(incoming.content) <= 65_536 else f"{shown}… ({len(incoming.content)} bytes)"


def _as_utf8(content_type: bytes) -> bytes:
    """The type without a charset, which is none of JSON's (RFC 8259, section 11) and may be another one."""
    kept = (part for part in content_type.split(b";") if not part.strip().lower().startswith(b"charset="))
    return b";".join(kept)


def _message(body: Any) -> str | None:
    error = body.get("error") if isinstance(body, dict) else None
    message = error.get("message") if isinstance(error, dict) else error
    return message if isinstance(message, str) else None


__all__ = [
    "Exchange",
    "Incoming",
    "ProviderError",
    "dump",
    "is_replaced",
    "plain",
    "raw",
    "read",
]
