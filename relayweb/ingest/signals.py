"""`POST /v1/traces`, `/v1/logs` and `/v1/metrics`: OTLP over HTTP, protobuf and JSON, answered as it has it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import msgspec

from relayweb.access.answers import Headers, Receive, Scope, Send, answer
from relayweb.ingest.otlp import logs as otlp_logs
from relayweb.ingest.otlp import spans as otlp_spans
from relayweb.ingest.otlp.events import events
from relayweb.ingest.otlp.values import BadRequest, Refused
from relayweb.ingest.posts import Tell, refusals
from relayweb.ingest.reading import BodyError, body, decoder, whole_body
from relayweb.ingest.tally import Tally
from relayweb.recording.kernels import write_varint

PROTOBUF, JSON = "application/x-protobuf", "application/json"

Lines = list[tuple[str, bytes]]
"""Events, each with the name of the span or record it was read from."""


class Signal(msgspec.Struct, frozen=True):
    """One kind of what OTLP carries."""

    read: Callable[[str, bytes, list[Refused]], Lines]
    """What a body of this type holds; what of it cannot be taken is added to the list."""
    rejected: str
    """Member of a partial success that counts what was not taken."""
    response: Callable[[int, str], Any]
    """A partial success in protobuf."""


_FULL = 503
"""Told while the record takes nothing: OTLP allows 429 as well, but Python's exporters of 2025 give up after that."""


async def traces(scope: Scope, receive: Receive, send: Send) -> None:
    """Take an ExportTraceServiceRequest; its spans become scopes, those of Relay's exporters the ones they copy."""
    await _take(_TRACES, scope, receive, send)


async def logs(scope: Scope, receive: Receive, send: Send) -> None:
    """Take an ExportLogsServiceRequest; its records become marks, those of a span under its scope."""
    await _take(_LOGS, scope, receive, send)


async def metrics(scope: Scope, receive: Receive, send: Send) -> None:
    """Take an ExportMetricsServiceRequest and drop it.

    Nothing here shows metrics. But most agents send all signals to one place, and to an error, or to a partial success
    that says so, their exporters would write a line into the agent's log with every export.
    """
    tally = Tally("otlp")
    async with refusals(send, tally, full_status=_FULL, tell=_status_in(scope)):
        async for _ in body(receive):
            pass
        await _answer(send, _content_type(scope)[0], b"{}", b"")


async def _take(signal: Signal, scope: Scope, receive: Receive, send: Send) -> None:
    tally, wrong = Tally("otlp"), list[Refused]()
    async with refusals(send, tally, full_status=_FULL, tell=_status_in(scope)):
        content_type, encoding = _content_type(scope)
        data = await whole_body(receive, decoder(encoding))
        wanted = await asyncio.to_thread(_read, signal, content_type, data, wrong)
        await tally.submit(b"".join(line for _, line in wanted), patient=False)
        refused = {one.what: one.error for one in wrong}
        refused |= {wanted[r["line"] - 1][0]: r["error"] for r in tally.rejected}
        if refused:
            told = "; ".join(f"{name}: {error}" for name, error in list(refused.items())[:5])
            partial = {"partialSuccess": {signal.rejected: str(len(refused)), "errorMessage": told}}
            in_json = content_type == JSON
            protobuf = b"" if in_json else signal.response(len(refused), told).SerializeToString()
            await _answer(send, content_type, json.dumps(partial).encode(), protobuf)
        else:
            await _answer(send, content_type, b"{}", b"")


def _content_type(scope: Scope) -> tuple[str, str]:
    """The type and the coding of a body. Raises BodyError for a type that is not OTLP's."""
    headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
    content_type = headers.get(b"content-type", "").partition(";")[0].strip().lower()
    if content_type not in (PROTOBUF, JSON):
        raise BodyError(415, f"content-type {content_type!r} is not OTLP; send {PROTOBUF} or {JSON}")
    return content_type, headers.get(b"content-encoding", "")


_CODES = {401: 16, 429: 8, 503: 14}
"""Of `google.rpc.Code`; whatever else is wrong with a request is an invalid argument."""


def _status_in(scope: Scope) -> Tell:
    """Errors as OTLP has them: a `google.rpc.Status` in the format of the request, JSON with our counts besides."""
    in_protobuf = any(
        n == b"content-type" and v.strip().lower().startswith(PROTOBUF.encode()) for n, v in scope["headers"]
    )

    async def tell(send: Send, status: int, told: dict[str, Any], headers: Headers | None = None) -> None:
        code, message = _CODES.get(status, 3), str(told["error"])
        if not in_protobuf:
            await answer(send, status, {"code": code, "message": message, **told}, headers)
            return
        text = message.encode("utf-8", "replace")[:16_000]
        size = bytearray()
        write_varint(size, len(text))
        body = b"\x08" + bytes([code]) + b"\x12" + bytes(size) + text
        fixed = [(b"content-type", PROTOBUF.encode()), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": fixed + (headers or [])})
        await send({"type": "http.response.body", "body": body})

    return tell


def _read(signal: Signal, content_type: str, data: bytes, refused: list[Refused]) -> Lines:
    try:
        return signal.read(content_type, data, refused)
    except BadRequest as error:
        raise BodyError(400, str(error)) from None


async def _answer(send: Send, content_type: str, in_json: bytes, protobuf: bytes) -> None:
    told = in_json if content_type == JSON else protobuf
    headers: Headers = [(b"content-type", content_type.encode()), (b"content-length", str(len(told)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": told})


# Traces and logs ----------------------------------------------------------------------------------------------------


def _spans(content_type: str, data: bytes, refused: list[Refused]) -> Lines:
    spans = (otlp_spans.from_json if content_type == JSON else otlp_spans.from_protobuf)(data, refused)
    return [(f"span {span.span_id.hex()}", line) for span in spans for line in events(span)]


def _records(content_type: str, data: bytes, refused: list[Refused]) -> Lines:
    found = otlp_logs.from_json(data, refused) if content_type == JSON else otlp_logs.from_protobuf(data)
    return [(f"record {number}", line) for number, log in enumerate(found, 1) for line in otlp_logs.events(log)]


def _trace_response(rejected: int, told: str) -> Any:
    from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as pb

    success = pb.ExportTracePartialSuccess(rejected_spans=rejected, error_message=told)
    return pb.ExportTraceServiceResponse(partial_success=success)


def _logs_response(rejected: int, told: str) -> Any:
    from opentelemetry.proto.collector.logs.v1 import logs_service_pb2 as pb

    success = pb.ExportLogsPartialSuccess(rejected_log_records=rejected, error_message=told)
    return pb.ExportLogsServiceResponse(partial_success=success)


_TRACES = Signal(_spans, "rejectedSpans", _trace_response)
_LOGS = Signal(_records, "rejectedLogRecords", _logs_response)
