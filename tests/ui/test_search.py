from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from relayweb.recording.reading.query_language import QueryError, parse
from relayweb.ui import search


def test_a_query_is_cut_into_its_terms():
    chips = search.chips('status:failed -model:"a b" "what was said" word')
    assert [(chip.field, chip.value) for chip in chips] == [
        ("status:", "failed"),
        ("-model:", "a b"),
        ("", '"what was said"'),
        ("", "word"),
    ]


def test_each_chip_links_to_the_query_without_it():
    assert [chip.without for chip in search.chips("a:1 b:2")] == ["?q=b%3A2", "?q=a%3A1"]


def test_the_term_with_a_mistake_is_marked_and_mended():
    q = "status:failed modle:gpt-* is:running"
    try:
        parse(q)
    except QueryError as error:
        assert [chip.bad for chip in search.chips(q, error.column)] == [False, True, False]
        assert search.mended(q, error.column, error.suggestion) == "status:failed model:gpt-* is:running"
    else:
        raise AssertionError("modle: was taken")


def test_a_facet_adds_its_value_to_the_others_of_its_field_and_takes_it_out_again():
    assert search.toggled("", "status", "failed") == "status:failed"
    assert search.toggled("x status:failed", "status", "blocked") == "x status:blocked,failed"
    assert search.toggled("x status:blocked,failed", "status", "blocked") == "x status:failed"
    assert search.toggled("x status:failed", "status", "failed") == "x"


def test_a_value_with_spaces_is_quoted():
    assert search.toggled("", "model", "my model") == 'model:"my model"'
    assert search.toggled('model:"my model"', "model", "my model") == ""


def test_a_term_takes_the_place_of_others_of_its_field():
    assert search.with_term("since:1h model:a", "since:7d") == "model:a since:7d"


@given(st.text(max_size=60))
def test_cutting_any_text_loses_nothing_but_spaces(q):
    assert "".join("".join(chip.text for chip in search.chips(q)).split()) == "".join(q.split())


@given(st.text(max_size=60), st.integers(-1, 70))
def test_any_text_and_any_column_give_chips_of_which_at_most_one_is_bad(q, column):
    assert sum(chip.bad for chip in search.chips(q, column)) <= 2


@given(st.lists(st.sampled_from(["status:failed", "model:a,b", '"x y"', "-role:c", "word"]), max_size=5))
def test_toggling_twice_gives_back_a_query_of_the_same_meaning(terms):
    q = " ".join(terms)
    twice = search.toggled(search.toggled(q, "status", "ok"), "status", "ok")
    assert search.chosen(twice, "status") == search.chosen(q, "status")
    assert search.chosen(twice, "model") >= set()
    parse(twice)
