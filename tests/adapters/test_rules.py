"""Rules as values: parsing, matching, order, shadow, failures."""

from __future__ import annotations

import copy
import dataclasses
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters import json_patch
from adapters.actions.base import Action, Block, Draft, Facts, Field
from adapters.intercepts import ACTIONS, Rule, RuleError, RuleSet, failures, preview, swap
from adapters.rule_failures import MAX_FAILURES
from adapters.rules import run
from tests.adapters.relay_calls import MODES, body, text

COOL = {"type": "set_parameters", "parameters": {"temperature": 0}}


def rule(key: str = "k", **more: Any) -> dict[str, Any]:
    return {"key": key, "action": COOL, **more}


def keys(rewrites: list[Any]) -> list[str]:
    return [r["key"] for r in rewrites]


# -- parsing -----------------------------------------------------------------------------------------------------------


def test_a_full_config_becomes_a_typed_value() -> None:
    parsed = Rule.parse(
        rule(
            title="Cool",
            revision=7,
            enabled=False,
            mode="shadow",
            priority=-5,
            break_chain=True,
            on_error="closed",
            match={"model": "gpt-*", "call_role": ["primary", "auxiliary:*"], "stream": True, "sample": 12.5},
        )
    )
    assert (parsed.key, parsed.title, parsed.revision, parsed.enabled) == ("k", "Cool", 7, False)
    assert (parsed.mode, parsed.priority, parsed.break_chain, parsed.on_error) == ("shadow", -5, True, "closed")
    assert (parsed.match.model, parsed.match.call_role) == (("gpt-*",), ("primary", "auxiliary:*"))
    assert (parsed.match.stream, parsed.match.sample) == (True, 12.5)


def test_forms_may_send_empty_values_for_what_is_not_set() -> None:
    parsed = Rule.parse(
        rule(match={"model": "", "profile": None, "stream": None, "sample": ""}, revision=None, priority="")
    )
    assert parsed.match.model == () and parsed.match.sample == 100 and parsed.priority == 100


@pytest.mark.parametrize(
    "config, field, says",
    [
        ({"action": COOL}, "key", "is required"),
        (rule(key=""), "key", "must not be empty"),
        (rule(key=5), "key", "must be text"),
        (rule(mode="dry"), "mode", "must be one of enforce, shadow"),
        (rule(priority="high"), "priority", "must be a whole number"),
        (rule(enabled=1), "enabled", "must be true or false, not a number"),
        (rule(on_error="ignore"), "on_error", "must be one of open, closed"),
        (rule(revision=-1), "revision", "must be at least 0"),
        (rule(color="red"), "color", "is not known"),
        (rule(match=[1]), "match", "must be an object"),
        (rule(match={"modle": "x"}), "match.modle", "is not known; a match has"),
        (rule(match={"model": [1]}), "match.model", "entry 1 must be a text"),
        (rule(match={"stream": "yes"}), "match.stream", "true or false"),
        (rule(match={"sample": 101}), "match.sample", "must be at most 100"),
        (rule(match={"sample": float("nan")}), "match.sample", "must be a number"),
        ({"key": "k"}, "action", "is required"),
        ({"key": "k", "action": "block"}, "action", "must be an object with a type"),
        ({"key": "k", "action": {}}, "action.type", "must be one of set_parameters"),
        ({"key": "k", "action": {"type": ["block"]}}, "action.type", "must be one of"),
    ],
)
def test_an_error_names_field_and_mend(config: dict[str, Any], field: str, says: str) -> None:
    with pytest.raises(RuleError) as error:
        Rule.parse(config)
    assert (error.value.field, says in error.value.message) == (field, True)
    assert str(error.value) == f"{field}: {error.value.message}"


@pytest.mark.parametrize("config", [None, 5, "x", []])
def test_a_rule_that_is_no_object(config: Any) -> None:
    with pytest.raises(RuleError, match="must be an object"):
        Rule.parse(config)


def test_an_error_in_a_set_names_the_rule() -> None:
    with pytest.raises(RuleError) as error:
        RuleSet.parse([rule("a"), {"key": "b", "action": {"type": "block"}}])
    assert error.value.field == "rules[1].action.message"
    with pytest.raises(RuleError, match=r"rules\[1\].key: 'a' is used by two rules"):
        RuleSet.parse([rule("a"), rule("a")])


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text(max_size=5), below, max_size=3),
    max_leaves=8,
)


@given(data=st.data())
def test_any_junk_is_a_rule_error_or_a_rule(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(sorted(ACTIONS)))
    names = [f.name for f in ACTIONS[kind].fields]
    action = {"type": kind, **data.draw(st.dictionaries(st.sampled_from(names), junk, max_size=len(names)))}
    config = {
        "key": "k",
        "action": action,
        **data.draw(st.dictionaries(st.sampled_from(["match", "mode", "priority"]), junk)),
    }
    try:
        parsed = Rule.parse(config)
    except RuleError as error:
        assert error.field and error.message
        return
    for api_mode in MODES:
        preview(RuleSet([parsed]), body(api_mode), api_mode=api_mode)
    failures.clear()


def test_every_field_can_draw_its_form() -> None:
    kinds = {"text", "textarea", "bool", "integer", "number", "choice", "list", "mapping", "json", "json_object"}
    for action in ACTIONS.values():
        assert {f.name for f in action.fields} == {f.name for f in dataclasses.fields(action)}
        for field in action.fields:
            assert field.kind in kinds and field.help
            assert (field.kind != "choice") or field.choices
            assert not (field.required and field.default is not None)


# -- matching ----------------------------------------------------------------------------------------------------------

FACTS = {
    "api_mode": "chat_completions",
    "provider": "openai",
    "model": "gpt-4o-mini",
    "profile": "work",
    "call_role": "auxiliary:title",
    "session_id": "s-1",
    "stream": True,
}


def matched(facts: dict[str, Any] | None = None, **match: Any) -> bool:
    rule_set = RuleSet.parse([rule(match=match)])
    return bool(rule_set.matching(Facts(**{**FACTS, **(facts or {})})))


@pytest.mark.parametrize(
    "match, fits",
    [
        ({}, True),
        ({"model": "gpt-4*"}, True),
        ({"model": ["o1", "gpt-?o-*"]}, True),
        ({"model": "GPT-4*"}, False),
        ({"model": "gpt-4"}, False),
        ({"model": ["gpt-*", "!*-mini"]}, False),
        ({"model": ["!o1*"]}, True),
        ({"provider": "open*", "api_mode": "chat_*", "profile": "work", "session": "s-*"}, True),
        ({"provider": "open*", "profile": "home"}, False),
        ({"call_role": "auxiliary:*"}, True),
        ({"call_role": "primary"}, False),
        ({"session": "t-*"}, False),
        ({"stream": True}, True),
        ({"stream": False}, False),
        ({"sample": 0}, False),
        ({"sample": 100}, True),
    ],
)
def test_matches(match: dict[str, Any], fits: bool) -> None:
    assert matched(**match) is fits


def test_an_unknown_fact_matches_only_where_nothing_is_asked() -> None:
    assert matched({"model": None, "session_id": None, "profile": None})
    assert not matched({"model": None}, model="?*")
    assert matched({"model": None}, model="*")


def test_sampling_is_stable_in_a_session_and_near_its_share() -> None:
    rule_set = RuleSet.parse([rule(match={"sample": 25})])
    hits = [bool(rule_set.matching(Facts(session_id=f"session-{i}"))) for i in range(2000)]
    assert hits == [bool(rule_set.matching(Facts(session_id=f"session-{i}"))) for i in range(2000)]
    assert 420 < sum(hits) < 580


def test_two_rules_sample_different_sessions() -> None:
    rule_set = RuleSet.parse([rule("a", match={"sample": 50}), rule("b", match={"sample": 50})])
    found = [{r.key for r in rule_set.matching(Facts(session_id=str(i)))} for i in range(200)]
    assert {frozenset(f) for f in found} == {frozenset(s) for s in ((), ("a",), ("b",), ("a", "b"))}


def test_a_set_keeps_no_more_than_a_bounded_memory_of_calls() -> None:
    rule_set = RuleSet.parse([rule(match={"model": "m-*"})])
    for i in range(3000):
        assert rule_set.matching(Facts(model=f"m-{i}"))
    assert len(rule_set._candidates) <= 1024


# -- order, shadow, chain ----------------------------------------------------------------------------------------------


def seed(key: str, value: int, **more: Any) -> dict[str, Any]:
    return {"key": key, "action": {"type": "set_parameters", "parameters": {"seed": value}}, **more}


def test_lower_priorities_run_first_then_keys() -> None:
    rule_set = RuleSet.parse([seed("z", 1, priority=1), seed("b", 2), seed("a", 3), seed("y", 4, priority=-1)])
    rewrites, sent, _ = preview(rule_set, {}, api_mode="chat_completions")
    assert keys(rewrites) == ["y", "z", "a", "b"] and sent == {"seed": 2}
    assert [r["position"] for r in rewrites] == [0, 1, 2, 3]


def test_a_disabled_rule_does_not_run() -> None:
    assert preview(RuleSet.parse([seed("a", 1, enabled=False)]), {}, api_mode="x") == ([], {}, None)


def test_the_patches_lead_from_the_apps_body_to_the_providers() -> None:
    configs = [
        seed("a", 1),
        {"key": "b", "action": {"type": "system_text", "where": "append", "text": "x"}},
        {"key": "c", "action": {"type": "trim_history", "keep_messages": 1}},
        seed("d", 1, mode="shadow"),
        {"key": "e", "action": {"type": "tools", "mode": "drop", "names": ["write"]}},
    ]
    for api_mode in MODES:
        rewrites, sent, _ = preview(RuleSet.parse(configs), request := body(api_mode), api_mode=api_mode)
        stage: Any = request
        for rewrite in rewrites:
            if rewrite["mode"] == "enforce":
                stage = json_patch.apply(stage, rewrite["patch"])
        assert text(stage) == text(sent)
        assert request == body(api_mode)


def test_shadow_is_computed_and_reported_but_not_applied() -> None:
    rules = [
        seed("a", 1, mode="shadow"),
        {"key": "b", "mode": "shadow", "action": {"type": "block", "message": "no"}},
        seed("c", 2),
    ]
    rewrites, sent, decision = preview(RuleSet.parse(rules), {}, api_mode="chat_completions")
    assert [(r["key"], r["mode"], r["result"]) for r in rewrites] == [
        ("a", "shadow", "hit"),
        ("b", "shadow", "block"),
        ("c", "enforce", "hit"),
    ]
    assert rewrites[0]["patch"] == [{"op": "add", "path": "/seed", "value": 1}]
    assert sent == {"seed": 2} and decision is None


def test_a_shadow_redaction_hides_nothing() -> None:
    config = {"key": "r", "mode": "shadow", "action": {"type": "redact", "patterns": ["x"]}}
    assert run(RuleSet.parse([config]), {}, Facts()).redactors == ()


@pytest.mark.parametrize("breaks, ran", [(True, ["a"]), (False, ["a", "b"])])
def test_break_chain_ends_the_chain_for_the_calls_a_rule_changed(breaks: bool, ran: list[str]) -> None:
    rule_set = RuleSet.parse([seed("a", 1, break_chain=breaks, match={"model": "m"}), seed("b", 2)])
    assert keys(preview(rule_set, {}, api_mode="x", model="m")[0]) == ran
    assert keys(preview(rule_set, {}, api_mode="x", model="n")[0]) == ["b"]
    assert keys(preview(rule_set, {"seed": 1}, api_mode="x", model="m")[0]) == ["a", "b"]


def test_a_preview_matches_the_model_of_the_body_where_none_is_said() -> None:
    rule_set = RuleSet.parse([seed("a", 1, match={"model": "m"})])
    assert keys(preview(rule_set, {"model": "m"}, api_mode="x")[0]) == ["a"]
    assert keys(preview(rule_set, {"model": 5}, api_mode="x")[0]) == []


# -- rules that fail ---------------------------------------------------------------------------------------------------


class Odd(Action):
    """An action of the tests that does what it is given."""

    type = "odd"
    title = "Odd"
    fields = (Field("x"),)

    def __init__(self, does: Any) -> None:
        self.does = does

    def apply(self, draft: Draft) -> Draft:
        return self.does(draft)  # type: ignore[no-any-return]


def _raise(_draft: Draft) -> Draft:
    raise KeyError("boom")


def _slow(draft: Draft) -> Draft:
    time.sleep(0.15)
    return draft.with_body({"slow": True})


ODD = {
    "raises": (_raise, "KeyError: 'boom'"),
    "returns None": (lambda _draft: None, "returned NoneType instead of a request"),
    "returns a list as body": (lambda draft: draft.with_body([1]), "returned Draft instead of a request"),
    "takes long": (_slow, "took "),
}


@pytest.fixture(autouse=True)
def fresh_failures() -> Any:
    failures.clear()
    yield
    failures.clear()
    failures.on_disabled = None


@pytest.mark.parametrize("name", ODD)
def test_a_failing_rule_fails_open_or_closed_as_it_says(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("adapters.rules.SLOW_S", 0.1)
    does, says = ODD[name]
    last = Rule.parse(seed("z", 1))
    rewrites, sent, decision = preview(RuleSet([Rule("odd", Odd(does)), last]), {"a": 1}, api_mode="x")
    assert (keys(rewrites), sent, decision) == (["odd", "z"], {"a": 1, "seed": 1}, None)
    assert (rewrites[0]["result"], rewrites[0]["patch"]) == ("error", []) and rewrites[0]["error"].startswith(says)
    rewrites, sent, decision = preview(
        RuleSet([Rule("odd", Odd(does), on_error="closed"), last]), {"a": 1}, api_mode="x"
    )
    assert (keys(rewrites), sent) == (["odd"], {"a": 1})
    assert decision is not None and isinstance(decision.effect, Block)
    assert decision.effect.reason.startswith(f"intercept odd failed: {says}")


def test_a_failing_shadow_rule_never_blocks() -> None:
    rule_set = RuleSet([Rule("odd", Odd(_raise), on_error="closed", mode="shadow")])
    rewrites, _, decision = preview(rule_set, {}, api_mode="x")
    assert rewrites[0]["result"] == "error" and decision is None


def test_an_action_that_changes_the_body_in_place_does_not_touch_the_apps() -> None:
    # Actions must not; the app's own object is the one thing that may never suffer from it.
    for api_mode in MODES:
        request = body(api_mode)
        for kind in ACTIONS.values():
            assert kind.apply is not Action.apply
        before = copy.deepcopy(request)
        preview(RuleSet.parse([seed("a", 1)]), request, api_mode=api_mode)
        assert request == before


def live(*rules: Rule) -> tuple[list[Any], Any]:
    """As the dispatcher runs them: failures count."""
    outcome = run(RuleSet(rules), {}, Facts())
    return outcome.rewrites(), outcome.decision


def test_a_preview_counts_no_failures_of_live_calls() -> None:
    for _ in range(MAX_FAILURES + 1):
        preview(RuleSet([Rule("p", Odd(_raise))]), {}, api_mode="x")
    assert failures.disabled(Rule("p", Odd(_raise))) is None


def test_a_rule_that_keeps_failing_is_disabled_with_a_notice_and_still_fails_as_it_says() -> None:
    told: list[tuple[str, str]] = []
    failures.on_disabled = lambda key, reason: told.append((key, reason))
    calls: list[int] = []

    def boom(_draft: Draft) -> Draft:
        calls.append(1)
        raise KeyError("boom")

    opened, closed = Rule("o", Odd(boom), revision=1), Rule("c", Odd(boom), revision=1, on_error="closed", priority=200)
    for _ in range(MAX_FAILURES + 3):
        rewrites, decision = live(opened, closed)
    assert len(calls) == 2 * MAX_FAILURES
    reason = f"disabled after {MAX_FAILURES} failures in a row, the last: KeyError: 'boom'"
    assert told == [("o", reason), ("c", reason)]
    assert [(r["result"], r["error"]) for r in rewrites] == [("error", reason)] * 2
    assert decision is not None and isinstance(decision.effect, Block)


def test_a_success_starts_the_count_anew_and_a_new_revision_has_a_new_chance() -> None:
    outcomes = iter([True] * (MAX_FAILURES - 1) + [False] + [True] * (MAX_FAILURES - 1) + [False, True])

    def sometimes(draft: Draft) -> Draft:
        return _raise(draft) if next(outcomes) else draft

    for _ in range(2 * MAX_FAILURES):
        live(Rule("s", Odd(sometimes)))
    assert failures.disabled(Rule("s", Odd(sometimes))) is None
    for _ in range(MAX_FAILURES):
        live(Rule("r", Odd(_raise), revision=1))
    assert failures.disabled(Rule("r", Odd(_raise), revision=1))
    assert failures.disabled(Rule("r", Odd(_raise), revision=2)) is None
    failures.clear("r")
    assert failures.disabled(Rule("r", Odd(_raise), revision=1)) is None


def test_a_notice_that_fails_harms_nobody() -> None:
    failures.on_disabled = lambda _key, _reason: 1 / 0
    for _ in range(MAX_FAILURES + 1):
        rewrites, _ = live(Rule("r", Odd(_raise)))
    assert "disabled" in rewrites[0]["error"]


def test_swap_returns_the_set_that_was() -> None:
    one, two = RuleSet.parse([], "1"), RuleSet.parse([], "2")
    before = swap(one)
    assert swap(two) is one
    assert swap(before) is two
