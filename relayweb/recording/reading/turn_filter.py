"""A parsed query as a condition on turns."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import reduce
from operator import and_, or_
from typing import Any

from django.db.models import (
    BigIntegerField,
    Exists,
    ExpressionWrapper,
    F,
    Lookup,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    Sum,
    TextField,
    Value,
)
from django.db.models.functions import Coalesce
from django.db.models.lookups import Exact, GreaterThan, GreaterThanOrEqual, IsNull, LessThan, LessThanOrEqual

from relayweb.recording.models import Rewrite, Role, Scope, Stream, Turn
from relayweb.recording.reading import search
from relayweb.recording.reading.query_language import Compare, Query, Term, Text


@TextField.register_lookup
class Glob(Lookup[str]):
    """`name__glob="gpt-*"`: `*` and `?` as in the shell, letters in any case, all of the value.

    LIKE, because SQLite's GLOB tells small letters from capitals and its REGEXP is a Python function.
    """

    lookup_name = "glob"

    def as_sql(self, compiler: Any, connection: Any) -> tuple[str, tuple[Any, ...]]:
        left, left_params = self.process_lhs(compiler, connection)
        operator = "ILIKE" if connection.vendor == "postgresql" else "LIKE"
        return f"{left} {operator} %s ESCAPE '!'", (*left_params, like_pattern(self.rhs))


def like_pattern(glob: str) -> str:
    escaped = glob.replace("!", "!!").replace("%", "!%").replace("_", "!_")
    return escaped.replace("*", "%").replace("?", "_").replace("\0", "")


def turns_matching(query: Query, notes: list[str] | None = None) -> QuerySet[Scope]:
    """The turns of the list that a query names, in no order yet. A turn that two processes saw is listed once.

    Args:
        notes: is told what a reader should know of the answer (see `search.turns_saying`).
    """
    notes = [] if notes is None else notes
    found = Turn.objects.filter(joined_uuid__isnull=True)
    if query.terms:
        found = found.annotate(duration_us=_DURATION).filter(
            reduce(and_, (_condition(term, notes) for term in query.terms))
        )
    return found


_DURATION = ExpressionWrapper(Coalesce(F("end_us"), F("last_us")) - F("start_us"), output_field=BigIntegerField())

_NUMBERS = {
    "retries": "retries",
    "attempts": "attempts",
    "calls": "logical_calls",
    "rewrites": "rewrites",
    "tools": "tools",
    "chunks": "chunk_count",
    "tokens": "total_tokens",
    "input": "input_tokens",
    "output": "output_tokens",
    "cost": "cost_pusd",
    "wasted": "wasted_pusd",
    "dur": "duration_us",
    "ttft": "ttft_us",
    "start": "start_us",
}
_COUNTS = ("retries", "attempts", "logical_calls", "rewrites", "tools", "chunk_count")
_MOST = 2**31
"""Stalls that no stream has, where a database can still compare."""
_COMPARISONS: dict[str, Any] = {
    ">": GreaterThan, ">=": GreaterThanOrEqual, "<": LessThan, "<=": LessThanOrEqual, "=": Exact,
}  # fmt: skip
_LOOKUPS = {">": "gt", ">=": "gte", "<": "lt", "<=": "lte", "=": "exact"}
_AROUND = Q(is_turn=True) | Q(parent_turn_uuid__isnull=False)
_IS = {
    "retried": Q(retries__gt=0),
    "rewritten": Q(rewrites__gt=0),
    # Inside a turn, or inside a session that is itself inside something.
    "subagent": Q(Exists(Scope.objects.filter(_AROUND, uuid=OuterRef("parent_turn_uuid")))),
    "wasteful": Q(wasted_pusd__gt=0),
    "incomplete": Q(usage_complete=False),
}


def _condition(term: Term, notes: list[str]) -> Q:
    if isinstance(term, Text):
        condition = search.turns_saying(term.text, notes)
    elif isinstance(term, Compare):
        condition = _compare(term)
    else:
        condition = reduce(or_, (_FIELDS[term.field](pattern) for pattern in term.patterns))
    return ~condition if term.negated else condition


def _stalls(term: Compare) -> Q:
    """Turns by the sum of their streams' stalls."""
    stalled = Stream.objects.filter(stalls__gt=0)
    # Streams that stalled name their turns, all at once, where many turns would be asked for their streams in vain.
    most = FEW if _holds(1, term) else MANY
    if not _holds(0, term) and stalled[: most + 1].count() <= most:
        stalls = Subquery(stalled.filter(attempt_uuid=OuterRef("uuid")).values("stalls"))
        own = Scope.objects.filter(role=Role.ATTEMPT, joined_uuid__isnull=True, uuid__in=stalled.values("attempt_uuid"))
        turns = own.order_by().values("turn_uuid").annotate(total=Sum(stalls))
        return Q(uuid__in=turns.filter(_fits(F("total"), term)).values("turn_uuid"))
    inside = Scope.objects.filter(turn_uuid=OuterRef(OuterRef("uuid")), role=Role.ATTEMPT, joined_uuid__isnull=True)
    streams = stalled.filter(attempt_uuid__in=inside.values("uuid")).order_by()
    total = streams.annotate(together=Value(1)).values("together").annotate(total=Sum("stalls")).values("total")
    return _fits(Coalesce(Subquery(total), 0), term)


def _fits(total: Any, term: Compare) -> Q:
    low = min(term.value, _MOST)
    if term.operator == "..":
        return Q(GreaterThanOrEqual(total, low)) & Q(LessThanOrEqual(total, min(term.upper or 0, _MOST)))
    return Q(_COMPARISONS[term.operator](total, low))


def _compare(term: Compare) -> Q:
    if term.field == "stalls":
        return _stalls(term)
    column = _NUMBERS[term.field]
    scale = 10**12 if term.field in ("cost", "wasted") else 1
    low = _whole(term.value * scale)
    if term.operator == "..":
        condition = Q((f"{column}__gte", low), (f"{column}__lte", _whole((term.upper or 0) * scale)))
    else:
        condition = Q((f"{column}__{_LOOKUPS[term.operator]}", low))
    # A turn without calls has a count of none, which is stored as null.
    zero = column in _COUNTS and _holds(0, term)
    return condition | Q((f"{column}__isnull", True)) if zero else condition


def _whole(value: float) -> int | float:
    return int(value) if value == int(value) else value


def _holds(value: float, term: Compare) -> bool:
    upper = term.value if term.upper is None else term.upper
    return {
        ">": value > term.value,
        ">=": value >= term.value,
        "<": value < term.value,
        "<=": value <= term.value,
        "=": value == term.value,
        "..": term.value <= value <= upper,
    }[term.operator]


def _glob(column: str, pattern: str) -> Q:
    lookup = "glob" if set(pattern) & {"*", "?"} else "iexact"
    return Q((f"{column}__{lookup}", pattern))


def _key_of(column: str) -> Callable[[str], Q]:
    """A key of the JSON object of counts in `column`: the text of a key stands between `"` and `":`."""

    def condition(pattern: str) -> Q:
        return Q((f"{column}__glob", f'*"{json.dumps(pattern)[1:-1]}":*'))

    return condition


def _inside(column: str, **condition: Any) -> Callable[[str], Q]:
    """A scope inside the turn. The conditions are those of the index on that column."""

    def matching(pattern: str) -> Q:
        return turns_with(Scope.objects.filter(_glob(column, pattern), **condition))

    return matching


def turns_with(scopes: QuerySet[Scope]) -> Q:
    """Turns that hold one of these scopes.

    Few of them: their turns are named, found by the index of what was asked for. Many: the list, which reads from the
    newest turn on and stops when its page is full, asks of each turn whether it holds one.
    """
    # No DISTINCT: for its sake SQLite would walk the whole table in order of turns.
    few = list(scopes.values_list("turn_uuid", flat=True)[: FEW + 1])
    if len(few) <= FEW:
        return Q(uuid__in=set(few))
    return _holding(scopes)


def _holding(scopes: QuerySet[Scope]) -> Q:
    """Turns that hold one of these scopes, asked of each turn.

    No EXISTS, which PostgreSQL would make a join of all turns with all scopes, although the list needs only a page.
    """
    return Q(IsNull(Subquery(scopes.filter(turn_uuid=OuterRef("uuid")).values("uuid")[:1]), False))


MANY = 20_000
"""Streams with stalls that are looked through at once for turns with several."""
FEW = 1_000
WOULD_CHANGE = Q(mode="shadow") & ~Q(result__in=("miss", "error"))


def _error(pattern: str) -> Q:
    told = _glob("error_type", pattern)
    if pattern.isdecimal() and len(pattern) == 3:
        told |= Q(error_status=int(pattern))
    else:
        told |= Q(error_message__glob=pattern if set(pattern) & {"*", "?"} else f"*{pattern}*")
    return turns_with(Scope.objects.filter(told, error_type__isnull=False))


def _ran(pattern: str, told: Q) -> Q:
    """Turns in which an intercept of this key ran and `told` is so; as in `turns_with`, few of them are named."""
    ran = Rewrite.objects.filter(_glob("key", pattern), told)
    exactly = Rewrite.objects.filter(told, key=pattern)  # which the index of keys finds, as it does no pattern
    few = list((exactly if exactly.exists() else ran).values_list("attempt_uuid", flat=True)[: FEW + 1])
    if len(few) <= FEW:
        return Q(uuid__in=set(Scope.objects.filter(uuid__in=few).values_list("turn_uuid", flat=True)))
    # By pattern, or SQLite would go through all of that key for each attempt.
    return _holding(Scope.objects.filter(Exists(ran.filter(attempt_uuid=OuterRef("uuid")))))


_FIELDS: dict[str, Callable[[str], Q]] = {
    "status": lambda value: Q(status=value),
    "is": lambda value: _stalls(Compare("stalls", ">", 0)) if value == "stalled" else _IS.get(value, Q(status=value)),
    "rewritten": lambda value: Q(rewrites__gt=0),
    "model": _key_of("model_names"),
    "provider": _key_of("provider_names"),
    "profile": lambda pattern: _glob("profile", pattern),
    "session": lambda pattern: _glob("session_id", pattern) if "*" in pattern else Q(session_id=pattern, is_home=True),
    "name": lambda pattern: _glob("name", pattern),
    "role": _inside("call_role", call_role__isnull=False),
    "tool": _inside("name", role=Role.TOOL),
    "api": _inside("api_mode", role=Role.ATTEMPT),
    "finish": _inside("finish_reason", role=Role.ATTEMPT),
    "error": _error,
    "intercept": lambda pattern: _ran(pattern, Q(changed=True)),
    "shadow": lambda pattern: _ran(pattern, WOULD_CHANGE),
}
