"""Attributes and other values of OTLP requests, in protobuf and in JSON, as plain Python values.

In OTLP JSON ids are hex and 64-bit numbers are text. Some write ids in base64, as protobuf's own JSON has it, and
numbers as numbers.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import msgspec

from relayweb.recording.events.atof import shallow

T = TypeVar("T")


class BadRequest(ValueError):
    """Bytes that are no request of this kind; the text says what is wrong."""


class Refused(msgspec.Struct):
    """One span or record that cannot be taken, and why."""

    what: str
    error: str


def taken(found: Iterable[T | Refused], refused: list[Refused] | None) -> list[T]:
    """What was not refused; the others are added to `refused`, without which they raise BadRequest."""
    good: list[T] = []
    for one in found:
        if not isinstance(one, Refused):
            good.append(one)
        elif refused is None:
            raise BadRequest(f"{one.what}: {one.error}")
        else:
            refused.append(one)
    return good


WRONG = (msgspec.DecodeError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError)
"""What reading values of the wrong kind raises."""


def each(
    items: Iterable[msgspec.Raw], kind: str, read: Callable[[msgspec.Raw], T], before: int
) -> Iterator[T | Refused]:
    """Each of these read, or why it cannot be; `before` have been counted."""
    for number, item in enumerate(items, before + 1):
        try:
            yield read(item)
        except WRONG as error:
            yield Refused(f"{kind} {number}", str(error))


def id_in_json(told: str | None, size: int) -> bytes:
    """An id of `size` bytes in hex or base64; empty where none is told."""
    if not told:
        return b""
    if len(told) == 4 * -(-size // 3) and told.endswith("="):
        try:
            return base64.b64decode(told, validate=True)
        except binascii.Error:
            pass
    try:
        return bytes.fromhex(told)
    except ValueError:
        raise ValueError(f"{told[:40]!r} is no id in hex") from None


def time_in_json(told: int | str | float | None) -> int:
    return int(told or 0)


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
    data = data.removeprefix(b"\xef\xbb\xbf")
    try:
        data.decode()
    except UnicodeDecodeError:
        data = data.decode(errors="replace").encode()
    try:
        try:
            return read(data)
        except RecursionError:
            return read(shallow(data))
        except msgspec.DecodeError:
            if _SURROGATE.search(data) is None:
                raise
            return read(_without_lone_surrogates(data))
    except (*WRONG, RecursionError) as error:
        raise BadRequest(f"not an OTLP {what} request in JSON: {error}") from None


_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


def _without_lone_surrogates(data: bytes) -> bytes:
    """The same JSON with U+FFFD for halves of characters, for which msgspec refuses the whole."""
    text = json.dumps(json.loads(data), ensure_ascii=False)
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


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
    attributes: list[KeyValue] | None = None


def json_attributes(pairs: list[KeyValue] | None) -> dict[str, Any]:
    return {pair.key: json_value(pair.value or {}) for pair in pairs or ()}


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
        if kind == "bytesValue" and isinstance(found, str):
            return base64.b64decode(found).hex()  # as of protobuf
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
