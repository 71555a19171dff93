from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relayweb.recording.reading.query_language import FIELDS, Compare, Match, QueryError, Text, parse

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
NOON_US = 1_767_268_800_000_000


def one(source):
    (term,) = parse(source, now=NOW).terms
    return term


@pytest.mark.parametrize(
    ("source", "term"),
    [
        ("status:failed", Match("status", ("failed",))),
        ("status:failed,cancelled", Match("status", ("failed", "cancelled"))),
        ("-status:ok", Match("status", ("ok",), negated=True)),
        ("is:running", Match("is", ("running",))),
        ("model:gpt-*", Match("model", ("gpt-*",))),
        ("role:auxiliary:*", Match("role", ("auxiliary:*",))),
        ('session:"a b, c"', Match("session", ("a b, c",))),
        ("-profile:ci-*", Match("profile", ("ci-*",), negated=True)),
        ("retries:>0", Compare("retries", ">", 0)),
        ("retries:2", Compare("retries", "=", 2)),
        ("tokens:1k..2.5k", Compare("tokens", "..", 1000, 2500)),
        ("rewritten:yes", Match("rewritten", ("yes",))),
        ("rewritten:no", Match("rewritten", ("yes",), negated=True)),
        ("-rewritten:no", Match("rewritten", ("yes",))),
        ("dur:>5s", Compare("dur", ">", 5e6)),
        ("dur:<=250ms", Compare("dur", "<=", 250e3)),
        ("dur:1m..1h", Compare("dur", "..", 60e6, 3600e6)),
        ("ttft:>2", Compare("ttft", ">", 2e6)),
        ("cost:>0.1", Compare("cost", ">", 0.1)),
        ("since:2h", Compare("start", ">=", NOON_US - 7200e6)),
        ("until:2026-01-01", Compare("start", "<", NOON_US - 12 * 3600e6)),
        ("since:2026-01-01T13:00+01:00", Compare("start", ">=", NOON_US)),
        ("STATUS:Failed", Match("status", ("failed",))),
        ('"two words"', Text("two words")),
        ('-"two words"', Text("two words", negated=True)),
        ("word", Text("word")),
        ("-word", Text("word", negated=True)),
        ("semi-colon", Text("semi-colon")),
    ],
)
def test_a_term_is_read_into_a_typed_value(source, term):
    assert one(source) == term


def test_terms_stand_side_by_side_with_any_space_between():
    assert parse('  status:failed\t"a  b"\n c ').terms == (Match("status", ("failed",)), Text("a  b"), Text("c"))
    assert parse("").terms == parse('  ""  ').terms == ()


@pytest.mark.parametrize(
    ("source", "column", "length", "suggestion"),
    [
        ("modle:gpt", 1, 6, "model:gpt"),
        ("ok -modle:gpt", 5, 6, "-model:gpt"),
        ("latency:>5s", 1, 8, "dur:>5s"),
        ("planet:mars", 1, 7, '"planet:mars"'),
        ("status:fialed", 8, 6, "status:failed"),
        ("status:ok,fialed", 11, 6, "status:failed"),
        ("status:purple", 8, 6, None),
        ("rewritten:maybe", 11, 5, "rewritten:yes"),
        ("retries:many", 9, 4, "retries:>0"),
        ("retries:>", 9, 1, "retries:>0"),
        ("dur:>5parsecs", 5, 9, "dur:>5s"),
        ("cost:$5", 6, 2, "cost:>0.10"),
        ("tokens:5..", 8, 3, "tokens:>0"),
        ("since:yesterday", 7, 9, "since:2h"),
        ("status:", 8, 1, "status:failed"),
        ("model:,", 7, 1, None),
        ('word "open', 6, 5, '"open"'),
    ],
)
def test_what_cannot_be_read_is_answered_with_its_column_and_a_mend(source, column, length, suggestion):
    with pytest.raises(QueryError) as error:
        parse(source)
    assert (error.value.column, error.value.length, error.value.suggestion) == (column, length, suggestion)
    assert error.value.message[-1] in ".?" or "example" in error.value.message


def test_a_query_has_an_end():
    with pytest.raises(QueryError, match="at most 2000 characters"):
        parse("x" * 2001)
    with pytest.raises(QueryError, match="at most 40 terms"):
        parse("x " * 41)


@given(st.text(max_size=60) | st.from_regex(r"(-?(status|dur|model|foo|since|cost):[^ ]{0,8} ?){1,4}", fullmatch=True))
def test_anything_typed_is_read_or_answered_with_a_column_inside_it(source):
    try:
        parse(source)
    except QueryError as error:
        assert 1 <= error.column <= len(source) + 1
        assert error.message


@given(st.text(max_size=60))
def test_a_suggestion_can_itself_be_read(source):
    try:
        parse(source)
    except QueryError as error:
        if error.suggestion and not any(c in error.suggestion for c in '"\0'):
            try:
                parse(error.suggestion)
            except QueryError as again:
                assert again.suggestion != error.suggestion


@pytest.mark.parametrize("name", FIELDS)
def test_a_field_without_a_value_is_told_one_that_it_takes(name: str) -> None:
    with pytest.raises(QueryError) as found:
        parse(f"{name}:")
    suggestion = found.value.suggestion
    assert suggestion and suggestion.startswith(f"{name}:") and parse(suggestion)
    assert name == "model" or "gpt" not in suggestion
