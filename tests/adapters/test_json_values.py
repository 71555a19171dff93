"""Conversion to JSON, the escaped copy, equality, and laying one body over another."""

from __future__ import annotations

import copy
import enum
import json
import math
from typing import Any

import nemo_relay
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from adapters.json_values import MAX_DEPTH, escape, frozen, holds, json_equal, overlay, same, to_json

# -- R78 ---------------------------------------------------------------------------------------------------------------


class Color(enum.Enum):
    RED = "red"


class Mode(enum.StrEnum):
    FAST = "fast"


class Level(enum.IntEnum):
    HIGH = 3


class Model(BaseModel):
    name: str
    raw: bytes = b"x"


class Plain:
    def __init__(self) -> None:
        self.shown, self._hidden = (1, 2), 3


class Dynamic:
    """Answers every attribute, as mocks and proxies do."""

    def __init__(self) -> None:
        self.real = 1

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} was touched")


class Broken(BaseModel):
    @classmethod
    def model_dump(cls, *args: Any, **kwargs: Any) -> Any:
        if kwargs or len(args) > 1:
            raise TypeError("no arguments, please")
        return {"fallback": True}


def test_R78_json_is_given_back_as_the_same_object() -> None:
    value = {"a": [1, 2.5, None, True, "x", {"b": []}], "big": 2**80, "odd": "\ud83d"}
    assert to_json(value) is value


def test_R78_containers_keys_and_enums() -> None:
    value = {1: (1, 2), "s": {3}, None: frozenset(), "e": Mode.FAST, "i": Level.HIGH, "t": True}
    assert to_json(value) == {"1": [1, 2], "s": [3], "None": [], "e": "fast", "i": 3, "t": True}
    assert type(to_json([Mode.FAST])[0]) is str


def test_R78_pydantic_models_are_dumped_through_their_class_in_json_mode() -> None:
    assert to_json({"m": Model(name="n")}) == {"m": {"name": "n", "raw": "x"}}
    assert to_json([Broken()]) == [{"fallback": True}]


def test_R78_other_objects_give_their_public_attributes_else_text() -> None:
    assert to_json(Plain()) == {"shown": [1, 2]}
    assert to_json(3j) == "3j"


def test_R78_dynamic_attributes_are_not_touched() -> None:
    assert to_json({"d": Dynamic()}) == {"d": {"real": 1}}


def test_R78_a_cycle_and_an_object_whose_text_fails_do_not_raise() -> None:
    loop: list[Any] = []
    loop.append(loop)

    class Mute:
        __slots__ = ()

        def __str__(self) -> str:
            raise RuntimeError("no text")

    assert to_json(loop) == [{"$deep": "list"}]
    assert to_json(Mute()) == "<Mute>"


# -- R79 ---------------------------------------------------------------------------------------------------------------


def test_R79_equality_is_that_of_canonical_json() -> None:
    assert json_equal({"a": 1, "b": [2]}, {"b": [2], "a": 1})
    assert json_equal((1, 2), [1, 2])
    assert not json_equal(1, 1.0) and not json_equal(True, 1) and not json_equal(None, 0)


def test_R79_what_is_not_serialisable_is_unequal() -> None:
    thing = object()
    assert not json_equal(thing, thing)
    assert not json_equal({"a": b""}, {"a": b""})
    assert not json_equal(math.nan, math.nan)


# -- R35 ---------------------------------------------------------------------------------------------------------------


def test_R35_what_relay_holds_is_not_copied() -> None:
    value = {"a": [2**64 - 1, -(2**63), "✅", 1e300]}
    assert escape(value) == (value, []) and escape(value)[0] is value


def test_R35_what_relay_cannot_hold_is_named_by_pointer() -> None:
    value = {"a/b": [2**64, {"~": "\udc00"}], "f": [math.inf, -math.inf], "b": b"\x01", "k\ud800": 1}
    copied, pointers = escape(value)
    assert copied == {
        "a/b": [{"$int": "18446744073709551616"}, {"~": "\\udc00"}],
        "f": [{"$float": "inf"}, {"$float": "-inf"}],
        "b": {"$bytes": "01"},
        "k\\ud800": 1,
    }
    assert pointers == ["/a~1b/0", "/a~1b/1/~0", "/f/0", "/f/1", "/b", "/k\\ud800"]


def test_R35_huge_integers_and_depths_do_not_raise() -> None:
    assert escape(10**5000)[0]["$int"].startswith("0x")
    deep: Any = 1
    for _ in range(20_000):
        deep = [deep]
    copied, pointers = escape(deep)
    assert pointers == ["/0" * (MAX_DEPTH + 1)]
    nemo_relay.LLMRequest({}, copied)


def test_R35_what_was_escaped_once_is_not_escaped_again() -> None:
    for depth in range(MAX_DEPTH - 3, MAX_DEPTH + 6):
        for bottom in (1, [], {"a": 1}):
            value: Any = bottom
            for _ in range(depth):
                value = [value]
            copied, _ = escape(value)
            assert escape(copied)[0] is copied and to_json(copied) is copied


leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(st.characters(codec=None)),
    st.binary(max_size=3),
)
values = st.recursive(
    leaves,
    lambda below: (
        st.lists(below, max_size=4) | st.dictionaries(st.text(st.characters(codec=None), max_size=4), below, max_size=4)
    ),
    max_leaves=20,
)


@given(value=values)
def test_R35_relay_takes_every_escaped_copy_and_the_original_stays(value: Any) -> None:
    before = copy.deepcopy(value)
    copied, pointers = escape(value)
    content = nemo_relay.LLMRequest({}, copied).content
    assert holds(copied) and frozen(content) == frozen(copied)
    assert bool(pointers) == (copied is not value)
    assert repr(value) == repr(before)


@given(value=values)
def test_R78_conversion_gives_json_types_only(value: Any) -> None:
    def check(item: Any) -> None:
        assert item is None or type(item) in (str, int, float, bool, bytes, list, dict)
        for below in item.values() if isinstance(item, dict) else item if isinstance(item, list) else ():
            check(below)

    check(to_json(value))


# -- overlay -----------------------------------------------------------------------------------------------------------

plain = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "a", 1.0]),
    lambda below: st.lists(below, max_size=4) | st.dictionaries(st.sampled_from("abcd"), below, max_size=4),
    max_leaves=15,
)


@given(original=plain, got=plain)
def test_an_overlay_over_a_faithful_baseline_says_what_the_other_side_says(original: Any, got: Any) -> None:
    assert same(overlay(original, copy.deepcopy(original), got), got)


@given(original=plain)
def test_an_overlay_of_nothing_new_is_the_original_itself(original: Any) -> None:
    assert overlay(original, copy.deepcopy(original), copy.deepcopy(original)) is original


def test_an_overlay_keeps_what_only_the_original_has_and_its_order() -> None:
    original = {"z": 1, "m": [{"role": "user", "x": {"q": 1}, "content": "a"}], "big": 2**70}
    baseline = {"m": [{"role": "user", "content": "a"}], "z": 1, "big": {"$int": "…"}}
    got = {"m": [{"role": "user", "content": "b"}], "new": 1, "z": 1, "big": {"$int": "…"}}
    out = overlay(original, baseline, got)
    assert json.dumps(out) == json.dumps(
        {"z": 1, "m": [{"role": "user", "x": {"q": 1}, "content": "b"}], "big": 2**70, "new": 1}
    )


def test_an_overlay_finds_the_original_elements_of_a_list_that_grew_or_shrank() -> None:
    original = [{"z": i, "a": i} for i in range(4)]
    baseline = [{"a": i} for i in range(4)]
    shrunk = overlay(original, baseline, [{"a": 0}, {"a": 3}])
    assert shrunk[0] is original[0] and shrunk[1] is original[3]
    moved = overlay(original, baseline, [{"a": 2}, {"a": 9}, {"a": 0}, {"a": 1}, {"a": 3}])
    assert [m.get("z") for m in moved] == [2, None, 0, 1, 3]


@pytest.mark.parametrize("a, b", [(1, 1.0), (1, True), (0, False), ([], {}), (None, 0), ("1", 1)])
def test_equal_looking_values_of_different_json_types_differ(a: Any, b: Any) -> None:
    assert not same(a, b) and not same([a], [b]) and not same({"k": a}, {"k": b})
