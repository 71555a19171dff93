"""The attribute view of a changed answer (R28)."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

from adapters.json_values import to_json
from adapters.views import AttributeView, view

VALUE: dict[str, Any] = {"id": "x", "choices": [{"message": {"content": "hi", "tool_calls": None}}], "get": 1}


def test_r28_members_are_attributes_and_items_at_any_depth() -> None:
    got = view(VALUE)
    assert got.choices[0].message.content == got["choices"][0]["message"]["content"] == "hi"
    assert got.choices[0].message.tool_calls is None
    assert (got.get("id"), got.get("none", 7)) == ("x", 7)
    assert "id" in got and list(got) == list(VALUE) and len(got) == 3


def test_r28_what_is_not_there_is_no_attribute() -> None:
    got = view(VALUE)
    assert not hasattr(got, "output")
    with pytest.raises(AttributeError, match="no member 'output'"):
        _ = got.output
    with pytest.raises(KeyError):
        _ = got["output"]


def test_r28_a_view_is_its_json() -> None:
    got = view(VALUE)
    assert got == VALUE and got.choices == VALUE["choices"]
    assert got.model_dump() is VALUE
    assert to_json(got) == VALUE
    assert "hi" in repr(got) and "choices" in dir(got)


def test_r28_a_view_can_be_changed_copied_and_pickled() -> None:
    got = view(copy.deepcopy(VALUE))
    got.id = "y"
    got.extra = view({"a": 1})
    assert got.model_dump()["extra"] == {"a": 1}
    for twin in (copy.copy(got), copy.deepcopy(got), pickle.loads(pickle.dumps(got))):
        assert isinstance(twin, AttributeView) and twin == got and twin.id == "y"
