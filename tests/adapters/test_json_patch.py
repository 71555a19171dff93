"""JSON Patch: what it applies, refuses and finds."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.json_patch import PatchError, TestFailed, apply, diff, get
from adapters.json_values import same

values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([1.0, 0.0, "", "a", "\ud83d", 2**70]),
    lambda below: (
        st.lists(below, max_size=6)
        | st.dictionaries(st.sampled_from(["a", "b", "/", "~", "", "~1", "0"]), below, max_size=4)
    ),
    max_leaves=25,
)


@given(before=values, after=values)
def test_a_diff_applied_gives_exactly_the_other_value(before: Any, after: Any) -> None:
    kept = copy.deepcopy(before)
    assert same(apply(before, diff(before, after)), after)
    assert same(before, kept)


@given(items=st.lists(st.integers(0, 5), max_size=12), others=st.lists(st.integers(0, 5), max_size=12))
def test_lists_of_few_values_too(items: list[int], others: list[int]) -> None:
    patch = diff(items, others)
    assert apply(items, patch) == others
    assert len(patch) <= len(items) + len(others)


@given(value=values)
def test_equal_values_have_no_diff(value: Any) -> None:
    assert diff(value, copy.deepcopy(value)) == []


def test_patches_are_small() -> None:
    messages = [{"role": "user", "content": f"message {i}"} for i in range(300)]
    before = {"model": "m", "messages": messages}
    inserted = {"model": "m", "messages": [{"role": "system", "content": "s"}, *messages]}
    assert diff(before, inserted) == [{"op": "add", "path": "/messages/0", "value": {"role": "system", "content": "s"}}]
    assert diff(inserted, before) == [{"op": "remove", "path": "/messages/0"}]
    edited = copy.deepcopy(before)
    edited["messages"][7]["content"] = "other"
    edited["messages"].insert(9, {"role": "user", "content": "new"})
    del edited["messages"][200]
    assert [(op["op"], op["path"]) for op in diff(before, edited)] == [
        ("replace", "/messages/7/content"),
        ("add", "/messages/9"),
        ("remove", "/messages/200"),
    ]


def test_a_long_list_that_changed_everywhere_is_still_exact() -> None:
    before, after = list(range(900)), [i + 0.5 for i in range(500)]
    assert apply(before, diff(before, after)) == after


def test_pointers_escape_tilde_and_slash() -> None:
    assert diff({"a/b~": 1}, {"a/b~": 2}) == [{"op": "replace", "path": "/a~1b~0", "value": 2}]
    assert get({"a/b~": [{"": 5}]}, "/a~1b~0/0/") == 5


def test_the_operations_of_rfc_6902() -> None:
    body = {"a": [1, 2], "b": {"c": 1}}
    assert apply(body, [{"op": "add", "path": "/a/-", "value": 3}])["a"] == [1, 2, 3]
    assert apply(body, [{"op": "add", "path": "/b", "value": 0}])["b"] == 0
    assert apply(body, [{"op": "move", "from": "/b/c", "path": "/a/0"}]) == {"a": [1, 1, 2], "b": {}}
    assert apply(body, [{"op": "copy", "from": "/a", "path": "/b/d"}])["b"] == {"c": 1, "d": [1, 2]}
    assert apply(body, [{"op": "test", "path": "/b", "value": {"c": 1}}]) is body
    assert apply(body, [{"op": "replace", "path": "", "value": {}}]) == {}


@pytest.mark.parametrize(
    "op, says",
    [
        ({"op": "remove", "path": "/x"}, "/x: there is no member 'x'"),
        ({"op": "replace", "path": "/a/2", "value": 1}, "there is no element 2"),
        ({"op": "add", "path": "/a/3", "value": 1}, "there is no element 3"),
        ({"op": "add", "path": "/a/01", "value": 1}, "'01' is no list index"),
        ({"op": "remove", "path": "/a/-"}, "'-' is no list index"),
        ({"op": "add", "path": "/n/x", "value": 1}, "nothing below a int"),
        ({"op": "add", "path": "a", "value": 1}, "must be empty or start with '/'"),
        ({"op": "move", "from": "/a", "path": "/a/0"}, "moved into itself"),
        ({"op": "remove", "path": ""}, "cannot be removed"),
        ({"op": "merge", "path": "/a"}, "'merge' is no operation"),
    ],
)
def test_what_does_not_fit_is_named(op: dict[str, Any], says: str) -> None:
    with pytest.raises(PatchError, match=says):
        apply({"a": [1, 2], "n": 1}, [op])


@pytest.mark.parametrize(
    "op", [{"path": "/a", "value": True}, {"path": "/none", "value": 1}, {"path": "/a", "value": 1.0}]
)
def test_a_failed_test_has_an_error_of_its_own(op: dict[str, Any]) -> None:
    with pytest.raises(TestFailed):
        apply({"a": 1}, [{"op": "test", **op}])
