"""A rewritten request as text: what nobody changed keeps the client's own characters."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from adapters.json_values import same

_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_array = msgspec.json.Decoder(list[msgspec.Raw]).decode


def dump(value: Any) -> bytes:
    """JSON as clients write it: order kept, UTF-8; what UTF-8 cannot hold stays escaped."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode()


def splice(text: bytes, before: Any, after: Any) -> bytes:
    """The JSON of `after`, with the slices of `text`, which is read as `before`, for all parts that are the same.

    So the digits of numbers and the escapes and repeated keys of what nobody changed stay (1.10, 1E0). Where text is
    no UTF-8 JSON, all is written anew.
    """
    try:
        return _spliced(text, before, after)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return dump(after)


def _spliced(text: bytes, before: Any, after: Any) -> bytes:
    if same(before, after):
        return text
    if isinstance(before, dict) and isinstance(after, dict):
        known = _object(text)
        members = (
            dump(name) + b":" + (_spliced(bytes(known[name]), before[name], item) if name in before else dump(item))
            for name, item in after.items()
        )
        return b"{" + b",".join(members) + b"}"
    if isinstance(before, list) and isinstance(after, list):
        slices = _array(text)
        if len(before) == len(after):
            items = [_spliced(bytes(s), b, a) for s, b, a in zip(slices, before, after, strict=True)]
        else:
            # Elements that moved are the objects they were.
            kept = {id(b): bytes(s) for s, b in zip(slices, before, strict=True) if isinstance(b, (dict, list))}
            items = [kept.get(id(item)) or dump(item) for item in after]
        return b"[" + b",".join(items) + b"]"
    return dump(after)
