"""Differences between two JSON documents by structure, and whose change each part of a document is.

Own code instead of a library in the browser: bodies of many megabytes stay on the server, and blame needs the same
alignment of lists as the difference.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from relayweb.ui.inspect.jsonview import Line, Token, Writer, dump, inline, is_container, scalar, write

MAX_WORDS = 4_000
"""Characters of a text up to which the changed middle is marked inside it."""
NEW_LINES = 40
"""Lines of an added or removed value before it is cut."""
ALIGNABLE = 3_000
"""Items of the unequal middles of two lists, multiplied, from which they are compared by position only."""

Pair = tuple[int | None, int | None]


def canonical(value: Any) -> str:
    """Text that is equal exactly for values that are equal as JSON: 1 is not true, key order does not matter."""
    try:
        return json.dumps(value, sort_keys=True, ensure_ascii=True, default=str)
    except (ValueError, RecursionError, TypeError):
        return repr(value)


def align(before: Sequence[Any], after: Sequence[Any]) -> list[Pair]:
    """Which item of one list became which of the other; None where one has no partner."""
    old, new = [canonical(v) for v in before], [canonical(v) for v in after]
    head = 0
    while head < min(len(old), len(new)) and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < min(len(old), len(new)) - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    pairs: list[Pair] = [(k, k) for k in range(head)]
    pairs += _middle(old[head : len(old) - tail], new[head : len(new) - tail], head)
    pairs += [(len(old) - tail + k, len(new) - tail + k) for k in range(tail)]
    return pairs


def _middle(old: list[str], new: list[str], offset: int) -> Iterator[Pair]:
    if len(old) * len(new) > ALIGNABLE * 100:
        blocks: Sequence[tuple[str, int, int, int, int]] = [("replace", 0, len(old), 0, len(new))]
    else:
        blocks = difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    for _, i1, i2, j1, j2 in blocks:
        # Equal numbers are the same things changed; else what is gone is gone and what is new is new.
        if i2 - i1 == j2 - j1:
            yield from ((offset + i1 + k, offset + j1 + k) for k in range(i2 - i1))
        else:
            yield from ((offset + i, None) for i in range(i1, i2))
            yield from ((None, offset + j) for j in range(j1, j2))


@dataclass
class Difference:
    """Lines that show it, and how many changes they are."""

    lines: list[Line]
    changes: int
    skipped: int


def difference(before: Any, after: Any) -> Difference:
    """What differs between two documents, with what is equal folded away."""
    teller = _Teller()
    if canonical(before) == canonical(after):
        teller.fold(0, "No difference: both are equal as JSON.")
    else:
        teller.compare(before, after, 0, None, False)
    return Difference(teller.out.lines, teller.changes, teller.out.skipped)


class _Teller:
    def __init__(self) -> None:
        self.out = Writer()
        self.changes = 0

    def fold(self, depth: int, text: str) -> None:
        self.out.put(Line(depth, (("x", text),), mark="fold"))

    def compare(self, a: Any, b: Any, depth: int, key: str | None, comma: bool) -> None:
        """Both are known to differ."""
        head: list[Token] = [("k", dump(key)), ("p", ": ")] if key is not None else []
        tail: list[Token] = [("p", ",")] if comma else []
        if isinstance(a, dict) and isinstance(b, dict):
            self.out.put(Line(depth, (*head, ("p", "{"))))
            self._members(a, b, depth + 1)
            self.out.put(Line(depth, (("p", "}"), *tail)))
        elif isinstance(a, list) and isinstance(b, list):
            self.out.put(Line(depth, (*head, ("p", "["))))
            self._items(a, b, depth + 1, key or "items")
            self.out.put(Line(depth, (("p", "]"), *tail)))
        elif isinstance(a, str) and isinstance(b, str) and max(len(a), len(b)) <= MAX_WORDS:
            self.changes += 1
            left, right = _middles(a, b)
            self.out.put(Line(depth, (*head, *left, *tail), mark="del", first=True))
            self.out.put(Line(depth, (*head, *right, *tail), mark="add"))
        else:
            self.changes += 1
            self._whole(a, depth, key, comma, "del", True)
            self._whole(b, depth, key, comma, "add", False)

    def _members(self, a: dict[str, Any], b: dict[str, Any], depth: int) -> None:
        keys = list(b) + [k for k in a if k not in b]
        same: list[str] = []
        for n, key in enumerate(keys):
            comma = n + 1 < len(keys)
            if key in a and key in b and canonical(a[key]) == canonical(b[key]):
                same.append(str(key))
                continue
            self._same(same, depth)
            if key not in b:
                self._one(a[key], depth, str(key), comma, "del")
            elif key not in a:
                self._one(b[key], depth, str(key), comma, "add")
            else:
                self.compare(a[key], b[key], depth, str(key), comma)
        self._same(same, depth)

    def _same(self, names: list[str], depth: int) -> None:
        if names:
            shown = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
            self.fold(depth, f"{shown} unchanged")
            names.clear()

    def _items(self, a: list[Any], b: list[Any], depth: int, name: str) -> None:
        equal = 0
        for i, j in align(a, b):
            if i is not None and j is not None and canonical(a[i]) == canonical(b[j]):
                equal += 1
                continue
            self._equal_items(equal, depth, name)
            equal = 0
            if j is None and i is not None:
                self._one(a[i], depth, None, True, "del")
            elif i is None and j is not None:
                self._one(b[j], depth, None, j + 1 < len(b), "add")
            elif i is not None and j is not None:
                self.compare(a[i], b[j], depth, None, j + 1 < len(b))
        self._equal_items(equal, depth, name)

    def _equal_items(self, count: int, depth: int, name: str) -> None:
        if count:
            self.fold(depth, f"{count} {_counted(name, count)} unchanged")

    def _one(self, value: Any, depth: int, key: str | None, comma: bool, mark: str) -> None:
        self.changes += 1
        self._whole(value, depth, key, comma, mark, True)

    def _whole(self, value: Any, depth: int, key: str | None, comma: bool, mark: str, first: bool) -> None:
        part = Writer(limit=NEW_LINES)
        write(part, value, depth=depth, key=key, comma=comma, mark=mark)
        for n, line in enumerate(part.lines):
            self.out.put(Line(line.depth, line.tokens, mark=mark, first=first and n == 0))
        if part.skipped:
            self.out.put(Line(depth + 1, (("f", f"{part.skipped} more lines"),), mark=mark))


def _counted(name: str, count: int) -> str:
    return name.removesuffix("s") if count == 1 and name.endswith("s") and not name.endswith("ss") else name


def _middles(a: str, b: str) -> tuple[list[Token], list[Token]]:
    """Two texts with what they do not share marked."""
    head = 0
    most = min(len(a), len(b))
    while head < most and a[head] == b[head]:
        head += 1
    tail = 0
    while tail < most - head and a[-1 - tail] == b[-1 - tail]:
        tail += 1

    def tokens(text: str, tag: str) -> list[Token]:
        start, middle, end = text[:head], text[head : len(text) - tail], text[len(text) - tail :]
        made: list[Token] = [("s", '"' + dump(start)[1:-1])]
        if middle:
            made.append((tag, dump(middle)[1:-1]))
        made.append(("s", dump(end)[1:-1] + '"'))
        return made

    return tokens(a, "del"), tokens(b, "ins")


# ---------------------------------------------------------------- blame


@dataclass
class Blamed:
    """A value of the last document, and the stage that made it what it is (None: it was always so)."""

    value: Any
    by: int | None
    children: dict[str, Blamed] | list[Blamed] | None = None


def _fresh(value: Any, by: int | None) -> Blamed:
    return Blamed(value, by)


def _parts(blamed: Blamed) -> dict[str, Blamed] | list[Blamed]:
    if blamed.children is None:
        if isinstance(blamed.value, dict):
            blamed.children = {str(k): _fresh(v, blamed.by) for k, v in blamed.value.items()}
        else:
            blamed.children = [_fresh(v, blamed.by) for v in blamed.value]
    return blamed.children


def blame(stages: Sequence[Any]) -> Blamed:
    """The last of several documents, each part with the index of the stage that changed it.

    Args:
        stages: the documents in order; stage 0 is the original and is never to blame.
    """
    known = _fresh(stages[0] if stages else None, None)
    for by, after in enumerate(stages[1:], start=1):
        known = _carry(known, after, by)
    return known


def _carry(before: Blamed, after: Any, by: int) -> Blamed:
    if canonical(before.value) == canonical(after):
        return before
    if isinstance(before.value, dict) and isinstance(after, dict):
        parts = _parts(before)
        assert isinstance(parts, dict)
        kept = {k: _carry(parts[str(k)], v, by) if str(k) in parts else _fresh(v, by) for k, v in after.items()}
        return Blamed(after, before.by, {str(k): v for k, v in kept.items()})
    if isinstance(before.value, list) and isinstance(after, list):
        old = _parts(before)
        assert isinstance(old, list)
        pairs = [(i, j) for i, j in align(before.value, after) if j is not None]
        items = [_fresh(after[j], by) if i is None else _carry(old[i], after[j], by) for i, j in pairs]
        return Blamed(after, before.by, items)
    return _fresh(after, by)


def blamed_lines(root: Blamed) -> Difference:
    """The document as lines, what nobody changed folded in long lists."""
    out = Writer()
    _tell(out, root, 0, None, False, None, "")
    changes = sum(1 for line in out.lines if line.first)
    return Difference(out.lines, changes, out.skipped)


def _changed(blamed: Blamed) -> bool:
    if blamed.by is not None:
        return True
    if blamed.children is None:
        return False
    parts = blamed.children.values() if isinstance(blamed.children, dict) else blamed.children
    return any(_changed(part) for part in parts)


def _tell(out: Writer, blamed: Blamed, depth: int, key: str | None, comma: bool, by: int | None, pointer: str) -> None:
    head: list[Token] = [("k", dump(key)), ("p", ": ")] if key is not None else []
    tail: list[Token] = [("p", ",")] if comma else []
    if blamed.by is not None and blamed.by != by:
        write(out, blamed.value, depth=depth, key=key, comma=comma, pointer=pointer, by=blamed.by, first=True)
        return
    if not _changed(blamed):
        _unchanged(out, blamed.value, depth, key, comma, pointer)
        return
    assert blamed.children is not None
    left, right = ("{", "}") if isinstance(blamed.children, dict) else ("[", "]")
    out.put(Line(depth, (*head, ("p", left))))
    if isinstance(blamed.children, dict):
        items = list(blamed.children.items())
        for n, (name, part) in enumerate(items):
            _tell(out, part, depth + 1, name, n + 1 < len(items), by, f"{pointer}/{name}")
    else:
        _tell_items(out, blamed.children, depth + 1, by, pointer, key or "items")
    out.put(Line(depth, (("p", right), *tail)))


def _tell_items(out: Writer, parts: list[Blamed], depth: int, by: int | None, pointer: str, name: str) -> None:
    quiet = 0
    for n, part in enumerate(parts):
        if not _changed(part) and len(parts) > 3:
            quiet += 1
            continue
        if quiet:
            out.put(Line(depth, (("x", f"{quiet} {_counted(name, quiet)}"),), mark="fold"))
        quiet = 0
        _tell(out, part, depth, None, n + 1 < len(parts), by, f"{pointer}/{n}")
    if quiet:
        out.put(Line(depth, (("x", f"{quiet} {_counted(name, quiet)}"),), mark="fold"))


def _unchanged(out: Writer, value: Any, depth: int, key: str | None, comma: bool, pointer: str) -> None:
    head: list[Token] = [("k", dump(key)), ("p", ": ")] if key is not None else []
    tail: list[Token] = [("p", ",")] if comma else []
    small = inline(value)
    if small is not None:
        out.put(Line(depth, (*head, *small, *tail)))
    elif is_container(value) and depth:
        left, right = ("{", "}") if isinstance(value, dict) else ("[", "]")
        said = f" {len(value)} {_counted(key or 'items', len(value)) if isinstance(value, list) else 'members'} "
        out.put(Line(depth, (*head, ("p", left), ("f", said), ("p", right), *tail)))
    elif is_container(value):
        write(out, value, depth=depth, key=key, comma=comma, pointer=pointer)
    else:
        out.put(Line(depth, (*head, scalar(value, 160), *tail), load=pointer))
