"""Regular expressions of rules: refused from their text alone where compiling them would take long."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.actions import patterns
from adapters.rules import Rule, RuleError

HUGE = [
    "(" * 20 + "a" + "){1,2}" * 20,
    "(" * 30 + "a" + ")+" * 30,
    "(" * 12 + "a" + "){2}" * 12,
    "(?:(?:ab){3000}){3000}",
    "(ab){10000000}",
    "(a){99999999999999999999}",
    r"(\(ab){60000}",
    "(a[)]b){60000}",
    "(a[^]()]b){60000}",
    "(?x)( ( ( ab ) {300} ) {300} )",
    "(?x)( ab #)\n {2}){300} ){300}",
    "((a|b+){200}c){200}",
    "(?:a{1000}){1000}",
]
FINE = [
    r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){3,7}\b",
    r"(?i)(?:https?://)?(?:[a-z0-9-]+\.)+[a-z]{2,}(?:/\S*)?",
    r"(?:[^()]|\((?:[^()]|\([^()]+\))+\))+",
    r"(?P<q>['\"])(?:\\.|(?!(?P=q)).)*(?P=q)",
    r"(?:abc){e<=3}",
    r".{1,10000}",
    r"a{3}",
    r"[[:alpha:]]+\p{L}{2,}+",
    "a?" * 1900,
    "(a)" * 1300,
    "(?:" * 90 + "ab" + ")*" * 90,
]


@pytest.mark.parametrize("pattern", HUGE)
def test_a_pattern_that_would_take_long_to_compile_is_refused_at_once(pattern: str) -> None:
    began = time.process_time()
    for action in ({"type": "regex_replace", "pattern": pattern}, {"type": "redact", "patterns": [pattern]}):
        with pytest.raises(RuleError, match="repeats too much: written out it has more than 50000 parts") as error:
            Rule.parse({"key": "k", "action": action})
        assert error.value.field in ("action.pattern", "action.patterns")
    assert time.process_time() - began < 0.1


@pytest.mark.parametrize("pattern", FINE)
def test_one_that_does_not_is_taken(pattern: str) -> None:
    patterns.compiled(pattern)


REPEATS = ["", "*", "+", "?", "{2}", "{1,2}", "{0,9}", "{30,}", "{7,9}?", "{300}", "{3}+"]
ATOMS = st.sampled_from(["a", "bc", r"\d", "[xyz]", "[)(]", r"\)", "."])
NESTED = st.recursive(
    st.tuples(ATOMS, st.sampled_from(REPEATS)).map("".join),
    lambda inner: st.tuples(
        st.sampled_from(["(", "(?:", "(?>", "(?=", "(a|"]),
        st.lists(inner, min_size=1, max_size=3).map("".join),
        st.just(")"),
        st.sampled_from(REPEATS),
    ).map("".join),
    max_leaves=40,
)


@settings(max_examples=150, deadline=None)
@given(NESTED)
def test_whatever_is_taken_compiles_in_time(pattern: str) -> None:
    began = time.process_time()
    try:
        patterns.compiled(pattern)
    except ValueError:
        return
    assert time.process_time() - began < 1.0
