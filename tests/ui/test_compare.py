from __future__ import annotations

from relayweb.recording.reading import queries
from relayweb.ui import compare


def test_two_turns_stand_side_by_side_with_what_differs_in_their_requests(viewer, record):
    a, b = record("Say hello.", model="gpt-5.2"), record("Say goodbye.", model="gpt-5.2", minute=1, seconds=4)
    page = viewer.get(f"/compare/?a={a}&b={b}").content.decode()
    assert "Say hello." in page and "Say goodbye." in page
    assert "+100 %" in page and "1 change from A to B" in page
    assert "<del>hello</del>" in page and "<ins>goodbye</ins>" in page


def test_two_attempts_are_compared_by_their_own_bodies(viewer, record):
    turns = [record("Say hello.", model=model) for model in ("gpt-5.2", "claude-x")]
    a, b = ([n["uuid"] for n in queries.turn_nodes(turn) if n["role"] == "attempt"][0] for turn in turns)
    page = viewer.get(f"/compare/?a={a}&b={b}").content.decode()
    assert "1 change from A to B" in page and "gpt-5.2" in page and "claude-x" in page
    same = viewer.get(f"/compare/?a={a}&b={a}").content.decode()
    assert "both are equal" in same


def test_one_side_is_offered_what_it_could_be_compared_with(viewer, record):
    a, b = record("One", minute=1), record("Two", minute=2)
    page = viewer.get(f"/compare/?a={a}").content.decode()
    assert f"b={b}" in page and f"b={a}" not in page
    assert f"a={b}" in viewer.get("/compare/").content.decode()


def test_an_id_that_names_nothing_is_said(viewer, record):
    record()
    page = viewer.get("/compare/?a=nonsense").content.decode()
    assert "Nothing with the id" in page and "nonsense" in page


def test_unknown_figures_have_no_difference():
    rows = compare.figures({"duration_us": None, "usage": {"input_tokens": 5}}, {"duration_us": 3, "usage": None})
    assert [(r["label"], r["a"], r["b"], r["delta"]) for r in rows] == [
        ("Duration", "–", "3 µs", ""),
        ("Read", "5", "–", ""),
    ]
