"""OTLP trace requests as plain spans, from protobuf and from JSON.

Follows opentelemetry-proto 1.x, `ExportTraceServiceRequest`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from relayweb.ingest.otlp.values import (
    KeyValue,
    Resource,
    from_json_text,
    from_protobuf_bytes,
    json_attributes,
    protobuf_attributes,
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


def from_protobuf(data: bytes) -> list[Span]:
    """Read a request in protobuf. Raises BadRequest."""
    # Imported on first use: most installations never see protobuf, and it takes 10 MB.
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    request = from_protobuf_bytes(ExportTraceServiceRequest.FromString, data, "trace")
    return [
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


class _Event(msgspec.Struct, rename="camel"):
    name: str = ""
    time_unix_nano: int | str = 0
    attributes: list[KeyValue] = []


class _Status(msgspec.Struct):
    code: int | str = 0
    message: str = ""


class _Span(msgspec.Struct, rename="camel"):
    trace_id: str
    span_id: str
    name: str = ""
    parent_span_id: str | None = None
    start_time_unix_nano: int | str = 0
    end_time_unix_nano: int | str = 0
    attributes: list[KeyValue] = []
    events: list[_Event] = []
    status: _Status | None = None


class _ScopeSpans(msgspec.Struct):
    spans: list[_Span] = []


class _ResourceSpans(msgspec.Struct, rename="camel"):
    resource: Resource | None = None
    scope_spans: list[_ScopeSpans] = []


class _Request(msgspec.Struct, rename="camel"):
    resource_spans: list[_ResourceSpans]


_decode = msgspec.json.Decoder(_Request).decode


def from_json(data: bytes) -> list[Span]:
    """Read a request in OTLP JSON. Raises BadRequest naming the place."""
    return from_json_text(lambda text: list(_json_spans(_decode(text))), data, "trace")


def _json_spans(request: _Request) -> Iterator[Span]:
    for resource_spans in request.resource_spans:
        resource = json_attributes(resource_spans.resource.attributes if resource_spans.resource else [])
        for scope_spans in resource_spans.scope_spans:
            for span in scope_spans.spans:
                status = span.status or _Status()
                yield Span(
                    bytes.fromhex(span.trace_id),
                    bytes.fromhex(span.span_id),
                    bytes.fromhex(span.parent_span_id or ""),
                    span.name,
                    int(span.start_time_unix_nano),
                    int(span.end_time_unix_nano),
                    json_attributes(span.attributes),
                    [SpanEvent(e.name, int(e.time_unix_nano), json_attributes(e.attributes)) for e in span.events],
                    status.code in (2, "STATUS_CODE_ERROR"),
                    status.message,
                    _text(resource.get("service.name")),
                )


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
