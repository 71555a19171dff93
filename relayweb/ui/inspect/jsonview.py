"""Recorded JSON as lines of coloured text, bounded in length, with the way to what was left out."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe

from relayweb.ui import formats

MAX_LINES = 1_500
MAX_TEXT = 2_000
"""Characters of one string before it is cut."""
INLINE = 76
"""Characters up to which an array or object stays on one line."""
MAX_DEPTH = 60
"""Deeper values are shown as text, to be opened by themselves."""

Token = tuple[str, str]
"""(CSS class without `j-`, text): k key, s string, n number, l literal, p punctuation, x plain."""


@dataclass(frozen=True)
class Line:
    """One line of JSON: depth in levels, coloured tokens, and what it stands for in a difference."""

    depth: int
    tokens: tuple[Token, ...]
    mark: str = ""
    """"", "add", "del" or "fold"."""
    by: int | None = None
    """The stage that is to blame for it."""
    load: str | None = None
    """JSON pointer of a value that was cut here."""
    first: bool = False
    """The first line of a change."""


@dataclass
class Writer:
    """Collects lines of one document."""

    lines: list[Line] = field(default_factory=list)
    limit: int = MAX_LINES
    skipped: int = 0

    def put(self, line: Line) -> None:
        if len(self.lines) < self.limit:
            self.lines.append(line)
        else:
            self.skipped += 1


class Digits(str):
    """A number as it was sent, because Python's own would say it in other digits."""


def load(text: str | bytes) -> Any:
    """JSON whose numbers keep their digits.

    Raises:
        ValueError: it is no JSON.
    """
    return json.loads(text, parse_float=_float, object_hook=_unescaped)


def read(text: bytes, *, literal: bool = False) -> Any:
    """As `load`, but None for what cannot be read. `literal` leaves `{"$int": "…"}` as it is."""
    try:
        return json.loads(text, parse_float=_float) if literal else load(text)
    except (ValueError, RecursionError):
        return None


def _float(text: str) -> float | Digits:
    number = float(text)
    return number if math.isfinite(number) and Decimal(repr(number)) == Decimal(text) else Digits(text)


def _unescaped(members: dict[str, Any]) -> Any:
    """A number of more than 64 bits, which Relay cannot carry, is recorded as `{"$int": "…"}`."""
    if len(members) == 1 and isinstance(digits := members.get("$int"), str) and _WHOLE.fullmatch(digits):
        return Digits(digits)
    return members


_WHOLE = re.compile(r"-?[0-9]+")


def _bare(value: Any) -> Any:
    """With `Digits` marked, for `dump`."""
    if isinstance(value, Digits):
        return f"\ue000{value}\ue000"
    if isinstance(value, dict):
        return {k: _bare(v) for k, v in value.items()}
    return [_bare(v) for v in value] if isinstance(value, list) else value


_MARKED = re.compile('"(?:\ue000|\\\\ue000)(-?[0-9][0-9.eE+-]*)(?:\ue000|\\\\ue000)"')


def dump(value: Any, indent: int | None = None) -> str:
    """JSON text of a recorded value; text that is no Unicode stays escaped, huge numbers keep their digits."""
    try:
        value = _bare(value)
        text = _MARKED.sub(r"\1", json.dumps(value, ensure_ascii=False, indent=indent, default=str))
        text.encode()
    except UnicodeEncodeError:
        return _MARKED.sub(r"\1", json.dumps(value, ensure_ascii=True, indent=indent, default=str))
    except (ValueError, RecursionError) as error:
        return f"(cannot be shown as JSON: {error})"
    return text


def size_of(value: Any) -> int:
    return len(dump(value).encode("utf-8", "replace"))


def scalar(value: Any, limit: int = MAX_TEXT) -> Token:
    if isinstance(value, Digits):
        return ("n", value if len(value) <= limit else value[:limit] + "…")
    if isinstance(value, str):
        return ("s", dump(value if len(value) <= limit else value[:limit] + "…"))
    if isinstance(value, bool) or value is None:
        return ("l", json.dumps(value))
    return ("n", dump(value))


def is_container(value: Any) -> bool:
    return isinstance(value, dict | list) and bool(value)


def inline(value: Any, room: int = INLINE) -> list[Token] | None:
    """A small value on one line, or None."""
    if not isinstance(value, dict | list):
        return [scalar(value)] if not isinstance(value, str) or len(value) <= MAX_TEXT else None
    if not value:
        return [("p", "{}" if isinstance(value, dict) else "[]")]
    if len(value) > 12 or _deep(value, 4) or size_of(value) > room:
        return None
    return _inline_tokens(value)


def _deep(value: Any, left: int) -> bool:
    if not isinstance(value, dict | list):
        return False
    if left == 0 or len(value) > 12:
        return True
    return any(_deep(v, left - 1) for v in (value.values() if isinstance(value, dict) else value))


def _inline_tokens(value: Any) -> list[Token]:
    if not is_container(value):
        return [("p", "{}" if value == {} else "[]")] if isinstance(value, dict | list) else [scalar(value)]
    inside: list[Token] = []
    items: Iterable[tuple[str | None, Any]]
    items = value.items() if isinstance(value, dict) else ((None, v) for v in value)
    for key, item in items:
        if inside:
            inside.append(("p", ", "))
        if key is not None:
            inside += [("k", dump(str(key))), ("p", ": ")]
        inside += _inline_tokens(item)
    left, right = ("{", "}") if isinstance(value, dict) else ("[", "]")
    return [("p", left), *inside, ("p", right)]


def escape_pointer(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


def resolve(document: Any, pointer: str) -> Any:
    """The value a JSON pointer (RFC 6901) names.

    Raises:
        LookupError: it names nothing.
    """
    if pointer == "":
        return document
    for part in pointer.removeprefix("/").split("/"):
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(document, list):
            try:
                document = document[int(key)]
            except ValueError:
                raise LookupError(pointer) from None
        elif isinstance(document, dict):
            document = document[key]
        else:
            raise LookupError(pointer)
    return document


def write(
    out: Writer,
    value: Any,
    *,
    depth: int = 0,
    key: str | None = None,
    comma: bool = False,
    pointer: str = "",
    **marks: Any,
) -> None:
    """Write a value as indented lines."""
    head: list[Token] = [("k", dump(key)), ("p", ": ")] if key is not None else []
    tail: list[Token] = [("p", ",")] if comma else []
    if isinstance(value, str) and len(value) > MAX_TEXT:
        note = ("f", f" {formats.size(len(value.encode('utf-8', 'replace')))}")
        out.put(Line(depth, (*head, scalar(value), note, *tail), load=pointer, **marks))
        return
    small = inline(value)
    if small is not None:
        out.put(Line(depth, (*head, *small, *tail), **marks))
        return
    if depth >= MAX_DEPTH or not is_container(value):
        out.put(
            Line(depth, (*head, ("f", f"nested deeper: {formats.size(size_of(value))}"), *tail), load=pointer, **marks)
        )
        return
    left, right = ("{", "}") if isinstance(value, dict) else ("[", "]")
    out.put(Line(depth, (*head, ("p", left)), **marks))
    if "first" in marks:
        marks = {**marks, "first": False}
    items: list[tuple[str | None, str, Any]]
    if isinstance(value, dict):
        items = [(str(k), escape_pointer(str(k)), v) for k, v in value.items()]
    else:
        items = [(None, str(n), v) for n, v in enumerate(value)]
    for n, (name, step, item) in enumerate(items):
        if len(out.lines) >= out.limit:
            out.skipped += len(items) - n
            break
        write(out, item, depth=depth + 1, key=name, comma=n + 1 < len(items), pointer=f"{pointer}/{step}", **marks)
    out.put(Line(depth, (("p", right), *tail), **marks))


def lines_of(value: Any, limit: int = MAX_LINES) -> tuple[list[Line], int]:
    """A whole document as lines, and how many parts were left out."""
    out = Writer(limit=limit)
    write(out, value)
    return out.lines, out.skipped


_SIGN = {"add": "+", "del": "−", "fold": "⋯", "": " "}


def to_html(
    lines: Iterable[Line], *, load: Callable[[str], str] | None = None, who: Callable[[int], SafeString] | None = None
) -> SafeString:
    """Lines as HTML. `load` makes the address of a cut value, `who` the link to the stage that is to blame."""
    return mark_safe("".join(_line_html(line, load, who) for line in lines))  # noqa: S308


def _line_html(line: Line, load: Callable[[str], str] | None, who: Callable[[int], SafeString] | None) -> str:
    classes = f"l {line.mark}".strip()
    if who:
        first = f'<span class="who">{who(line.by) if line.by is not None and line.first else ""}</span>'
        if line.by is not None:
            classes += " b first" if line.first else " b"
    else:
        first = f"<i>{_SIGN[line.mark]}</i>"
    body = "".join(_token_html(token) for token in line.tokens)
    if line.load is not None and load:
        body += f' <button type="button" class="link more" data-load="{escape(load(line.load))}">Show all</button>'
        return f'<div class="{classes}">{first}<span class="in{min(line.depth, 9)}" data-slot>{body}</span></div>'
    return f'<div class="{classes}">{first}<span class="in{min(line.depth, 9)}">{body}</span></div>'


def _token_html(token: Token) -> str:
    kind, text = token
    if kind == "x":
        return escape(text)
    if kind == "f":
        return f'<span class="faint">{escape(text)}</span>'
    if kind in ("ins", "del"):
        return f"<{kind}>{escape(text)}</{kind}>"
    return f'<span class="j-{kind}">{escape(text)}</span>'


def marked(lines: Iterable[Line], **marks: Any) -> Iterator[Line]:
    return (replace(line, **marks) for line in lines)
