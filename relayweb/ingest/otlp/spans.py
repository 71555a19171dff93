"""OTLP trace requests as plain spans, from protobuf and from JSON.

Follows opentelemetry-proto 1.x, `ExportTraceServiceRequest`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from relayweb.ingest.otlp.values import (
    KeyValue,
    Refused,
    Resource,
    each,
    from_json_text,
    from_protobuf_bytes,
    id_in_json,
    json_attributes,
    protobuf_attributes,
    taken,
    time_in_json,
)


class SpanEvent(msgspec.Struct, frozen=True):
    """A moment within a span."""

    name: str
    at_ns: int
    attributes: dict[str, Any]


class Span(msgspec.Struct, frozen=True):
    """One span. Ids are bytes, 16 of the trace and 8 of the span; times are ns since 1970."""

    trace_id: bytes
    span_id: bytes
    parent_id: bytes
    name: str
    start_ns: int
    end_ns: int
    attributes: dict[str, Any]
    events: list[SpanEvent]
    failed: bool
    message: str
    """The status message."""
    service: str | None
    """`service.name` of the resource."""


def from_protobuf(data: bytes, refused: list[Refused] | None = None) -> list[Span]:
    """Read a request in protobuf. Raises BadRequest; spans that cannot be taken are added to `refused`."""
    # Imported on first use: most installations never see protobuf, and it takes 10 MB.
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    request = from_protobuf_bytes(ExportTraceServiceRequest.FromString, data, "trace")
    found = [
        Span(
            span.trace_id,
            span.span_id,
            span.parent_span_id,
            span.name,
            span.start_time_unix_nano,
            span.end_time_unix_nano,
            protobuf_attributes(span.attributes),
            [SpanEvent(e.name, e.time_unix_nano, protobuf_attributes(e.attributes)) for e in span.events],
            span.status.code == 2,
            span.status.message,
            _text(protobuf_attributes(resource_spans.resource.attributes).get("service.name")),
        )
        for resource_spans in request.resource_spans
        for scope_spans in resource_spans.scope_spans
        for span in scope_spans.spans
    ]
    checked = (span if _named(span) else Refused(f"span {n}", _NAMELESS) for n, span in enumerate(found, 1))
    return taken(checked, refused)


_NAMELESS = "a span has a trace id of 16 bytes and an id of 8, neither all zero"


def _named(span: Span) -> bool:
    return bool(span.trace_id.strip(b"\0") and span.span_id.strip(b"\0"))


_Time = int | str | float | None


class _Event(msgspec.Struct, rename="camel"):
    name: str | None = None
    time_unix_nano: _Time = 0
    attributes: list[KeyValue] | None = None


class _Status(msgspec.Struct):
    code: int | str | None = 0
    message: str | None = None


class _Span(msgspec.Struct, rename="camel"):
    trace_id: str | None = None
    span_id: str | None = None
    name: str | None = None
    parent_span_id: str | None = None
    start_time_unix_nano: _Time = 0
    end_time_unix_nano: _Time = 0
    attributes: list[KeyValue] | None = None
    events: list[_Event] | None = None
    status: _Status | None = None


class _ScopeSpans(msgspec.Struct):
    spans: list[msgspec.Raw] | None = None


class _ResourceSpans(msgspec.Struct, rename="camel"):
    resource: Resource | None = None
    scope_spans: list[_ScopeSpans] | None = None


class _Request(msgspec.Struct, rename="camel"):
    resource_spans: list[_ResourceSpans] | None


_decode = msgspec.json.Decoder(_Request).decode
_decode_span = msgspec.json.Decoder(_Span).decode


def from_json(data: bytes, refused: list[Refused] | None = None) -> list[Span]:
    """Read a request in OTLP JSON. Raises BadRequest naming the place; spans that cannot be taken go to `refused`."""
    return from_json_text(lambda text: taken(_json_spans(_decode(text)), refused), data, "trace")


def _json_spans(request: _Request) -> Iterator[Span | Refused]:
    count = 0
    for resource_spans in request.resource_spans or ():
        resource = json_attributes(resource_spans.resource.attributes if resource_spans.resource else None)
        service = _text(resource.get("service.name"))
        for scope_spans in resource_spans.scope_spans or ():
            spans = scope_spans.spans or []
            yield from each(spans, "span", lambda raw: _json_span(raw, service), count)  # noqa: B023
            count += len(spans)


def _json_span(raw: msgspec.Raw, service: str | None) -> Span:
    span = _decode_span(raw)
    status = span.status or _Status()
    found = Span(
        id_in_json(span.trace_id, 16),
        id_in_json(span.span_id, 8),
        id_in_json(span.parent_span_id, 8),
        span.name or "",
        time_in_json(span.start_time_unix_nano),
        time_in_json(span.end_time_unix_nano),
        json_attributes(span.attributes),
        [
            SpanEvent(e.name or "", time_in_json(e.time_unix_nano), json_attributes(e.attributes))
            for e in span.events or ()
        ],
        status.code in (2, "2", "STATUS_CODE_ERROR"),
        status.message or "",
        service,
    )
    if not _named(found):
        raise ValueError(_NAMELESS)
    return found


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
