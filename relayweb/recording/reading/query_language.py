"""The search language of the turn list, parsed once into a small typed value.

    status:failed model:gpt-* role:auxiliary:* retries:>0 rewritten:yes is:running dur:>5s cost:>0.1 since:2h
    -profile:ci-* session:"a b" tokens:1000..2000 status:failed,cancelled "what was said" word

Terms are joined by "and"; commas inside a value mean "or"; a minus in front negates; `*` and `?` are wildcards.
Whatever is not `field:value` is looked for in the recorded messages. Nothing is silently ignored: what cannot be read
raises QueryError with its column and, where there is one, a suggestion.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import msgspec

Operator = Literal["=", ">", ">=", "<", "<=", ".."]
MAX_LENGTH = 2_000
MAX_TERMS = 40


class QueryError(ValueError):
    """A query that cannot be read.

    `column` is 1-based and `length` counts characters, so a page can underline the place; `suggestion` is what the
    whole term could read instead.
    """

    def __init__(self, column: int, message: str, suggestion: str | None = None, length: int = 1) -> None:
        super().__init__(message)
        self.column, self.message, self.suggestion, self.length = column, message, suggestion, max(length, 1)

    def as_dict(self) -> dict[str, object]:
        return {
            "column": self.column,
            "length": self.length,
            "message": self.message,
            "suggestion": self.suggestion,
        }


class Match(msgspec.Struct, frozen=True, tag=True):
    """A field equals one of several patterns; `*` and `?` are wildcards unless `choice`."""

    field: str
    patterns: tuple[str, ...]
    negated: bool = False


class Compare(msgspec.Struct, frozen=True, tag=True):
    """A number against a bound. Units: counts, US dollars, and microseconds for durations and times."""

    field: str
    operator: Operator
    value: float
    upper: float | None = None
    negated: bool = False


class Text(msgspec.Struct, frozen=True, tag=True):
    """Words that stand together somewhere in a recorded message; a trailing `*` matches the start of a word."""

    text: str
    negated: bool = False


Term = Match | Compare | Text


class Query(msgspec.Struct, frozen=True):
    terms: tuple[Term, ...] = ()

    @property
    def texts(self) -> tuple[Text, ...]:
        return tuple(t for t in self.terms if isinstance(t, Text))


STATUSES = ("running", "ok", "failed", "cancelled", "blocked", "interrupted")
_IS = (*STATUSES, "retried", "rewritten", "subagent", "wasteful", "incomplete", "stalled")
_YES_NO = {"yes": "yes", "no": "no", "true": "yes", "false": "no", "1": "yes", "0": "no"}


class Field(msgspec.Struct, frozen=True):
    """One field: how its values are read and the line the help shows for it."""

    kind: Literal["choice", "glob", "yesno", "count", "money", "duration", "time"]
    help: str
    choices: tuple[str, ...] = ()


FIELDS: dict[str, Field] = {
    "status": Field("choice", "status of the turn", STATUSES),
    "is": Field("choice", "a status, or what a turn is", _IS),
    "model": Field("glob", "a model that was called"),
    "provider": Field("glob", "a provider that was called"),
    "role": Field("glob", "role of a call: primary, auxiliary:title, …"),
    "api": Field("glob", "wire format of a call: chat_completions, codex_responses, anthropic_messages"),
    "tool": Field("glob", "a tool that was run"),
    "error": Field("glob", "type of an error: RateLimitError, 429, *timeout*"),
    "finish": Field("glob", "why a model stopped: stop, length, tool_calls, …"),
    "intercept": Field("glob", "key of an intercept that changed or stopped a call"),
    "shadow": Field("glob", "key of an intercept in shadow mode that would have"),
    "profile": Field("glob", "profile the agent runs under"),
    "session": Field("glob", "id of the session"),
    "name": Field("glob", "name of the turn's scope"),
    "rewritten": Field("yesno", "whether an intercept changed any request"),
    "retries": Field("count", "attempts beyond the first of each call"),
    "attempts": Field("count", "provider requests"),
    "calls": Field("count", "logical calls"),
    "rewrites": Field("count", "changes made by intercepts"),
    "tools": Field("count", "tool runs"),
    "chunks": Field("count", "streamed chunks"),
    "stalls": Field("count", "long gaps in its streams: over 5 × the median and 250 ms"),
    "tokens": Field("count", "all tokens"),
    "input": Field("count", "tokens read"),
    "output": Field("count", "tokens written"),
    "cost": Field("money", "US dollars"),
    "wasted": Field("money", "US dollars spent on attempts that failed"),
    "dur": Field("duration", "how long the turn took: >5s, <200ms, 1m..5m"),
    "ttft": Field("duration", "time to the first chunk of the first streamed call"),
    "since": Field("time", "started at or after: 2h, 3d, 2026-11-30, 2026-11-30T08:00"),
    "until": Field("time", "started before, in the same forms"),
}
_SYNONYMS = {
    "duration": "dur",
    "latency": "dur",
    "retry": "retries",
    "rewrite": "rewritten",
    "price": "cost",
    "waste": "wasted",
    "after": "since",
    "before": "until",
    "rule": "intercept",
    "stalled": "stalls",
    "id": "session",
    "text": "",
}

_UNITS = {"us": 1.0, "µs": 1.0, "ms": 1e3, "s": 1e6, "m": 60e6, "min": 60e6, "h": 3600e6, "d": 86_400e6, "w": 604_800e6}
_FACTORS = {"": 1.0, "k": 1e3, "m": 1e6}
_NUMBER = r"(\d+(?:\.\d+)?|\.\d+)"
_QUANTITY = re.compile(_NUMBER + r"\s*([a-zµ]*)", re.IGNORECASE)
_COMPARISON = re.compile(r"(>=|<=|>|<|=)?(.*)", re.DOTALL)
_KEY = re.compile(r"(-?)([A-Za-z_]+):")


class _Token(msgspec.Struct, frozen=True):
    column: int
    source: str
    negated: bool
    key: str | None
    key_column: int
    value: str
    value_column: int
    quoted: bool


def _tokens(source: str) -> Iterator[_Token]:
    at = 0
    while at < len(source):
        if source[at].isspace():
            at += 1
            continue
        start = at
        key = _KEY.match(source, at)
        if key:
            negated, name, at = bool(key[1]), key[2], key.end()
        else:
            negated, name = source[at] == "-" and at + 1 < len(source) and not source[at + 1].isspace(), None
            at += negated
        value_at, quoted = at, at < len(source) and source[at] == '"'
        if quoted:
            end = source.find('"', at + 1)
            if end < 0:
                raise QueryError(
                    at + 1, 'The text that starts here has no closing ".', source[at:] + '"', len(source) - at
                )
            value, at = source[at + 1 : end], end + 1
        else:
            while at < len(source) and not source[at].isspace():
                at += 1
            value = source[value_at:at]
        yield _Token(
            column=start + 1,
            source=source[start:at],
            negated=negated,
            key=name,
            key_column=start + 1 + (1 if key and key[1] else 0),
            value=value,
            value_column=value_at + 1,
            quoted=quoted,
        )


def parse(source: str, *, now: datetime | None = None) -> Query:
    """Read a query.

    Args:
        source: what somebody typed, at most 2 000 characters.
        now: what `since:2h` counts back from; the present unless given.

    Raises:
        QueryError: names the column, says what is wrong and what to write instead.
    """
    if len(source) > MAX_LENGTH:
        raise QueryError(MAX_LENGTH + 1, f"A query has at most {MAX_LENGTH} characters; this one has {len(source)}.")
    if "\0" in source:
        raise QueryError(source.index("\0") + 1, "A query cannot hold the character U+0000.")
    terms: list[Term] = []
    for token in _tokens(source):
        if len(terms) == MAX_TERMS:
            raise QueryError(token.column, f"A query has at most {MAX_TERMS} terms.", length=len(token.source))
        if token.key is None:
            if token.value.strip():
                terms.append(Text(token.value, token.negated))
        else:
            terms.append(_term(token, now or datetime.now(UTC)))
    return Query(tuple(terms))


def _term(token: _Token, now: datetime) -> Term:
    name = (token.key or "").lower()
    field = FIELDS.get(name)
    if field is None:
        raise _unknown_field(token, name)
    if not token.value:
        example = _EXAMPLES.get(name) or _EXAMPLES[field.kind]
        raise QueryError(
            token.value_column, f"{name}: needs a value, for example {name}:{example}.", f"{name}:{example}"
        )
    return _READERS[field.kind](token, name, field, now)


def _unknown_field(token: _Token, name: str) -> QueryError:
    near = _SYNONYMS.get(name)
    if near is None:
        near = next(iter(difflib.get_close_matches(name, FIELDS, 1, 0.6)), "")
    sign = "-" if token.negated else ""
    value = f'"{token.value}"' if token.quoted else token.value
    suggestion = f"{sign}{near}:{value}" if near else f'{sign}"{name}:{token.value}"'
    advice = f"Did you mean {near}:?" if near else "To look for it as text, put it in quotes."
    return QueryError(token.key_column, f"There is no field {name}. {advice}", suggestion, len(token.key or "") + 1)


def _glob(token: _Token, name: str, field: Field, now: datetime) -> Term:
    patterns = (token.value,) if token.quoted else tuple(v for v in token.value.split(",") if v)
    if not patterns:
        raise QueryError(token.value_column, f"{name}: needs a value.", length=len(token.value))
    return Match(name, patterns, token.negated)


def _choice(token: _Token, name: str, field: Field, now: datetime) -> Term:
    values, column = [], token.value_column
    for word in token.value.split(","):
        if word.lower() not in field.choices:
            near = difflib.get_close_matches(word.lower(), field.choices, 1, 0.5)
            known = ", ".join(field.choices)
            raise QueryError(
                column, f"{name}: is one of {known}, not {word!r}.", f"{name}:{near[0]}" if near else None, len(word)
            )
        values.append(word.lower())
        column += len(word) + 1
    return Match(name, tuple(values), token.negated)


def _yesno(token: _Token, name: str, field: Field, now: datetime) -> Term:
    value = _YES_NO.get(token.value.lower())
    if value is None:
        message = f"{name}: is yes or no, not {token.value!r}."
        raise QueryError(token.value_column, message, f"{name}:yes", len(token.value))
    return Match(name, ("yes",), token.negated != (value == "no"))


def _quantity(text: str, units: dict[str, float], default: str | None) -> float | None:
    found = _QUANTITY.fullmatch(text.strip())
    if not found:
        return None
    factor = units.get(found[2].lower() or (default if default is not None else "?"))
    return None if factor is None else float(found[1]) * factor


def _comparison(units: dict[str, float], default: str | None, what: str) -> Callable[..., Term]:
    def read(token: _Token, name: str, field: Field, now: datetime) -> Term:
        operator: Any
        operator, rest = _COMPARISON.fullmatch(token.value).groups()  # type: ignore[union-attr]
        low, dots, high = rest.partition("..")
        value, upper = _quantity(low, units, default), _quantity(high, units, default) if dots else None
        if value is None or (dots and (upper is None or operator)):
            example = _EXAMPLES[field.kind]
            raise QueryError(
                token.value_column,
                f"{name}: is compared with {what}, for example {name}:{example}, not {token.value!r}.",
                f"{name}:{example}",
                len(token.value),
            )
        if dots:
            return Compare(name, "..", value, upper, token.negated)
        return Compare(name, operator or "=", value, None, token.negated)

    return read


def _microseconds(moment: datetime) -> float:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(microseconds=1)


def _time(token: _Token, name: str, field: Field, now: datetime) -> Term:
    back = _quantity(token.value, _UNITS, None)
    if back is not None:
        moment: float | None = _microseconds(now) - back
    else:
        try:
            stated = datetime.fromisoformat(token.value)
            moment = _microseconds(stated if stated.tzinfo else stated.replace(tzinfo=UTC))
        except ValueError:
            moment = None
    if moment is None:
        raise QueryError(
            token.value_column,
            f"{name}: is a span back from now or a time in UTC, for example {name}:2h or {name}:2026-11-30T08:00, "
            f"not {token.value!r}.",
            f"{name}:2h",
            len(token.value),
        )
    return Compare("start", ">=" if name == "since" else "<", moment, None, token.negated)


_EXAMPLES = {
    **{"provider": "openai", "role": "auxiliary:*", "api": "chat_completions", "tool": "read_*", "error": "*timeout*"},
    **{"finish": "length", "intercept": "redact-*", "shadow": "redact-*", "profile": "ci-*", "session": "nightly*"},
    **{"name": "*.turn", "is": "retried"},
    "choice": "failed",
    "glob": "gpt-*",
    "yesno": "yes",
    "count": ">0",
    "money": ">0.10",
    "duration": ">5s",
    "time": "2h",
}
_READERS: dict[str, Callable[..., Term]] = {
    "choice": _choice,
    "glob": _glob,
    "yesno": _yesno,
    "count": _comparison(_FACTORS, "", "a number"),
    "money": _comparison(_FACTORS, "", "US dollars"),
    "duration": _comparison(_UNITS, "s", "a duration"),
    "time": _time,
}
