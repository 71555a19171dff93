"""JSON text as it leaves us: ASCII only, so that nothing between here and a reader can misread it."""

from __future__ import annotations

import codecs
import json
from typing import Any

import msgspec


def _escape(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    out = []
    for character in error.object[error.start : error.end]:
        code = ord(character)
        if code > 0xFFFF:
            code -= 0x10000
            out.append(f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}")
        else:
            out.append(f"\\u{code:04x}")
    return "".join(out), error.end


codecs.register_error("relayweb.json", _escape)


def ascii_json(text: bytes) -> bytes:
    """JSON text with every character beyond ASCII written as `\\uXXXX`: the same value in other bytes.

    Such characters stand only inside strings, so the text need not be parsed.
    """
    return text if text.isascii() else text.decode("utf-8", "replace").encode("ascii", "relayweb.json")


def dumps(value: Any) -> bytes:
    """Any of our own dicts as ASCII JSON text; `msgspec.Raw` members are taken as they are."""
    try:
        return ascii_json(msgspec.json.encode(value))
    except UnicodeEncodeError:  # half a character: JSON can hold it, UTF-8 cannot
        return ascii_json(_escaped(value))


def _escaped(value: Any) -> bytes:
    if isinstance(value, str):
        return json.dumps(value).encode()
    parts = []  # loops, because a comprehension would be one more frame at each of up to 500 levels
    if isinstance(value, dict):
        for key, member in value.items():
            parts.append(json.dumps(str(key)).encode() + b":" + _escaped(member))
        return b"{" + b",".join(parts) + b"}"
    if isinstance(value, list | tuple):
        for member in value:
            parts.append(_escaped(member))
        return b"[" + b",".join(parts) + b"]"
    return msgspec.json.encode(value)
