"""HTTP exchanges of the provider SDKs as the core sees them: which wire format, which body, which chunks.

Works on httpx2 and httpx objects alike; what is made anew is made by the library the request came from.
"""

from __future__ import annotations

import json
import sys
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

from adapters import sse
from adapters.attempt import CallFault
from adapters.failures import BLOCKED
from adapters.json_values import same, to_json
from adapters.sse import Slice, Splitter, chunk

_PATHS = {
    "/chat/completions": "chat_completions",
    "/responses": "codex_responses",
    "/messages": "anthropic_messages",
}
_HOSTS = {"api.openai.com": "openai", "api.anthropic.com": "anthropic"}
_SHOWN_HEADERS = ("openai-", "anthropic-")
_FRAMING = ("content-length", "content-encoding", "transfer-encoding")


class ProviderStatus(Exception):
    """An HTTP answer of 400 or more. Carries it through Relay; the SDK gets the answer itself."""

    def __init__(self, response: Any) -> None:
        super().__init__(f"HTTP {response.status_code}")
        self.response = response
        self.status_code: int = response.status_code
        try:
            self.body: Any = response.json()
        except Exception:  # not read yet, not JSON; each HTTP library raises its own error
            self.body = None


class Exchange:
    """One request of an SDK that is a model call."""

    def __init__(self, request: Any, api_mode: str, body: dict[str, Any]) -> None:
        self.request = request
        self.api_mode = api_mode
        self.body = body
        self.streaming = body.get("stream") is True
        self.library = _library(request)
        self.headers = {k: v for k, v in request.headers.items() if k.lower().startswith(_SHOWN_HEADERS)}
        self.call = {**body, "extra_headers": self.headers} if self.headers else body

    @classmethod
    def of(cls, request: Any) -> Exchange | None:
        """The exchange a request begins, None where it is no model call or not understood."""
        if request.method != "POST":
            return None
        path = request.url.path.rstrip("/")
        mode = next((mode for end, mode in _PATHS.items() if path.endswith(end)), None)
        if mode is None:
            return None
        try:
            body = json.loads(request.content)
        except Exception:  # not read yet, not JSON
            return None
        return cls(request, mode, body) if isinstance(body, dict) else None

    def arguments(self, request_id: str, attempt: int) -> dict[str, Any]:
        """Keyword arguments of the attempt."""
        host = self.request.url.host
        model = self.body.get("model")
        return {
            "name": _HOSTS.get(host, host),
            "model_name": model if isinstance(model, str) else None,
            "metadata": {
                "api_mode": self.api_mode,
                "api_request_id": request_id,
                "call_role": "primary",
                "retry_count": attempt,
            },
        }

    def outgoing(self, call: Mapping[str, Any]) -> Any:
        """The request to send for what intercepts made of `self.call`; an unchanged body goes out in its own bytes."""
        body = {k: v for k, v in call.items() if k != "extra_headers"}
        headers = call.get("extra_headers") or {}
        removed = {name.lower() for name in getattr(headers, "removed", ())}
        unchanged = same(body, self.body)
        if unchanged and headers == self.headers and not removed:
            return self.request
        dropped = {k.lower() for k in self.headers} | {k.lower() for k in headers} | removed
        if not unchanged:
            dropped.add("content-length")
        kept = [(k, v) for k, v in self.request.headers.multi_items() if k.lower() not in dropped]
        content = self.request.content if unchanged else _dump(body)
        return type(self.request)(
            self.request.method,
            self.request.url,
            headers=[*kept, *headers.items()],
            content=content,
            extensions=self.request.extensions,
        )

    def answer(self, body: Any, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Any:
        """An HTTP response that no provider gave."""
        return self.library.Response(
            status,
            headers={**(headers or {}), "content-type": "application/json"},
            content=json.dumps(to_json(body), ensure_ascii=True).encode(),
            request=self.request,
        )

    def rewritten(self, response: Any, body: Any) -> Any:
        """A provider's response with another body."""
        kept = {k: v for k, v in response.headers.items() if k.lower() not in _FRAMING}
        return self.answer(body, status=response.status_code, headers=kept)

    def refused(self, error: Exception) -> Any:
        """The response for a call that never reached the provider: an error in the provider's format, not retried."""
        if isinstance(error, CallFault):
            return self.answer(error.body, status=error.status_code, headers=error.headers)
        key = getattr(error, "key", None)
        if self.api_mode == "anthropic_messages":
            body = {"type": "error", "error": {"type": "permission_error", "message": str(error)}}
        else:
            kind = {"message": str(error), "type": "blocked_by_intercept", "param": None, "code": key}
            body = {"error": kind}
        return self.answer(body, status=403, headers={"x-should-retry": "false", BLOCKED: "true"})

    def sse(self, chunk: Any) -> bytes:
        """A chunk an intercept gave, as an event."""
        kind = chunk.get("type") if isinstance(chunk, dict) else None
        named = f"event: {kind}\n" if self.api_mode != "chat_completions" and isinstance(kind, str) else ""
        return f"{named}data: {json.dumps(chunk, ensure_ascii=True)}\n\n".encode()


class Frame:
    """A chunk: its JSON, and the bytes it came in with those of comments before it."""

    __slots__ = ("json", "raw")

    def __init__(self, raw: bytes, value: Any) -> None:
        self.raw, self.json = raw, value


class Frames:
    """The chunks of a streamed response, read from its bytes; iterate it synchronously or asynchronously.

    `tail` holds, once it is exhausted, the bytes after the last chunk (such as `data: [DONE]`).
    """

    def __init__(self, response: Any) -> None:
        self.tail = b""
        # The response the SDK holds gets another stream; this one, of the same kind, decodes the provider's.
        self._source = _twin(response, response.stream)
        self._splitter = Splitter()
        self._ready: deque[Frame] = deque()
        self._bytes: Any = None

    def __iter__(self) -> Iterator[Frame]:
        self._bytes = self._source.iter_bytes()
        return self

    def __next__(self) -> Frame:
        while not self._ready:
            try:
                self._take(self._splitter.feed(next(self._bytes)))
            except StopIteration:
                self._rest()
                raise
        return self._ready.popleft()

    def __aiter__(self) -> AsyncIterator[Frame]:
        self._bytes = self._source.aiter_bytes()
        return self

    async def __anext__(self) -> Frame:
        while not self._ready:
            try:
                self._take(self._splitter.feed(await self._bytes.__anext__()))
            except StopAsyncIteration:
                self._rest()
                raise
        return self._ready.popleft()

    def _take(self, slices: list[Slice]) -> None:
        for piece in slices:
            self.tail += piece.raw
            if (value := chunk(piece, _parse)) is not None:
                self._ready.append(Frame(self.tail, value))
                self.tail = b""

    def _rest(self) -> None:
        left = self._splitter.rest()
        self.tail += left.raw if left is not None else b""

    def close(self) -> None:
        self._source.close()

    async def aclose(self) -> None:
        await self._source.aclose()


class Whole(dict[str, Any]):
    """The JSON of a complete response where a stream was asked for."""


def streams(response: Any) -> bool:
    """Whether a response, not read yet, is an event stream: as it says, else as it begins."""
    if (said := _says(response)) is not None:
        return said
    library: Any = _library(response.request)
    stream, seen = response.stream, []
    source = iter(stream)

    class Look(library.SyncByteStream):  # type: ignore[misc]
        def __iter__(self) -> Iterator[bytes]:
            for part in source:
                seen.append(part)
                yield part

    class Held(library.SyncByteStream):  # type: ignore[misc]
        def __iter__(self) -> Iterator[bytes]:
            yield from seen
            yield from source

        def close(self) -> None:
            stream.close()

    response.stream = Held()
    head = b""
    for part in _twin(response, Look()).iter_bytes():
        head += part
        if (told := sse.begins(head)) is not None:
            return told
    return False


async def streams_async(response: Any) -> bool:
    """`streams` of a response that an asynchronous client got."""
    if (said := _says(response)) is not None:
        return said
    library: Any = _library(response.request)
    stream, seen = response.stream, []
    source = aiter(stream)

    class Look(library.AsyncByteStream):  # type: ignore[misc]
        async def __aiter__(self) -> AsyncIterator[bytes]:
            async for part in source:
                seen.append(part)
                yield part

    class Held(library.AsyncByteStream):  # type: ignore[misc]
        async def __aiter__(self) -> AsyncIterator[bytes]:
            for part in seen:
                yield part
            async for part in source:
                yield part

        async def aclose(self) -> None:
            await stream.aclose()

    response.stream = Held()
    head = b""
    async for part in _twin(response, Look()).aiter_bytes():
        head += part
        if (told := sse.begins(head)) is not None:
            return told
    return False


def _says(response: Any) -> bool | None:
    if response.status_code >= 400:
        return False
    return True if sse.is_said(response.headers.get("content-type", "")) else None


def _twin(response: Any, stream: Any) -> Any:
    """A response with the same head over another stream; it undoes the content coding."""
    return type(response)(
        response.status_code,
        headers=response.headers,
        stream=stream,
        request=response.request,
        extensions=response.extensions,
    )


def _library(request: Any) -> Any:
    """The HTTP library a request came from."""
    return sys.modules[type(request).__module__.partition(".")[0]]


def _parse(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _dump(body: Any) -> bytes:
    """JSON as the SDKs write it; what UTF-8 cannot hold stays escaped."""
    try:
        return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        return json.dumps(body, separators=(",", ":")).encode()
