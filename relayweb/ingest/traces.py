"""`POST /v1/traces`: OTLP over HTTP, protobuf and JSON, answered as the specification has it."""

from __future__ import annotations

import asyncio
import json

from relayweb.access.answers import Headers, Receive, Scope, Send
from relayweb.ingest.otlp import spans as otlp_spans
from relayweb.ingest.otlp.events import events
from relayweb.ingest.otlp.spans import Span
from relayweb.ingest.posts import refusals
from relayweb.ingest.reading import BodyError, decoder, whole_body
from relayweb.ingest.tally import Tally

PROTOBUF, JSON = "application/x-protobuf", "application/json"


async def otlp(scope: Scope, receive: Receive, send: Send) -> None:
    """Take an ExportTraceServiceRequest; its spans become scopes, those of Relay's exporters the ones they copy."""
    headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
    tally = Tally("otlp")
    async with refusals(send, tally):
        content_type = headers.get(b"content-type", "").partition(";")[0].strip().lower()
        if content_type not in (PROTOBUF, JSON):
            raise BodyError(415, f"content-type {content_type!r} is not OTLP; send {PROTOBUF} or {JSON}")
        data = await whole_body(receive, decoder(headers.get(b"content-encoding", "")))
        wanted = await asyncio.to_thread(_read, content_type, data)
        await tally.submit(b"".join(line for _, line in wanted), patient=False)
        await _answer(send, content_type, *_rejected(tally, wanted))


def _read(content_type: str, data: bytes) -> list[tuple[Span, bytes]]:
    try:
        spans = (otlp_spans.from_json if content_type == JSON else otlp_spans.from_protobuf)(data)
    except otlp_spans.BadRequest as error:
        raise BodyError(400, str(error)) from None
    return [(span, line) for span in spans for line in events(span)]


def _rejected(tally: Tally, wanted: list[tuple[Span, bytes]]) -> tuple[int, str]:
    refused = {wanted[r["line"] - 1][0].span_id: r["error"] for r in tally.rejected}
    told = "; ".join(f"span {span_id.hex()}: {error}" for span_id, error in list(refused.items())[:5])
    return len(refused), told


async def _answer(send: Send, content_type: str, rejected: int, told: str) -> None:
    partial = {"partialSuccess": {"rejectedSpans": str(rejected), "errorMessage": told}} if rejected else {}
    if content_type == JSON:
        body = json.dumps(partial).encode()
    elif rejected:
        from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as pb

        success = pb.ExportTracePartialSuccess(rejected_spans=rejected, error_message=told)
        body = pb.ExportTraceServiceResponse(partial_success=success).SerializeToString()
    else:
        body = b""
    headers: Headers = [(b"content-type", content_type.encode()), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})
