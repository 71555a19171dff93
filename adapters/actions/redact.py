"""Redact the recorded copy of a call; what the provider and the app get is not touched."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import regex

from adapters.actions.base import UNREADABLE, Action, Draft, Field, RuleError
from adapters.actions.patterns import check_each, compiled

MASK = "[redacted]"
TIME_LIMIT_S = 0.5  # for all texts of one value, such as a request

_STEP = re.compile(r"\.\.(?P<deep>\w+)|\.(?P<name>[\w\-]+|\*)|\[(?P<index>\d+|\*)\]|\['(?P<quoted>[^']+)'\]")


def _luhn(match: regex.Match[str]) -> bool:
    digits = [int(c) for c in match.group() if c.isdigit()]
    doubled = [d * 2 - 9 * (d > 4) if i % 2 else d for i, d in enumerate(reversed(digits))]
    return sum(doubled) % 10 == 0


def _iban(match: regex.Match[str]) -> bool:
    text = match.group().replace(" ", "")
    return int("".join(str(int(c, 36)) for c in text[4:] + text[:4])) % 97 == 1


def _any(_match: regex.Match[str]) -> bool:
    return True


Finder = tuple[Any, Callable[[Any], bool]]

PII: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "email": (r"[\w.!#$%&'*+/=?^`{|}~-]++@[\w-]++(?:\.[\w-]++)+", _any),
    "phone": (r"(?<![\w.])(?:\+\d{1,3}[ .-]?)?(?:\(\d{2,4}\)[ .-]?|\d{2,4}[ .-])\d{3,4}[ .-]?\d{3,4}(?![\w])", _any),
    "credit_card": (r"(?<!\d)(?:\d[ -]?){12,18}\d(?!\d)", _luhn),
    "iban": (r"(?<!\w)[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?(?!\w)", _iban),
    "ip_address": (r"(?<![\w.])(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(?:25[0-5]|2[0-4]\d|1?\d?\d)(?![\w.])", _any),
    "us_ssn": (r"(?<!\d)(?!000|666|9\d\d)\d{3}-(?!00)\d\d-(?!0000)\d{4}(?!\d)", _any),
    "secret": (r"(?<!\w)(?:sk-[\w-]{16,}|AKIA[A-Z0-9]{16}|gh[pousr]_\w{36,}|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]{8,})", _any),
}


def _paths(value: Any) -> Any:
    for text in value:
        _steps(text)
    return value


def _steps(text: str) -> tuple[tuple[str, str], ...]:
    """A path as steps: ("name", …), ("index", …) or ("deep", …); raises ValueError."""
    rest = text.removeprefix("$")
    if not rest.startswith((".", "[")):
        rest = "." + rest
    steps: list[tuple[str, str]] = []
    at = 0
    while at < len(rest):
        match = _STEP.match(rest, at)
        if match is None:
            raise ValueError(f"{text!r} is no path: cannot read {rest[at:]!r}; write $.messages[*].content or $..email")
        kind = str(match.lastgroup)
        steps.append(("name" if kind == "quoted" else kind, match.group(kind)))
        at = match.end()
    return tuple(steps)


@dataclass(frozen=True)
class Redact(Action):
    type = "redact"
    title = "Redact the record"
    help = (
        "Only the recorded copy changes: request, response, rewrites. Chunks of such a call are recorded with their "
        "times and lengths, without content."
    )
    fields = (
        Field("paths", "list", "Values to hide, e.g. $.messages[*].content or $..email.", default=(), check=_paths),
        Field("patterns", "list", "Regular expressions; what they match is hidden.", default=(), check=check_each),
        Field("pii", "list", "Kinds of personal data to find.", default=(), choices=tuple(PII)),
        Field("replacement", "text", "What is shown instead.", default=MASK),
    )

    paths: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    pii: tuple[str, ...] = ()
    replacement: str = MASK

    def __post_init__(self) -> None:
        if not self.paths and not self.patterns and not self.pii:
            raise RuleError("paths", "give paths, patterns or kinds of personal data")
        object.__setattr__(self, "_steps", [_steps(p) for p in self.paths])
        finders: list[Finder] = [(compiled(p), _any) for p in self.patterns]
        finders += [(regex.compile(PII[k][0]), PII[k][1]) for k in self.pii]
        object.__setattr__(self, "_finders", finders)

    def apply(self, draft: Draft) -> Draft:
        return draft.but(redactors=(*draft.redactors, partial(self.redacted, known={})))

    def redacted(self, value: Any, known: dict[str, str] | None = None) -> Any:
        """A copy of `value` without what this rule hides. A text for which the time runs out is hidden whole.

        `known` remembers texts between calls: the stages of one request share most of theirs. Of a text that could not
        be read nothing is left, since nothing can be found in it.
        """
        if isinstance(value, dict) and UNREADABLE in value:
            value = {**value, UNREADABLE: self.replacement}
        for steps in self._steps:  # type: ignore[attr-defined]
            value = self._at(value, steps)
        if not self._finders:  # type: ignore[attr-defined]
            return value
        return self._search(value, {} if known is None else known, time.monotonic() + TIME_LIMIT_S)

    def _at(self, value: Any, steps: tuple[tuple[str, str], ...]) -> Any:
        if not steps:
            return self.replacement
        (kind, name), rest = steps[0], steps[1:]
        if isinstance(value, dict) and kind in ("name", "deep"):
            out = {k: self._at(v, rest) if name in ("*", k) else v for k, v in value.items()}
            return {k: self._at(v, steps) if k != name else v for k, v in out.items()} if kind == "deep" else out
        if isinstance(value, list):
            if kind == "deep":
                return [self._at(v, steps) for v in value]
            if name == "*" or kind == "index":
                return [self._at(v, rest) if name == "*" or name == str(i) else v for i, v in enumerate(value)]
        return value

    def _search(self, value: Any, known: dict[str, str], deadline: float) -> Any:
        if isinstance(value, str):
            if value not in known:
                known[value] = self._text(value, deadline)
            return known[value]
        if isinstance(value, dict):
            return {k: self._search(v, known, deadline) for k, v in value.items()}
        if isinstance(value, list):
            return [self._search(v, known, deadline) for v in value]
        return value

    def _text(self, text: str, deadline: float) -> str:
        try:
            for pattern, wanted in self._finders:  # type: ignore[attr-defined]
                left = deadline - time.monotonic()
                if left <= 0:
                    return self.replacement
                text = pattern.sub(self._mask(wanted), text, timeout=left)
        except TimeoutError:
            return self.replacement
        return text

    def _mask(self, wanted: Callable[[Any], bool]) -> Callable[[Any], str]:
        return lambda match: self.replacement if wanted(match) else match.group()
