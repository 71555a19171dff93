"""Regular expressions that people write into rules."""

from __future__ import annotations

import re
from typing import Any

import regex

MAX_LENGTH = 4_000  # compiling takes time with the square of it
MAX_PARTS = 50_000  # some 0.1 s and 20 MB

_PART = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]?|.", re.DOTALL)
_REPEAT = re.compile(r"\s*(?:[*?]|(\+)|\{(\d*)(?:,\d*)?\})[?+]?")


def compiled(text: str, *, ignore_case: bool = False) -> regex.Pattern[str]:
    """The pattern; raises ValueError saying what is wrong with it."""
    if len(text) > MAX_LENGTH:
        raise ValueError(f"has {len(text)} characters; a regular expression may have {MAX_LENGTH}")
    if _parts(text) > MAX_PARTS:
        raise ValueError(
            f"repeats too much: written out it has more than {MAX_PARTS} parts; "
            "give groups that are repeated within repeated groups smaller counts"
        )
    try:
        return regex.compile(text, regex.IGNORECASE if ignore_case else 0)
    except RecursionError:
        raise ValueError("is no regular expression: it is nested too deeply") from None
    except regex.error as error:
        raise ValueError(f"is no regular expression: {error}") from None


def _parts(text: str) -> int:
    """How many parts a pattern has at most when what must be there several times is written out, as the engine does.

    Its time and memory go with that, not with the length: twenty groups within each other, each with a plus, are a
    million. Nothing can interrupt it, so it is told from the text alone, rather too high than too low.
    """
    open_groups = [0]
    at = 0
    while at < len(text) and open_groups[-1] <= MAX_PARTS:
        token = _PART.match(text, at)
        assert token is not None
        at = token.end()
        if token[0] == "(":
            open_groups.append(1)
            continue
        parts = 1
        if token[0] == ")":  # one that closes nothing may stand in a comment: then it closes all there is
            parts = open_groups.pop()
            open_groups = open_groups or [0]
        while (repeat := _REPEAT.match(text, at)) is not None:
            at = repeat.end()
            least = 1 if repeat[1] else int((repeat[2] or "0")[:9])
            parts *= least + 1 if least else 1
        open_groups[-1] += parts
    return sum(open_groups)


def check(value: Any) -> Any:
    """A field's check of one pattern."""
    compiled(value)
    return value


def check_each(value: Any) -> Any:
    """A field's check of a list of patterns."""
    for i, text in enumerate(value, 1):
        try:
            compiled(text)
        except ValueError as error:
            raise ValueError(f"pattern {i} {error}") from None
    return value
