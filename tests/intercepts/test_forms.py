from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.intercepts import ACTIONS, Rule
from relayweb.intercepts import forms
from relayweb.intercepts.forms import ConfigForm, from_text, to_text
from relayweb.intercepts.models import InterceptConfig

pytestmark = pytest.mark.django_db

TYPED = {
    "title": "Cooler answers",
    "key": "cooler",
    "enabled": "on",
    "mode": "shadow",
    "priority": "100",
    "on_error": "open",
    "match_sample": "100",
    "action_type": "set_parameters",
    "action_parameters": "temperature: 0.2",
}


def filled(**changes: str) -> ConfigForm:
    return ConfigForm({**TYPED, **changes})


def test_what_is_typed_becomes_the_value_that_is_published():
    form = filled(match_model="gpt-* !gpt-4*, o3", match_stream="true", match_sample="12,5", priority="7")
    assert form.is_valid(), form.errors
    assert form.value == {
        "key": "cooler",
        "title": "Cooler answers",
        "enabled": True,
        "mode": "shadow",
        "priority": 7,
        "break_chain": False,
        "on_error": "open",
        "match": {"model": ["gpt-*", "!gpt-4*", "o3"], "stream": True, "sample": 12.5},
        "action": {"type": "set_parameters", "parameters": {"temperature": 0.2}},
    }


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"key": "No Spaces"}, "key", "dashes"),
        ({"title": ""}, "title", "required"),
        ({"priority": "high"}, "priority", "Whole number"),
        ({"match_sample": "half"}, "match_sample", "Number"),
        ({"match_sample": "120"}, "match_sample", "at most 100"),
        ({"action_parameters": ""}, "action_parameters", "required"),
        ({"action_parameters": "temperature 0.2"}, "action_parameters", "Line 1"),
        ({"action_parameters": "a: 1\na: 2"}, "action_parameters", "Line 2: a stands there twice"),
        ({"action_parameters": "messages: []"}, "action_parameters", "conversation"),
        ({"action_parameters": '{"a": '}, "action_parameters", "Not JSON at line 1"),
        ({"action_type": "headers", "action_set": "bad header: x"}, "action_set", "no header name"),
        ({"action_type": "redact", "action_patterns": "("}, "action_patterns", "no regular expression"),
        ({"action_type": "nothing_like_it"}, "action_type", "valid choice"),
    ],
)
def test_a_wrong_value_is_answered_at_its_field(changes, field, words):
    form = filled(**changes)
    assert not form.is_valid()
    assert list(form.errors) == [field]
    assert words in " ".join(form.errors[field])


def test_a_key_that_is_taken_is_refused_for_a_new_intercept_and_fixed_for_an_old_one(value):
    config = InterceptConfig.publish(value, "ann")
    assert "taken" in filled().errors["key"][0]
    changed = ConfigForm({**TYPED, "key": "another"}, config=config)
    assert changed.is_valid(), changed.errors
    assert changed.value["key"] == "cooler"


@pytest.mark.parametrize("kind", sorted(ACTIONS))
def test_every_action_has_a_field_for_each_of_its_values(kind):
    form = ConfigForm(action_type=kind)
    assert [field.name for field in form.action_fields()] == [f"action_{spec.name}" for spec in ACTIONS[kind].fields]


EXAMPLES: list[dict[str, Any]] = [
    {"type": "set_parameters", "parameters": {"temperature": 0, "stop": ["a", "b"], "user": "123", "x": None}},
    {"type": "remove_parameters", "names": ["top_p", "reasoning.effort"]},
    {"type": "headers", "set": {"x-team": "a: b"}, "remove": ["x-old"]},
    {"type": "system_text", "where": "append", "text": "  Two\nlines  ", "separator": " "},
    {"type": "block", "message": "No."},
    {"type": "redact", "paths": ["$..email"], "patterns": ["a+"], "pii": ["email"], "replacement": "-"},
]


@pytest.mark.parametrize("action", EXAMPLES, ids=lambda action: action["type"])
def test_a_stored_config_comes_back_unchanged_from_its_own_form(value, action):
    stored = {**value, "match": {"model": ["a*"], "stream": False, "sample": 10.0}, "action": action}
    Rule.parse(stored)
    config = InterceptConfig.publish(stored, "ann")
    shown = ConfigForm(config=config)
    typed: dict[str, Any] = {}
    for field in shown:
        typed[field.html_name] = field.value() if field.value() is not True else "on"
    typed = {name: item for name, item in typed.items() if item is not False and item is not None}
    form = ConfigForm(typed, config=config)
    assert form.is_valid(), form.errors
    assert form.value == stored


_names = st.text(st.characters(categories=["L", "N"], include_characters="._-"), min_size=1)
_items = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(_names, _items, min_size=1, max_size=5))
def test_any_parameters_read_back_as_they_were_shown(parameters):
    shown = to_text("json_object", parameters)
    assert json.dumps(from_text("json_object", shown)) == json.dumps(parameters)


def test_messages_of_the_rule_start_like_sentences():
    assert forms.sentence("must be text") == "Must be text"
