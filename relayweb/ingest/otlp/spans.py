"""OTLP trace requests as plain spans, from protobuf and from JSON.

Follows opentelemetry-proto 1.x, `ExportTraceServiceRequest`. In OTLP JSON ids are hex and 64-bit numbers are text.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from relayweb.recording.atof import shallow


class BadRequest(ValueError):
    """Bytes that are no trace request; the text says what is wrong."""


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
    from google.protobuf.message import DecodeError
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    try:
        request = ExportTraceServiceRequest.FromString(data)
    except DecodeError as error:
        raise BadRequest(f"not an OTLP trace request in protobuf: {error}") from None
    return [
        Span(
            span.trace_id,
            span.span_id,
            span.parent_span_id,
            span.name,
            span.start_time_unix_nano,
            span.end_time_unix_nano,
            _protobuf_attributes(span.attributes),
            [SpanEvent(e.name, e.time_unix_nano, _protobuf_attributes(e.attributes)) for e in span.events],
            span.status.code == 2,
            span.status.message,
            _text(_protobuf_attributes(resource_spans.resource.attributes).get("service.name")),
        )
        for resource_spans in request.resource_spans
        for scope_spans in resource_spans.scope_spans
        for span in scope_spans.spans
    ]


def _protobuf_attributes(attributes: Any) -> dict[str, Any]:
    return {pair.key: _protobuf_value(pair.value) for pair in attributes}


def _protobuf_value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind is None:
        return None
    found = getattr(value, kind)
    if kind == "array_value":
        return [_protobuf_value(item) for item in found.values]
    if kind == "kvlist_value":
        return _protobuf_attributes(found.values)
    return found.hex() if kind == "bytes_value" else found


class _KeyValue(msgspec.Struct):
    key: str
    value: dict[str, Any] | None = None


class _Event(msgspec.Struct, rename="camel"):
    name: str = ""
    time_unix_nano: int | str = 0
    attributes: list[_KeyValue] = []


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
    attributes: list[_KeyValue] = []
    events: list[_Event] = []
    status: _Status | None = None


class _Resource(msgspec.Struct):
    attributes: list[_KeyValue] = []


class _ScopeSpans(msgspec.Struct):
    spans: list[_Span] = []


class _ResourceSpans(msgspec.Struct, rename="camel"):
    resource: _Resource | None = None
    scope_spans: list[_ScopeSpans] = []


class _Request(msgspec.Struct, rename="camel"):
    resource_spans: list[_ResourceSpans]


_decode = msgspec.json.Decoder(_Request).decode


def from_json(data: bytes) -> list[Span]:
    """Read a request in OTLP JSON. Raises BadRequest naming the place."""
    try:
        try:
            return list(_json_spans(_decode(data)))
        except RecursionError:  # of the attribute that is too deep only the depth is left out
            return list(_json_spans(_decode(shallow(data))))
    except (msgspec.DecodeError, ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise BadRequest(f"not an OTLP trace request in JSON: {error}") from None


def _json_spans(request: _Request) -> Iterator[Span]:
    for resource_spans in request.resource_spans:
        resource = _json_attributes(resource_spans.resource.attributes if resource_spans.resource else [])
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
                    _json_attributes(span.attributes),
                    [SpanEvent(e.name, int(e.time_unix_nano), _json_attributes(e.attributes)) for e in span.events],
                    status.code in (2, "STATUS_CODE_ERROR"),
                    status.message,
                    _text(resource.get("service.name")),
                )


def _json_attributes(pairs: list[_KeyValue]) -> dict[str, Any]:
    return {pair.key: _json_value(pair.value or {}) for pair in pairs}


def _json_value(value: Any) -> Any:
    if isinstance(value, str):  # in the place of what was too deep
        return value
    for kind, found in value.items():
        if kind == "intValue":
            return int(found)
        if kind == "doubleValue":
            return float(found)  # which may be text: "Infinity"
        if kind in ("arrayValue", "kvlistValue"):
            listed: Any = found if isinstance(found, str) else found.get("values") or []
            left_out = listed if isinstance(listed, str) else next((i for i in listed if isinstance(i, str)), None)
            if left_out is not None:
                return left_out
            if kind == "arrayValue":
                return [_json_value(item) for item in listed]
            return {pair["key"]: _json_value(pair.get("value") or {}) for pair in listed}
        return found
    return None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
