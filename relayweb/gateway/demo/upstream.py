"""The `demo` upstream: a provider inside the process, reached by the gateway like any other, without network or key."""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx2

from adapters import sse
from relayweb.gateway import routes
from relayweb.gateway.conversation import CHAT, MESSAGES, read_question
from relayweb.gateway.demo import formats, script

_REMEMBERED = 256


class DemoTransport(httpx2.AsyncBaseTransport):
    """Answers /v1/models and the three wire formats; `x-demo-pace` scales its pauses (1 is human, 0 is none)."""

    def __init__(self) -> None:
        self._failed: OrderedDict[bytes, bool] = OrderedDict()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        raw = await request.aread()
        if request.method == "GET" and request.url.path.endswith("/models"):
            models = [
                {"id": m, "object": "model", "created": formats.CREATED, "owned_by": "demo"} for m in script.MODELS
            ]
            return _json(200, {"object": "list", "data": models})
        api_mode = routes.api_mode(request.method, request.url.path)
        if api_mode is None:
            return _error(404, None, "not_found_error", f"the demo upstream has no {request.method} {request.url.path}")
        try:
            body = json.loads(raw)
            if not isinstance(body, dict):
                raise ValueError("the body must be a JSON object")
        except (ValueError, RecursionError) as error:
            return _error(400, api_mode, "invalid_request_error", f"cannot read the body: {error}")
        return await self._answer(api_mode, body, raw, request.headers)

    async def _answer(
        self, api_mode: str, body: dict[str, Any], raw: bytes, headers: httpx2.Headers
    ) -> httpx2.Response:
        pace = _pace(headers.get("x-demo-pace"))
        reply = script.reply(api_mode, body)
        rhythm = random.Random(reply.id)

        async def pause(low: float, high: float) -> None:
            await asyncio.sleep(pace * rhythm.uniform(low, high))

        if reply.model == "demo-small-context":
            await pause(0.1, 0.2)
            text = f"This model's maximum context length is 512 tokens; your messages resulted in {reply.input_tokens}."
            return _error(400, api_mode, "invalid_request_error", text, code="context_length_exceeded")
        if reply.model == "demo-flaky" and self._fails_now(api_mode, body, raw, headers.get("x-stainless-retry-count")):
            await pause(0.3, 0.6)
            wait = {"retry-after": "1", "x-request-id": f"req_{reply.id}"}
            return _error(
                503, api_mode, "overloaded_error", "The demo is overloaded; it is well again in a second.", wait
            )
        await pause(0.3, 0.5)
        if body.get("stream") is not True:
            await pause(0.3, 0.6)
            return _json(200, formats.whole(api_mode, reply), {"x-request-id": f"req_{reply.id}"})
        options = body.get("stream_options")
        usage = isinstance(options, dict) and options.get("include_usage") is True
        events = list(formats.events(api_mode, reply, usage))
        stream = _Stream(events, api_mode == CHAT, reply.model == "demo-cut", pause)
        head = {"content-type": "text/event-stream; charset=utf-8", "x-request-id": f"req_{reply.id}"}
        return httpx2.Response(200, headers=head, stream=stream)

    def _fails_now(self, api_mode: str, body: dict[str, Any], raw: bytes, retry_count: str | None) -> bool:
        """The first attempt of a new question fails. SDKs say which attempt it is; of others the body is remembered."""
        if not read_question(api_mode, body).asks_anew:
            return False
        if retry_count is not None:
            return retry_count == "0"
        digest = hashlib.blake2b(raw, digest_size=16).digest()
        if self._failed.pop(digest, False):
            return False
        self._failed[digest] = True
        while len(self._failed) > _REMEMBERED:
            self._failed.popitem(last=False)
        return True


class _Stream(httpx2.AsyncByteStream):
    def __init__(
        self, events: list[formats.Event], done: bool, cut: bool, pause: Callable[[float, float], Awaitable[None]]
    ) -> None:
        self._events, self._done, self._cut, self._pause = events, done, cut, pause

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for i, (name, data) in enumerate(self._events):
            if self._cut and i > len(self._events) // 2:
                raise httpx2.RemoteProtocolError("the demo upstream broke off")
            yield sse.encode(json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode(), name)
            await self._pause(0.015, 0.06)
        if self._done:
            yield b"data: [DONE]\n\n"


def _pace(text: str | None) -> float:
    try:
        return min(max(0.0, float(text or 1)), 10.0)  # in this order NaN, which upsets the timers of a loop, is 0
    except (ValueError, RecursionError):
        return 1.0


def _json(status: int, body: Any, headers: dict[str, str] | None = None) -> httpx2.Response:
    content = json.dumps(body, ensure_ascii=False).encode()
    return httpx2.Response(status, headers={"content-type": "application/json", **(headers or {})}, content=content)


def _error(
    status: int,
    api_mode: str | None,
    kind: str,
    message: str,
    headers: dict[str, str] | None = None,
    code: str | None = None,
) -> httpx2.Response:
    error = {"type": kind, "message": message}
    body: dict[str, Any]
    if api_mode == MESSAGES:
        body = {"type": "error", "error": error}
    else:
        body = {"error": {**error, "param": None, "code": code}}
    return _json(status, body, headers)
