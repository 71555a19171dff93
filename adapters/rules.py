"""Rules as values, the set in force, and the one way they run: over live calls and offline alike."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from adapters import json_patch
from adapters.actions import ACTIONS
from adapters.actions.base import Action, Block, Draft, Effect, Facts, Fault, Field, Redactor, Respond, RuleError
from adapters.actions.redact import Redact
from adapters.call_headers import changed_headers
from adapters.json_values import canonical, escape, holds, visible
from adapters.marks import PatchOp, Result, Rewrite
from adapters.match import Match
from adapters.rule_failures import Failures

_log = logging.getLogger(__name__)

SLOW_S = 1.0  # a rule that takes longer has failed

_UNREAD = "the request's body cannot be read; send it as a JSON object, plain, gzip or zstd, of not too many values"

_RULE_FIELDS = (
    Field("key", "text", "Short name, unique in the set.", required=True),
    Field("title", "text", "What people read.", default=""),
    Field("revision", "integer", "Number of this version of the rule.", default=None, minimum=0),
    Field("enabled", "bool", "Whether it runs at all.", default=True),
    Field(
        "mode",
        "choice",
        "shadow: computed and recorded, not applied.",
        default="enforce",
        choices=("enforce", "shadow"),
    ),
    Field("priority", "integer", "Lower runs first.", default=100),
    Field("break_chain", "bool", "No later rule looks at a call that this one changed.", default=False),
    Field("on_error", "choice", "open: go on without it; closed: block.", default="open", choices=("open", "closed")),
)


@dataclass(frozen=True, slots=True)
class Rule:
    """One intercept config: for which calls, what to do, how to fail."""

    key: str
    action: Action
    title: str = ""
    revision: int | None = None
    enabled: bool = True
    mode: Literal["enforce", "shadow"] = "enforce"
    priority: int = 100
    break_chain: bool = False
    on_error: Literal["open", "closed"] = "open"
    match: Match = field(default_factory=Match)

    @property
    def is_guard(self) -> bool:
        """Whether a call must not go without it, be it only unto the record."""
        return self.on_error == "closed" or isinstance(self.action, Redact)

    @classmethod
    def parse(cls, config: Mapping[str, Any]) -> Rule:
        """The rule a config describes; raises RuleError naming the field, as in `action.name`."""
        if not isinstance(config, Mapping):
            raise RuleError("", "a rule must be an object")
        known = {f.name for f in _RULE_FIELDS} | {"match", "action"}
        for name in config:
            if name not in known:
                raise RuleError(str(name), f"is not known; a rule has {', '.join(sorted(known))}")
        values = {f.name: f.parse(config, "") for f in _RULE_FIELDS}
        match, action = config.get("match") or {}, config.get("action")
        if not isinstance(match, Mapping):
            raise RuleError("match", "must be an object")
        if not isinstance(action, Mapping):
            raise RuleError("action", "must be an object with a type" if action is not None else "is required")
        kind = action.get("type")
        if not isinstance(kind, str) or kind not in ACTIONS:
            raise RuleError("action.type", f"must be one of {', '.join(ACTIONS)}, is {kind!r}")
        return cls(**values, match=Match.parse(match), action=ACTIONS[kind].parse(action))

    @classmethod
    def check(cls, config: Mapping[str, Any]) -> None:
        """Raises RuleError for a config that must not be stored anew: one without a rule, or whose text is none."""
        cls.parse(config)
        for place, value in (("action", config["action"]), ("match", config.get("match") or {}), ("", config)):
            for name, member in value.items():
                if place or name not in ("action", "match"):
                    _check_texts(f"{place}.{name}" if place else name, member)


def _check_texts(place: str, value: Any) -> None:
    """What neither UTF-8 nor every database can hold is refused wherever it stands."""
    texts, left = [], [value]
    while left:
        item = left.pop()
        if isinstance(item, str):
            texts.append(item)
        elif isinstance(item, Mapping):
            left += [*item, *item.values()]
        elif isinstance(item, (list, tuple)):
            left += item
    for text in texts:
        if (shown := visible(text)) != text:
            raise RuleError(place, f"holds half a surrogate pair, which is no character: {shown[:80]!r}; take it out")
        if "\0" in text:
            raise RuleError(place, f"holds the character U+0000: {text[:80]!r}; take it out")


class RuleSet:
    """The rules of one moment, in the order they run. Immutable; one call runs under exactly one set."""

    __slots__ = ("_candidates", "closed", "etag", "redacts", "rules")

    def __init__(self, rules: Sequence[Rule] = (), etag: str = "") -> None:
        self.rules = tuple(sorted(rules, key=lambda r: (r.priority, r.key)))
        self.etag = etag
        self.closed = tuple(r for r in self.rules if r.enabled and r.on_error == "closed" and r.mode == "enforce")
        self.redacts = any(isinstance(rule.action, Redact) for rule in self.rules)
        self._candidates: dict[tuple[Any, ...], tuple[Rule, ...]] = {}

    @classmethod
    def parse(cls, configs: Sequence[Mapping[str, Any]], etag: str = "") -> RuleSet:
        """A set from configs; raises RuleError with the field below `rules[<index>]`."""
        rules: list[Rule] = []
        seen: set[str] = set()
        for i, config in enumerate(configs):
            try:
                rule = Rule.parse(config)
                if rule.key in seen:
                    raise RuleError("key", f"{rule.key!r} is used by two rules")
            except RuleError as error:
                where = f"rules[{i}].{error.field}" if error.field else f"rules[{i}]"
                raise RuleError(where, error.message) from None
            seen.add(rule.key)
            rules.append(rule)
        return cls(rules, etag)

    def matching(self, facts: Facts) -> list[Rule]:
        """The enabled rules for a call, in the order they run; where its body is not known, also those that may be."""
        if facts.unread:
            guards = [r for r in self.rules if r.enabled and r.is_guard and r.match.fits_unread(facts)]
            others = self.matching(msgspec.structs.replace(facts, unread=False))
            return [r for r in self.rules if r in guards or r in others]
        kind = (facts.profile, facts.provider, facts.model, facts.call_role, facts.api_mode, facts.stream)
        candidates = self._candidates.get(kind)
        if candidates is None:
            candidates = tuple(r for r in self.rules if r.enabled and r.match.static(facts))
            if len(self._candidates) < 1024:
                self._candidates[kind] = candidates
        return [r for r in candidates if r.match.session_fits(r.key, facts.session_id)]

    def refusing(self, facts: Facts) -> Rule | None:
        """The first rule for a call that refuses it where the rules cannot be carried out."""
        if not self.closed:
            return None
        try:
            fitting: Sequence[Rule] = self.matching(facts)
        except Exception:  # then any of them may be for this call
            fitting = self.closed
        return next((r for r in self.closed if r in fitting), None)


@dataclass(frozen=True, slots=True)
class Decision:
    """What the rules decided about a call beyond its body: an effect, and by whom."""

    key: str
    revision: int | None
    effect: Effect


@dataclass(slots=True)
class Stage:
    """One rule's run, before it is written down."""

    rule: Rule
    result: Result
    before: Draft
    after: Draft
    duration_us: float
    patch: list[PatchOp]
    error: str | None = None
    plain: bool = True  # whether Relay can hold the patch as it is


@dataclass(slots=True)
class Outcome:
    """What a rule set made of a call."""

    draft: Draft
    stages: list[Stage]
    decision: Decision | None
    etag: str

    @property
    def redactors(self) -> tuple[Redactor, ...]:
        return self.draft.redactors

    @property
    def plain(self) -> bool:
        """Whether Relay can hold all that the rules put into the body as it is."""
        return all(stage.plain for stage in self.stages)

    def rewrites(self) -> list[Rewrite]:
        """The ledger entries, redacted like the bodies and escaped for Relay."""
        rewrites: list[Rewrite] = []
        known: dict[int, int] = {}
        for i, stage in enumerate(self.stages):
            for body in (stage.before.body, stage.after.body):
                if id(body) not in known:
                    known[id(body)] = size(body)
            from_to = known[id(stage.before.body)], known[id(stage.after.body)]
            rewrites.append(_rewrite(i, stage, self.redactors, self.etag, from_to))
        return rewrites


def run(
    rules: RuleSet,
    body: dict[str, Any],
    facts: Facts,
    headers: dict[str, Any] | None = None,
    tally: Failures | None = None,
) -> Outcome:
    """Runs the set over one request. Never raises: a failing rule is reported, and blocks only if it fails closed.

    Failures are counted in `tally`, for live calls (None) the process's own.
    """
    draft = Draft(body, facts, headers or {})
    stages: list[Stage] = []
    decision: Decision | None = None
    for rule in rules.matching(facts):
        stage = _run_one(rule, draft, failures if tally is None else tally)
        stages.append(stage)
        if rule.mode == "shadow":
            continue
        if stage.result == "error":
            if rule.on_error == "closed":
                decision = Decision(rule.key, rule.revision, Block(f"intercept {rule.key} failed: {stage.error}"))
                break
            continue
        if stage.result != "miss":
            draft = stage.after
        if draft.effect is not None:
            decision = Decision(rule.key, rule.revision, draft.effect)
            draft = draft.but(effect=None)
            if not (isinstance(decision.effect, Fault) and decision.effect.status is None):
                break
        if rule.break_chain and stage.result != "miss":
            break
    return Outcome(draft, stages, decision, rules.etag)


def _run_one(rule: Rule, draft: Draft, tally: Failures) -> Stage:
    disabled = tally.disabled(rule)
    if disabled:
        return Stage(rule, "error", draft, draft, 0.0, [], disabled)
    if draft.facts.unread and rule.on_error == "closed" and not isinstance(rule.action, Redact):
        return Stage(rule, "error", draft, draft, 0.0, [], _UNREAD)  # the client's fault: not counted as the rule's
    started = time.perf_counter()
    error: str | None = None
    patch: list[PatchOp] = []
    after = draft
    try:
        after = rule.action.apply(draft)
        if not isinstance(after, Draft) or not isinstance(after.body, dict):
            error, after = f"returned {type(after).__name__} instead of a request", draft
        elif after.body is not draft.body and draft.facts.unread:
            return Stage(rule, "error", draft, draft, 0.0, [], _UNREAD)  # it goes out as it came
        elif after.body is not draft.body:
            patch = json_patch.diff(draft.body, after.body)
    except Exception as raised:
        error, after = f"{type(raised).__name__}: {raised}", draft
    took = time.perf_counter() - started
    if error is None and took > SLOW_S:
        error, after = f"took {took:.1f} s (limit {SLOW_S:g} s)", draft
    tally.note(rule, error)
    if error is not None:
        return Stage(rule, "error", draft, draft, took * 1e6, [], error)
    return Stage(rule, _result(draft, after, patch), draft, after, took * 1e6, patch, None, holds(patch))


_RESULTS: dict[type[Effect], Result] = {Block: "block", Respond: "respond", Fault: "fault"}


def _result(before: Draft, after: Draft, patch: list[PatchOp]) -> Result:
    if after.effect is not None:
        return _RESULTS[type(after.effect)]
    return "hit" if patch or after.headers != before.headers or after.redactors != before.redactors else "miss"


def redactors(rules: RuleSet, facts: Facts) -> tuple[Redactor, ...]:
    """How the set redacts the record of a call, told without running it."""
    if not rules.redacts:
        return ()
    return tuple(
        rule.action.redacted
        for rule in rules.matching(facts)
        if rule.mode == "enforce" and isinstance(rule.action, Redact)
    )


def redacted(value: Any, redactors: Sequence[Redactor]) -> Any:
    """`value` as it may be recorded; nothing of it where redaction fails."""
    try:
        for redact in redactors:
            value = redact(value)
    except Exception:
        _log.exception("redaction failed; the value is left out of the record")
        return {} if isinstance(value, dict) else "[redaction failed]"
    return value


def size(body: Any) -> int:
    """Bytes of `body` as compact UTF-8 JSON."""
    try:
        return len(msgspec.json.encode(body))
    except (TypeError, ValueError, RecursionError):
        return len(canonical(escape(body)[0]) or "")


def _rewrite(position: int, stage: Stage, redactors: Sequence[Redactor], etag: str, sizes: tuple[int, int]) -> Rewrite:
    rule, before, after = stage.rule, stage.before, stage.after
    patch = stage.patch
    if patch and redactors:
        patch = json_patch.diff(redacted(before.body, redactors), redacted(after.body, redactors))
    rewrite = Rewrite(
        position=position,
        key=rule.key,
        revision=rule.revision,
        title=rule.title,
        action=rule.action.type,
        priority=rule.priority,
        mode=rule.mode,
        result=stage.result,
        patch=patch,
        headers=changed_headers(before.headers, after.headers),
        duration_us=round(stage.duration_us, 1),
        bytes_before=sizes[0],
        bytes_after=sizes[1],
        ruleset=etag,
    )
    if isinstance(after.effect, Block):
        rewrite["reason"] = redacted(after.effect.reason, redactors)
    if stage.error is not None:
        rewrite["error"] = redacted(stage.error, redactors)
    escaped: Rewrite = escape(rewrite)[0]
    return escaped


def foreign(position: int, names: list[str], before: Any, after: Any, etag: str | None) -> Rewrite:
    """The ledger entry of what intercepts that are not ours did, all together: before our rules, or after them."""
    entry = Rewrite(
        position=position,
        key="foreign",
        revision=None,
        title="Intercept of the host",
        action="foreign",
        priority=0,
        mode="enforce",
        result="hit",
        patch=json_patch.diff(before, after),
        headers=names,
        duration_us=0.0,
        bytes_before=size(before),
        bytes_after=size(after),
        ruleset=etag or "",
    )
    escaped: Rewrite = escape(entry)[0]
    return escaped


failures = Failures()
_current = RuleSet()
_swap_lock = threading.Lock()


def current() -> RuleSet:
    """The set in force."""
    return _current


def swap(rules: RuleSet) -> RuleSet:
    """Puts `rules` in force for calls that start from now on, and returns the set that was. Atomic."""
    global _current
    with _swap_lock:
        previous, _current = _current, rules
    return previous
