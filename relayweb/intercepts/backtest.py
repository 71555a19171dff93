"""A draft over recorded requests, offline, by the code that runs live: what it would match, change, stop and cost."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, cast
from uuid import UUID

from django.db.models import QuerySet

from adapters.actions.base import Facts
from adapters.intercepts import Rule, RuleSet, preview
from adapters.json_values import canonical
from relayweb.intercepts.models import Value
from relayweb.recording.models import Role, Scope
from relayweb.recording.reading import bodies
from relayweb.recording.reading.query_language import parse
from relayweb.recording.reading.turn_filter import turns_matching
from relayweb.recording.store import stored

LIMIT = 500
LIMITS = (100, 500, 2_000, 10_000)
SAMPLES = 8
STOPS = ("block", "respond", "fault")


@dataclass(frozen=True)
class Sample:
    """One request that the draft would change or stop, or that makes it fail."""

    attempt: str
    turn: str
    asked: str
    result: str
    messages: tuple[int, int]
    bytes: tuple[int, int]
    patch: list[Any]
    error: str = ""

    @property
    def delta(self) -> int:
        return self.bytes[1] - self.bytes[0]


@dataclass
class Report:
    """Counts over the requests tried; sizes are bytes of the body as JSON, times are µs of the rule alone."""

    total: int = 0
    """How many requests there are to try."""
    tried: int = 0
    matched: int = 0
    unreadable: int = 0
    """Matched, but the recorded body is gone or is no JSON object."""
    results: Counter[str] = field(default_factory=Counter)
    """hit, miss, error, block, respond, fault → how many of the matched."""
    bytes_before: int = 0
    bytes_after: int = 0
    """Both over the changed requests only."""
    tokens: float | None = None
    """Input tokens more or fewer, judged by the share of bytes where the tokens of a call are known."""
    prefix_lost: int = 0
    """Calls that would share less of their beginning with the call before them in the turn, so that a provider's
    prompt cache holds less."""
    durations: list[float] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)

    @property
    def changed(self) -> int:
        return self.results["hit"]

    @property
    def stopped(self) -> int:
        return sum(self.results[name] for name in STOPS)

    @property
    def failed(self) -> int:
        return self.results["error"]

    @property
    def untouched(self) -> int:
        return self.tried - self.changed - self.stopped - self.failed

    def quantile(self, share: float) -> float | None:
        ordered = sorted(self.durations)
        return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else None

    def as_dict(self) -> dict[str, Any]:
        return {
            "total": self.total,
            "tried": self.tried,
            "matched": self.matched,
            "unreadable": self.unreadable,
            "changed": self.changed,
            "results": dict(self.results),
            "bytes_before": self.bytes_before,
            "bytes_after": self.bytes_after,
            "tokens": self.tokens,
            "prefix_lost": self.prefix_lost,
            "p50_us": self.quantile(0.5),
            "p95_us": self.quantile(0.95),
            "samples": [
                {
                    "attempt": s.attempt,
                    "turn": s.turn,
                    "result": s.result,
                    "messages": s.messages,
                    "bytes": s.bytes,
                    "patch": s.patch,
                    "error": s.error,
                }
                for s in self.samples
            ],
        }


def run(value: Value, *, q: str = "", limit: int = LIMIT) -> Report:
    """Try a draft on the newest recorded requests, all of them before this returns; the rest as `steps`."""
    return deque(steps(value, q=q, limit=limit), maxlen=1).pop()


def steps(value: Value, *, q: str = "", limit: int = LIMIT) -> Iterator[Report]:
    """Try a draft on the newest recorded requests, one after the other.

    Args:
        value: the draft, as InterceptConfig.publish takes it; it runs as if enabled and enforced.
        q: which turns, as in the search of the turn list.
        limit: how many requests to look at, the newest.

    Returns:
        The one report, before the first request and after each, so that whoever asks can show how far it is and stop.

    Raises:
        adapters.intercepts.RuleError: the draft is not valid. QueryError: the query is not. Both before the first step.
    """
    rule = replace(Rule.parse({**value, "enabled": True, "mode": "enforce"}), revision=None)
    newest = turns_matching(parse(q)).filter(start_us__isnull=False).order_by("-start_us", "-uuid")
    return _steps(rule, list(newest.values_list("uuid", "session_id", "profile")[:limit]), limit)


def _steps(rule: Rule, turns: list[_Turn], limit: int) -> Iterator[Report]:
    rules, report = RuleSet([rule]), Report(total=_count(turns, limit))
    before: dict[str, tuple[list[Any], list[Any]]] = {}
    yield report
    for call, facts in _requests(turns, limit):
        report.tried += 1
        if rule.match.static(facts) and rule.match.session_fits(rule.key, facts.session_id):
            report.matched += 1
            body = _body(call)
            if body is None:
                report.unreadable += 1
            else:
                _try(report, rules, rule, call, facts, body, before)
        yield report


_Turn = tuple[UUID, str | None, str | None]
"""uuid, session_id, profile"""


def _attempts(turns: list[UUID]) -> QuerySet[Scope]:
    return Scope.objects.filter(turn_uuid__in=turns, role=Role.ATTEMPT, joined_uuid__isnull=True)


def _count(turns: list[_Turn], limit: int) -> int:
    found = 0
    for start in range(0, len(turns), 500):
        found += _attempts([turn for turn, _, _ in turns[start : start + 500]]).count()
        if found >= limit:
            return limit
    return found


def _requests(turns: list[_Turn], limit: int) -> Iterator[tuple[Scope, Facts]]:
    """Attempts of these turns, and what rules match them by; those of one turn in order of time."""
    left = limit
    for turn, session_id, profile in turns:
        if left <= 0:
            return
        calls = _attempts([turn]).defer("state")
        logical = Scope.objects.filter(turn_uuid=turn, role=Role.LOGICAL_CALL)
        roles = dict(logical.values_list("uuid", "call_role"))
        for call in calls.order_by("start_us", "uuid")[:left]:
            left -= 1
            role = call.call_role or (roles.get(call.logical_uuid) if call.logical_uuid else None)
            yield call, _facts(call, role, session_id, profile)


def _facts(call: Scope, role: str | None, session_id: str | None, profile: str | None) -> Facts:
    """Session and profile are told by the turn, unless the call has its own."""
    return Facts(
        api_mode=call.api_mode or "chat_completions",
        provider=call.provider or "",
        model=call.model,
        profile=call.profile or profile,
        call_role=role or "primary",
        session_id=call.session_id or session_id,
        stream=bool(call.streaming),
    )


def _body(call: Scope) -> dict[str, Any] | None:
    """What the app gave: before any intercept of that day changed it."""
    found = bodies.request(call.uuid)
    if found is None:
        return None
    text = found["app"] if found["app"] is not None else found["request"]
    body = stored.load(text) if isinstance(text, bytes) else None
    return body if isinstance(body, dict) else None


def _try(
    report: Report,
    rules: RuleSet,
    rule: Rule,
    call: Scope,
    facts: Facts,
    body: dict[str, Any],
    before: dict[str, tuple[list[Any], list[Any]]],
) -> None:
    [entry], after, _decision = preview(
        rules,
        body,
        api_mode=facts.api_mode,
        provider=facts.provider,
        model=facts.model,
        call_role=facts.call_role,
        session_id=facts.session_id,
        profile=facts.profile,
        stream=facts.stream,
    )
    result = str(entry["result"])
    report.results[result] += 1
    report.durations.append(entry["duration_us"])
    old, new = blocks(body), blocks(after)
    turn = str(call.turn_uuid)
    if turn in before and shared(before[turn][1], new) < shared(before[turn][0], old):
        report.prefix_lost += 1
    before[turn] = old, new
    if result == "miss":
        return
    sizes = entry["bytes_before"], entry["bytes_after"]
    if result == "hit":
        report.bytes_before += sizes[0]
        report.bytes_after += sizes[1]
        if call.input_tokens is not None and sizes[0]:
            report.tokens = (report.tokens or 0.0) + call.input_tokens * (sizes[1] / sizes[0] - 1)
    report.samples.append(
        Sample(
            attempt=str(call.uuid),
            turn=turn,
            asked=call.asked or call.model or "",
            result=result,
            messages=(len(_messages(body)), len(_messages(after))),
            bytes=sizes,
            patch=list(entry["patch"]),
            error=str(entry.get("error") or entry.get("reason") or ""),
        )
    )
    report.samples = sorted(report.samples, key=lambda s: (s.result != "error", -abs(s.delta)))[:SAMPLES]


def _messages(body: dict[str, Any]) -> list[Any]:
    found = body.get("messages", body.get("input"))
    return found if isinstance(found, list) else []


def blocks(body: dict[str, Any]) -> list[Any]:
    """What a provider reads from the front, piece by piece: tools, system text, messages."""
    front = [body.get("tools"), body.get("system"), body.get("instructions")]
    return [canonical(cast(Any, piece)) for piece in (*front, *_messages(body))]


def shared(one: list[Any], other: list[Any]) -> int:
    """How many pieces two requests have in common at their beginning."""
    count = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        count += 1
    return count
