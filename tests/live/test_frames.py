"""Frames: columns, merging, text that is no Unicode."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from relayweb.live import frames

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(st.characters(codec=None)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def test_a_column_that_nobody_fills_is_left_out() -> None:
    made = frames.turn_columns([{"uuid": "a", "status": "ok"}, {"uuid": "b", "status": "failed", "asked": "why"}])
    assert made == {"uuid": ["a", "b"], "status": ["ok", "failed"], "asked": [None, "why"]}


@given(json_values)
def test_any_value_becomes_json(value: Any) -> None:
    json.loads(frames.dumps({"value": value}))


def test_merging_keeps_the_last_state_of_a_row_and_every_chunk() -> None:
    first = frames.encode(
        5,
        turn={"status": "running"},
        nodes={"uuid": ["a", "b"], "status": ["running", "running"]},
        chunks={"attempt": ["a"], "index": [0], "at_us": [1], "kind": ["t"], "size": [2], "text": ["hi"]},
        newest_us=9,
    )
    second = frames.encode(
        7,
        nodes={"uuid": ["b", "c"], "status": ["ok", "running"], "outcome": ["success", None]},
        chunks={"attempt": ["a"], "index": [1], "at_us": [2], "kind": ["t"], "size": [3], "text": [" ho"]},
    )
    made = json.loads(frames.merge([first, second]))
    assert made["cursor"] == 7
    assert made["turn"] == {"status": "running"}
    assert made["newest_us"] == 9
    assert dict(zip(made["nodes"]["uuid"], made["nodes"]["status"], strict=True)) == {
        "a": "running",
        "b": "ok",
        "c": "running",
    }
    assert made["nodes"]["outcome"] == [None, "success", None]
    assert made["chunks"]["index"] == [0, 1]
    assert made["chunks"]["text"] == ["hi", " ho"]


def test_one_frame_is_passed_on_as_it_is() -> None:
    frame = frames.encode(3)
    assert frames.merge([frame]) is frame
