"""JSON Patch (RFC 6902) over JSON Pointer (RFC 6901): apply, and a differ that makes small patches.

Values are never changed in place: `apply` and `diff` share unchanged parts with their input.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from adapters.json_values import canonical, pointer, same
from adapters.marks import PatchOp

MAX_COPIED = 10_000_000  # what the copy operations of one patch may make: characters, and 100 for each value
_LCS_CELLS = 40_000  # above this many comparisons two lists are compared by position


class PatchError(ValueError):
    """A pointer or an operation that does not fit; the message names the path."""


class TestFailed(PatchError):
    """A `test` operation found another value: the patch is not for this document."""

    __test__ = False  # no test case for pytest


def parse_pointer(text: str) -> list[str]:
    """The reference tokens of a JSON Pointer; raises PatchError."""
    if text == "":
        return []
    if not text.startswith("/"):
        raise PatchError(f"{text!r} is no JSON Pointer: it must be empty or start with '/'")
    return [token.replace("~1", "/").replace("~0", "~") for token in text[1:].split("/")]


def _index(token: str, length: int, path: str, *, end: bool = False) -> int:
    if token == "-" and end:
        return length
    if not token.isascii() or not token.isdigit() or (token[0] == "0" and token != "0"):
        raise PatchError(f"{path}: {token!r} is no list index")
    index = int(token)
    if index >= length + end:
        raise PatchError(f"{path}: there is no element {index} (the list has {length})")
    return index


def get(value: Any, path: str) -> Any:
    """The value at `path`; raises PatchError."""
    for token in parse_pointer(path):
        if isinstance(value, list):
            value = value[_index(token, len(value), path)]
        elif isinstance(value, dict):
            if token not in value:
                raise PatchError(f"{path}: there is no member {token!r}")
            value = value[token]
        else:
            raise PatchError(f"{path}: nothing below a {type(value).__name__}")
    return value


def _edit(value: Any, tokens: Sequence[str], path: str, op: str, new: Any) -> Any:
    """A copy of `value` with one change; only the containers on the way are copied."""
    if not tokens:
        if op == "remove":
            raise PatchError("the whole body cannot be removed")
        return new
    token, rest = tokens[0], tokens[1:]
    if isinstance(value, list):
        index = _index(token, len(value), path, end=not rest and op == "add")
        if rest:
            return [*value[:index], _edit(value[index], rest, path, op, new), *value[index + 1 :]]
        return [*value[:index], *([] if op == "remove" else [new]), *value[index + (op != "add") :]]
    if not isinstance(value, dict):
        raise PatchError(f"{path}: nothing below a {type(value).__name__}")
    if token not in value and (rest or op != "add"):
        raise PatchError(f"{path}: there is no member {token!r}")
    if rest:
        return {**value, token: _edit(value[token], rest, path, op, new)}
    if op == "remove":
        return {k: v for k, v in value.items() if k != token}
    return {**value, token: new}


def apply(value: Any, patch: Sequence[PatchOp | dict[str, Any]]) -> Any:
    """`value` with all operations applied, in order; raises PatchError at the first that does not fit."""
    room = MAX_COPIED
    for op in patch:
        kind, path = op["op"], op["path"]
        tokens = parse_pointer(path)
        if kind in ("add", "replace"):
            value = _edit(value, tokens, path, kind, op.get("value"))
        elif kind == "remove":
            value = _edit(value, tokens, path, kind, None)
        elif kind == "test":
            _test(value, path, op.get("value"))
        elif kind in ("copy", "move"):
            source = str(op.get("from"))
            moved = get(value, source)
            if kind == "move":
                if path.startswith(source + "/"):
                    raise PatchError(f"{path}: a value cannot be moved into itself")
                value = _edit(value, parse_pointer(source), source, "remove", None)
            elif (room := room - _weight(moved, room)) <= 0:
                raise PatchError(f"{path}: the copies make the document too large")
            value = _edit(value, tokens, path, "add", moved)
        else:
            raise PatchError(f"{kind!r} is no operation of JSON Patch")
    return value


def _weight(value: Any, enough: int) -> int:
    """The characters in `value` and 100 for each value in it, counted up to `enough`: copies of copies are endless."""
    weight, left = 0, [value]
    while left and weight < enough:
        item = left.pop()
        weight += 100
        if isinstance(item, str):
            weight += len(item)
        elif isinstance(item, dict):
            weight += sum(map(len, item))
            left.extend(item.values())
        elif isinstance(item, list):
            left.extend(item)
    return weight


def _test(value: Any, path: str, wanted: Any) -> None:
    try:
        found = get(value, path)
    except PatchError as error:
        raise TestFailed(str(error)) from None
    if not same(found, wanted):
        raise TestFailed(f"{path}: the test failed, the value is another one")


def diff(before: Any, after: Any) -> list[PatchOp]:
    """A patch that turns `before` into `after`; small for edits of members, inserted, removed and changed elements."""
    patch: list[PatchOp] = []
    _diff(before, after, "", patch)
    return patch


def _diff(a: Any, b: Any, path: str, patch: list[PatchOp]) -> None:
    if a is b:
        return
    if isinstance(a, dict) and isinstance(b, dict):
        for key in a:
            if key not in b:
                patch.append({"op": "remove", "path": pointer(path, key)})
        for key, value in b.items():
            if key in a:
                if a[key] is not value:
                    _diff(a[key], value, pointer(path, key), patch)
            else:
                patch.append({"op": "add", "path": pointer(path, key), "value": value})
    elif isinstance(a, list) and isinstance(b, list):
        _diff_list(a, b, path, patch)
    elif not same(a, b):
        patch.append({"op": "replace", "path": path, "value": b})


def _diff_list(a: list[Any], b: list[Any], path: str, patch: list[PatchOp]) -> None:
    shorter = min(len(a), len(b))
    head = 0
    while head < shorter and (a[head] is b[head] or same(a[head], b[head])):
        head += 1
    tail = 0
    while tail < shorter - head and (a[-1 - tail] is b[-1 - tail] or same(a[-1 - tail], b[-1 - tail])):
        tail += 1
    old, new = a[head : len(a) - tail], b[head : len(b) - tail]
    at = head  # index in the list as patched so far
    for gone, came in _gaps(old, new):
        pairs = min(len(gone), len(came))
        for i in range(pairs):
            _diff(gone[i], came[i], f"{path}/{at + i}", patch)
        for _ in gone[pairs:]:
            patch.append({"op": "remove", "path": f"{path}/{at + pairs}"})
        for i, value in enumerate(came[pairs:], at + pairs):
            patch.append({"op": "add", "path": f"{path}/{i}", "value": value})
        at += len(came) + 1  # one common element lies between two gaps


def _gaps(old: list[Any], new: list[Any]) -> list[tuple[list[Any], list[Any]]]:
    """What differs between two lists, cut at the elements they have in common (longest common subsequence)."""
    if not old or not new or len(old) == len(new) == 1 or len(old) * len(new) > _LCS_CELLS:
        return [(old, new)]
    a, b = [canonical(x) for x in old], [canonical(x) for x in new]
    if None in a or None in b or not set(a) & set(b):
        return [(old, new)]
    length = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i in range(len(a) - 1, -1, -1):
        row, below = length[i], length[i + 1]
        for j in range(len(b) - 1, -1, -1):
            row[j] = below[j + 1] + 1 if a[i] == b[j] else max(below[j], row[j + 1])
    gaps: list[tuple[list[Any], list[Any]]] = [([], [])]
    i = j = 0
    while i < len(a) or j < len(b):
        if i < len(a) and j < len(b) and a[i] == b[j]:
            gaps.append(([], []))
            i, j = i + 1, j + 1
        elif j == len(b) or (i < len(a) and length[i + 1][j] >= length[i][j + 1]):
            gaps[-1][0].append(old[i])
            i += 1
        else:
            gaps[-1][1].append(new[j])
            j += 1
    return gaps
