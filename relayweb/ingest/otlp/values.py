"""Attributes and other values of OTLP requests, in protobuf and in JSON, as plain Python values.

In OTLP JSON ids are hex and 64-bit numbers are text.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from relayweb.recording.events.atof import shallow

T = TypeVar("T")


class BadRequest(ValueError):
    """Bytes that are no request of this kind; the text says what is wrong."""


def from_protobuf_bytes(parse: Callable[[bytes], Any], data: bytes, what: str) -> Any:
    """A protobuf message; what is no UTF-8 in its texts is replaced. Raises BadRequest."""
    from google.protobuf.message import DecodeError

    from relayweb.ingest.otlp import mending

    try:
        try:
            return parse(data)
        except DecodeError:
            return parse(mending.valid_texts(parse, data))
    except DecodeError as error:
        raise BadRequest(f"not an OTLP {what} request in protobuf: {error}") from None


def from_json_text(read: Callable[[bytes], list[T]], data: bytes, what: str) -> list[T]:
    """What `read` makes of OTLP JSON; of a value that is too deep only the depth is left out, and what is no UTF-8 is
    replaced. Raises BadRequest."""
    try:
        try:
            return read(data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            if (mended := data.decode(errors="replace").encode()) == data:
                raise
            return from_json_text(read, mended, what)
        except RecursionError:
            return read(shallow(data))
    except (msgspec.DecodeError, ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise BadRequest(f"not an OTLP {what} request in JSON: {error}") from None


def protobuf_attributes(attributes: Any) -> dict[str, Any]:
    return {pair.key: protobuf_value(pair.value) for pair in attributes}


def protobuf_value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind is None:
        return None
    found = getattr(value, kind)
    if kind == "array_value":
        return [protobuf_value(item) for item in found.values]
    if kind == "kvlist_value":
        return protobuf_attributes(found.values)
    return found.hex() if kind == "bytes_value" else found


class KeyValue(msgspec.Struct):
    key: str
    value: dict[str, Any] | None = None


class Resource(msgspec.Struct):
    attributes: list[KeyValue] = []


def json_attributes(pairs: list[KeyValue]) -> dict[str, Any]:
    return {pair.key: json_value(pair.value or {}) for pair in pairs}


def _int64(number: int) -> int:
    if not -(2**63) <= number < 2**64:
        raise ValueError(f"an intValue of {number.bit_length()} bits; OTLP has 64")
    return number


def json_value(value: Any) -> Any:
    if isinstance(value, str):  # in the place of what was too deep
        return value
    for kind, found in value.items():
        if kind == "intValue":
            return _int64(int(found))
        if kind == "doubleValue":
            return float(found)  # which may be text: "Infinity"
        if kind in ("arrayValue", "kvlistValue"):
            listed: Any = found if isinstance(found, str) else found.get("values") or []
            left_out = listed if isinstance(listed, str) else next((i for i in listed if isinstance(i, str)), None)
            if left_out is not None:
                return left_out
            if kind == "arrayValue":
                return [json_value(item) for item in listed]
            return {pair["key"]: json_value(pair.get("value") or {}) for pair in listed}
        return found
    return None
