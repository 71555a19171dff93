"""JSON as it came over the wire, read within bounds: what is read of a body is gone through many times."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from adapters.actions.base import UNREADABLE, Unread

MOST_VALUES = 100_000
"""Values of a body that are read one by one: each costs about 5 µs in which nobody else has a turn."""

_NAMES = tuple(
    "model stream id object created type role status code index usage error stop_reason temperature max_tokens "  # noqa: SIM905
    "previous_response_id conversation metadata tool_choice instructions system choices delta item message "
    "content_block response content output input messages tools".split()
)
_Known = msgspec.defstruct("_Known", [(name, msgspec.Raw | msgspec.UnsetType, msgspec.UNSET) for name in _NAMES])
_known = msgspec.json.Decoder(_Known).decode


def read(data: bytes) -> Any:
    """The JSON value of `data`, with its order kept, in UTF-8, 16 or 32; None where it is none.

    Bad characters are replaced, as SDKs do. Of an object with more than MOST_VALUES values, Unread: its text, and those
    members that the formats know, as far as they are small enough.
    """
    if _is_heavy(data):
        return _glanced_at(data)
    try:
        return msgspec.json.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        pass
    try:
        return json.loads(as_text(data))
    except (ValueError, RecursionError):
        return None


def as_text(data: bytes) -> str:
    return data.decode(json.detect_encoding(data), "replace")


def is_replaced(data: bytes) -> bool:
    """Whether bytes are no text, so that what is recorded of them has other characters."""
    if data.isascii():
        return False
    try:
        data.decode(json.detect_encoding(data))
    except UnicodeDecodeError:
        return True
    return False


def weight(data: bytes, most: int = MOST_VALUES) -> int:
    """About how many values a JSON text has; not less than `most` + 1 where it is certain that there are more.

    Commas and brackets, those within strings left out: prose and code have many.
    """
    found = _marks(data)
    if found <= most:
        return found
    if b"\\" in data:
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    if (least := data.count(b'"') // 4) > most:  # a member whose value is a string has four
        return least
    return _marks(b"".join(data.split(b'"')[::2]))


def _marks(data: bytes) -> int:
    return data.count(b",") + data.count(b"[") + data.count(b"{")


def _is_heavy(data: bytes) -> bool:
    return len(data) > MOST_VALUES and weight(data) > MOST_VALUES


def _glanced_at(data: bytes) -> Unread | None:
    try:
        known = _known(data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    found, room = Unread(), MOST_VALUES
    for name in _NAMES:
        part = getattr(known, name)
        if part is msgspec.UNSET or (cost := weight(bytes(part), room)) > room:
            continue
        try:
            found[name] = msgspec.json.decode(part)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            continue
        room -= cost
    found[UNREADABLE] = as_text(data)
    return found
