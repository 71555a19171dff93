"""Values as JSON: conversion of what an app passes, the copy Relay can hold, and equality."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

import msgspec

# Relay's native JSON holds 64-bit integers, finite floats and valid UTF-8. Python's stack of 1000 frames holds our
# recursions, up to three frames a level, with room for those of the app.
MAX_DEPTH = 160
_LEVELS = MAX_DEPTH + 3  # of what is cut at that depth: the last container, its placeholder, the placeholder's text
_MIN_INT, _MAX_INT = -(1 << 63), 1 << 64
_SURROGATES = re.compile("[\ud800-\udfff]+")
_ESCAPES = {code: f"\\u{code:x}" for code in range(0xD800, 0xE000)}
_LEAVES = frozenset({str, int, float, bool, type(None)})


def _is_json(value: Any) -> bool:
    """Whether `value` is made of plain JSON types only (any integer, float and string allowed)."""
    level = [value]
    for _ in range(_LEVELS):
        below: list[Any] = []
        for item in level:
            kind = type(item)
            if kind in _LEAVES:
                continue
            if kind is dict:
                for key in item:
                    if type(key) is not str:
                        return False
                below.extend(item.values())
            elif kind is list:
                below.extend(item)
            else:
                return False
        if not below:
            return True
        level = below
    return False


def to_json(value: Any) -> Any:
    """`value` as JSON types; the same object when it is JSON already.

    Keys become strings; tuples, sets and other mappings become lists and objects; pydantic models are dumped in JSON
    mode through their class; other objects give their public instance attributes, else `str()`. Bytes stay bytes
    (`escape` names them). Nothing is read through dynamic attributes of unknown objects. What is deeper than 160 levels
    becomes `{"$deep": "<type>"}`.
    """
    return value if _is_json(value) else _convert(value, 0, set())


def _convert(value: Any, depth: int, open_ids: set[int]) -> Any:
    if value is None or type(value) in (str, int, bool, float, bytes):
        return value
    if isinstance(value, bool):
        return bool(value)
    for kind in (str, int, float):  # enums and other subclasses carry their plain value
        if isinstance(value, kind):
            return kind.__str__(value) if kind is str else kind(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    if depth > MAX_DEPTH or id(value) in open_ids:
        return {"$deep": type(value).__name__}
    open_ids.add(id(value))
    try:
        return _convert_container(value, depth, open_ids)
    finally:
        open_ids.discard(id(value))


def _convert_container(value: Any, depth: int, open_ids: set[int]) -> Any:
    if isinstance(value, Mapping):
        return {_key(k): _convert(v, depth + 1, open_ids) for k, v in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_convert(v, depth + 1, open_ids) for v in value]
    dump = getattr(type(value), "model_dump", None)
    if callable(dump):
        return _convert(_dumped(value, dump), depth + 1, open_ids)
    try:
        attributes = object.__getattribute__(value, "__dict__")
    except AttributeError:
        attributes = None
    if isinstance(attributes, dict) and attributes:
        return {_key(k): _convert(v, depth + 1, open_ids) for k, v in attributes.items() if not _key(k).startswith("_")}
    return _text(value)


def _dumped(value: Any, dump: Any) -> Any:
    try:
        return dump(value, mode="json", warnings=False)
    except Exception:  # a model's own serializers may raise anything, and older ones take no arguments
        try:
            return dump(value)
        except Exception:  # then its text is what can be recorded of it
            return _text(value)


def _key(key: Any) -> str:
    if type(key) is str:
        return key
    return str.__str__(key) if isinstance(key, str) else _text(key)


def _text(value: Any) -> str:
    try:
        return str(value)
    except Exception:  # the app's own __str__
        return f"<{type(value).__name__}>"


def pointer(path: str, key: str | int) -> str:
    """The JSON Pointer (RFC 6901) of member `key` of the value at `path`."""
    return f"{path}/{key}" if isinstance(key, int) else f"{path}/{key.replace('~', '~0').replace('/', '~1')}"


def holds(value: Any) -> bool:
    """Whether Relay can hold `value` as it is."""
    level = [value]
    for _ in range(_LEVELS):
        below: list[Any] = []
        for item in level:
            kind = type(item)
            if kind is str:
                if not item.isascii() and not _is_utf8(item):
                    return False
            elif kind is dict:
                for key in item:
                    if type(key) is not str or not (key.isascii() or _is_utf8(key)):
                        return False
                below.extend(item.values())
            elif kind is list:
                below.extend(item)
            elif kind is int:
                if not _MIN_INT <= item < _MAX_INT:
                    return False
            elif kind is float:
                if not math.isfinite(item):
                    return False
            elif item is not None and kind is not bool:
                return False
        if not below:
            return True
        level = below
    return False


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def escape(value: Any) -> tuple[Any, list[str]]:
    """`value` as Relay can hold it, and the JSON pointers of what stands for something else.

    Integers beyond 64 bits, non-finite floats and bytes become `{"$int": …}`, `{"$float": …}`, `{"$bytes": hex}`; lone
    surrogates in strings and keys become the six characters `\\udXXX`; deeper than 160 levels, `{"$deep": type}`. When
    nothing has to be escaped the value itself is returned, not a copy.
    """
    if holds(value):
        return value, []
    escaped: list[str] = []
    return _escape(to_json(value), "", 0, escaped), escaped


def _escape(value: Any, path: str, depth: int, escaped: list[str]) -> Any:
    kind = type(value)
    if value is None or kind is bool:
        return value
    if kind is str:
        if value.isascii() or _is_utf8(value):
            return value
        escaped.append(path)
        return visible(value)
    if kind is int:
        if _MIN_INT <= value < _MAX_INT:
            return value
        escaped.append(path)
        return {"$int": _digits(value)}
    if kind is float:
        if math.isfinite(value):
            return value
        escaped.append(path)
        return {"$float": repr(value)}
    if kind is bytes:
        escaped.append(path)
        return {"$bytes": value.hex()}
    if depth > MAX_DEPTH:
        escaped.append(path)
        return {"$deep": kind.__name__}
    if kind is list:
        return [_escape(v, f"{path}/{i}", depth + 1, escaped) for i, v in enumerate(value)]
    out: dict[str, Any] = {}
    for key, member in value.items():
        shown = visible(key)
        below = pointer(path, shown)
        if shown != key:
            escaped.append(below)
        out[shown] = _escape(member, below, depth + 1, escaped)
    return out


def visible(text: str) -> str:
    """`text` with each lone surrogate written as `\\udXXX`."""
    if text.isascii() or _is_utf8(text):
        return text
    return _SURROGATES.sub(lambda found: found[0].translate(_ESCAPES), text)  # ten times as fast as backslashreplace


def _digits(value: int) -> str:
    # Python refuses decimal text of integers past 4300 digits by default.
    try:
        return str(value)
    except ValueError:
        return hex(value)


def canonical(value: Any) -> str | None:
    """The canonical JSON text of `value` (sorted keys, compact), None when it is not serialisable."""
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return None


def json_equal(a: Any, b: Any) -> bool:
    """Whether two values have the same canonical JSON; what is not serialisable is unequal to everything."""
    left = canonical(a)
    return left is not None and left == canonical(b)


def frozen(value: Any) -> bytes:
    """Canonical bytes of a value that Relay can hold: equal bytes, equal JSON. Fast."""
    return msgspec.json.encode(value, order="deterministic")


def same(a: Any, b: Any) -> bool:
    """Strict JSON equality of plain values without making text: 1, 1.0 and true differ, key order does not count."""
    if a is b:
        return True
    kind = type(a)
    if kind is not type(b):
        return False
    if kind is dict:
        if len(a) != len(b):
            return False
        return all(key in b and same(value, b[key]) for key, value in a.items())
    if kind is list:
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return bool(a == b)


def overlay(original: Any, baseline: Any, got: Any) -> Any:
    """`got`, with objects, key order and numbers of `original` wherever `got` still says what `baseline` said.

    `baseline` is `original` as the other side saw it (perhaps escaped, redacted or trimmed); `got` is what the other
    side made of it. Members that only `original` has survive; unchanged parts are the original's own objects.
    """
    if same(got, baseline):
        return original
    if isinstance(got, dict) and isinstance(baseline, dict) and isinstance(original, dict):
        kept = {
            k: overlay(v, baseline[k], got[k]) if k in baseline and k in got else v
            for k, v in original.items()
            if k in got or k not in baseline
        }
        for key, value in got.items():
            if key not in original and not (key in baseline and same(baseline[key], value)):
                kept[key] = value
        return kept
    lists = isinstance(got, list) and isinstance(baseline, list) and isinstance(original, list)
    if lists and len(original) == len(baseline):
        return _overlay_list(original, baseline, got)
    return got


def _overlay_list(original: list[Any], baseline: list[Any], got: list[Any]) -> list[Any]:
    """Elements that moved keep their originals; in a list of the same length a changed one is laid over its own."""
    shorter = min(len(got), len(baseline))
    head = 0
    while head < shorter and same(got[head], baseline[head]):
        head += 1
    tail = 0
    while tail < shorter - head and same(got[-1 - tail], baseline[-1 - tail]):
        tail += 1
    ours, theirs = original[head : len(original) - tail], baseline[head : len(baseline) - tail]
    known: dict[str | None, list[Any]] = {}
    for o, b in zip(ours, theirs, strict=True):
        known.setdefault(canonical(b), []).append(o)
    middle = []
    for i, item in enumerate(got[head : len(got) - tail]):
        moved = known.get(canonical(item))
        if moved:
            middle.append(moved.pop(0))
        elif len(got) == len(baseline):
            middle.append(overlay(ours[i], theirs[i], item))
        else:
            middle.append(item)
    return [*original[:head], *middle, *original[len(original) - tail :]]
