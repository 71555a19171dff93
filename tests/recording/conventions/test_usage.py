from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relayweb.recording.conventions.usage import UNKNOWN, Usage, add, count, merge, read_usage

COUNTS = st.none() | st.integers(0, 10**6)
USAGES = st.builds(
    Usage,
    input_tokens=COUNTS,
    output_tokens=COUNTS,
    cached_tokens=COUNTS,
    cache_write_tokens=COUNTS,
    reasoning_tokens=COUNTS,
    total_tokens=st.none(),
    complete=st.booleans(),
)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=20), inner, max_size=4),
    max_leaves=12,
)


def test_openai_counts_cached_tokens_inside_the_prompt():
    usage = read_usage(
        {
            "prompt_tokens": 1201,
            "completion_tokens": 37,
            "total_tokens": 1238,
            "prompt_tokens_details": {"cached_tokens": 1024},
            "completion_tokens_details": {"reasoning_tokens": 11},
        }
    )
    assert usage == Usage(1201, 37, 1024, None, 11, 1238, True)


def test_anthropic_counts_cached_tokens_beside_the_input():
    usage = read_usage(
        {"input_tokens": 177, "output_tokens": 41, "cache_read_input_tokens": 1024, "cache_creation_input_tokens": 6}
    )
    assert usage == Usage(1207, 41, 1024, 6, None, 1248, True)


def test_relays_own_usage_follows_the_convention_of_its_provider():
    told = {"cache_read_tokens": 1024, "cache_write_tokens": 0, "completion_tokens": 1, "prompt_tokens": 177}
    assert read_usage(told, beside=True).input_tokens == 1201
    assert read_usage({**told, "prompt_tokens": 1201}).input_tokens == 1201


def test_the_responses_api_names_its_counts_differently():
    usage = read_usage(
        {
            "input_tokens": 50,
            "input_tokens_details": {"cached_tokens": 20},
            "output_tokens": 9,
            "output_tokens_details": {"reasoning_tokens": 4},
            "total_tokens": 59,
        }
    )
    assert usage == Usage(50, 9, 20, None, 4, 59, True)


def test_hermes_observer_gives_all_and_uncached_input_side_by_side():
    usage = read_usage({"cache_read_tokens": 1024, "input_tokens": 177, "output_tokens": 37, "prompt_tokens": 1201})
    assert (usage.input_tokens, usage.total_tokens) == (1201, 1238)


def test_langchain_and_gemini_and_bedrock_are_read_too():
    assert (
        read_usage({"input_tokens": 10, "output_tokens": 3, "input_token_details": {"cache_read": 4}}).cached_tokens
        == 4
    )
    gemini = read_usage(
        {"promptTokenCount": 10, "candidatesTokenCount": 5, "thoughtsTokenCount": 7, "totalTokenCount": 22}
    )
    assert (gemini.output_tokens, gemini.reasoning_tokens, gemini.total_tokens) == (12, 7, 22)
    assert read_usage({"inputTokens": 5, "outputTokens": 2, "cacheReadInputTokens": 3}).input_tokens == 8


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("prompt", [1310, 10])
def test_litellm_keeps_anthropics_own_counts_of_the_cache(prompt, beside):
    usage = {
        "prompt_tokens": prompt,
        "completion_tokens": 7,
        "total_tokens": prompt + 7,
        "cache_creation_input_tokens": 300,
        "cache_read_input_tokens": 1000,
        "cache_creation": {"ephemeral_5m_input_tokens": 100, "ephemeral_1h_input_tokens": 200},
    }
    if not beside:
        assert read_usage(usage) == Usage(1310, 7, 1000, 300, None, 1317, True, 200)
    else:
        assert read_usage({**usage, "prompt_tokens_details": {"cached_tokens": 1000}}).cached_tokens == 1000


def test_gemini_is_read_as_its_python_client_names_it():
    usage = {
        "prompt_token_count": 100,
        "candidates_token_count": 20,
        "thoughts_token_count": 30,
        "cached_content_token_count": 40,
        "tool_use_prompt_token_count": 5,
        "total_token_count": 155,
    }
    assert read_usage(usage) == Usage(105, 50, 40, None, 30, 155, True)


@pytest.mark.parametrize(
    "usage",
    [
        {"inputTokens": 100, "outputTokens": 20, "totalTokens": 120, "reasoningTokens": 5, "cachedInputTokens": 30},
        {
            "inputTokens": {"total": 100, "noCache": 70, "cacheRead": 30},
            "outputTokens": {"total": 20, "text": 15, "reasoning": 5},
        },
    ],
)
def test_the_ai_sdk_counts_cached_tokens_inside(usage):
    assert read_usage(usage) == Usage(100, 20, 30, None, 5, 120, True)


def test_b34_reasoning_is_inside_the_output():
    usage = read_usage({"output_tokens": 1970, "output_tokens_details": {"reasoning_tokens": 956}})
    assert (usage.output_tokens, usage.total_tokens, usage.reasoning_tokens) == (1970, 1970, 956)
    assert (usage.input_tokens, usage.complete) == (None, False)


def test_reasoning_beside_the_output_is_taken_in_where_the_total_proves_it():
    usage = read_usage(
        {
            "prompt_tokens": 100,
            "completion_tokens": 10,
            "completion_tokens_details": {"reasoning_tokens": 40},
            "total_tokens": 150,
        }
    )
    assert (usage.output_tokens, usage.total_tokens) == (50, 150)


def test_unknown_is_none_and_never_zero():
    assert read_usage(None) == UNKNOWN
    assert read_usage({"prompt_tokens": None, "completion_tokens": None}) == UNKNOWN
    assert read_usage({"prompt_tokens": 0, "completion_tokens": 0}) == Usage(0, 0, None, None, None, 0, True)
    assert UNKNOWN.input_tokens is None and UNKNOWN.complete is False


@pytest.mark.parametrize("value", [-1, 1.5, True, "7", 2**64, float("nan"), float("inf"), [], {}])
def test_what_is_no_count_reads_as_unknown(value):
    assert count(value) is None


@given(ANYTHING, st.booleans())
def test_nothing_makes_reading_usage_raise(value, beside):
    assert isinstance(read_usage(value, beside=beside), Usage)
    assert isinstance(
        read_usage({"usage": value, "prompt_tokens": value, "cache_creation": value}, beside=beside), Usage
    )


@given(st.lists(USAGES, max_size=5))
def test_the_sum_does_not_depend_on_order_and_knows_what_it_misses(usages):
    sums = {add(order) for order in itertools.islice(itertools.permutations(usages), 24)}
    assert len(sums) == 1
    total = sums.pop()
    assert total.complete == all(u.complete for u in usages)
    known = [u.input_tokens for u in usages if u.input_tokens is not None]
    assert total.input_tokens == (sum(known) if known else None)


@given(st.lists(USAGES, min_size=1, max_size=4))
def test_reports_of_the_same_tokens_count_once_in_any_order(usages):
    def together(order):
        found = order[0]
        for usage in order[1:]:
            found = merge(found, usage)
        return found

    once = together([*usages, usages[0]])
    assert {together(list(order)) for order in itertools.permutations(usages)} == {together(usages)}
    assert once.input_tokens == together(usages).input_tokens
