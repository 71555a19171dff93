"""Regular expressions that people write into rules."""

from __future__ import annotations

from typing import Any

import regex

MAX_LENGTH = 4_000  # compiling takes time with the square of it


def compiled(text: str, *, ignore_case: bool = False) -> regex.Pattern[str]:
    """The pattern; raises ValueError saying what is wrong with it."""
    if len(text) > MAX_LENGTH:
        raise ValueError(f"has {len(text)} characters; a regular expression may have {MAX_LENGTH}")
    try:
        return regex.compile(text, regex.IGNORECASE if ignore_case else 0)
    except RecursionError:
        raise ValueError("is no regular expression: it is nested too deeply") from None
    except regex.error as error:
        raise ValueError(f"is no regular expression: {error}") from None


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
