"""What of a call has a price of its own: tiers, audio, images, searches, long prompts."""

from __future__ import annotations

import json
from datetime import date
from decimal import Decimal

import pytest
from django.db import connection
from hypothesis import given
from hypothesis import strategies as st

from relayweb.recording.conventions import details, pricing, read_end, read_request, settle
from relayweb.recording.conventions.chunks import ChunkFacts, Stream
from relayweb.recording.conventions.details import Details, read_tier
from relayweb.recording.conventions.pricing import Rate, Table, cost
from relayweb.recording.conventions.usage import Usage, merge, read_usage
from relayweb.recording.models import Price, Scope
from relayweb.recording.store.tables import Tables
from relayweb.recording.upkeep.repricing import reprice
from relayweb.recording.writing.recorder import Line, Recorder
from tests.recording.recorded import Talk, answer, request
from tests.recording.streams import chunk

ALWAYS = date(2020, 1, 1)
TOKENS = {"prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100}


# Tiers


@pytest.mark.parametrize(
    ("told", "tier"),
    [
        (("default",), "standard"),
        (("auto",), None),
        (("flex",), "flex"),
        (("PRIORITY",), "priority"),
        (("scale",), "scale"),
        (({"type": "flex"},), "flex"),
        (("ON_DEMAND",), "standard"),
        (("ON_DEMAND_FLEX",), "flex"),
        (("PROVISIONED_THROUGHPUT",), "provisioned_throughput"),
        (("standard_only",), "standard"),
        (("standard", "fast"), "fast"),
        (("standard", "standard", "global"), "standard"),
        (("batch", None, "us"), "batch+us"),
        (("standard", "fast", "us"), "fast+us"),
        (("standard", None, "not_available"), "standard"),
        ((None, None, None), None),
        ((7, [], {}), None),
        (("fast", "fast"), "fast"),
    ],
)
def test_a_tier_has_one_name_whoever_tells_it(told, tier):
    assert read_tier(*told) == tier


def end(body, **more):
    return read_end(data=body, **more)


FEW = {"input_tokens": 1, "output_tokens": 1}
ANTHROPIC = {"type": "message", "model": "claude-opus-4-6", "content": [], "stop_reason": "end_turn"}


@pytest.mark.parametrize(
    ("body", "more", "tier"),
    [
        ({"choices": [], "service_tier": "flex", "usage": TOKENS}, {}, "flex"),
        ({"choices": [], "service_tier": "default", "usage": TOKENS}, {}, "standard"),
        ({"object": "response", "service_tier": "priority", "usage": FEW}, {}, "priority"),
        ({**ANTHROPIC, "usage": {**FEW, "service_tier": "batch"}}, {}, "batch"),
        ({**ANTHROPIC, "usage": {**FEW, "speed": "fast", "inference_geo": "us"}}, {}, "fast+us"),
        ({"usageMetadata": {"promptTokenCount": 1, "trafficType": "ON_DEMAND_PRIORITY"}}, {}, "priority"),
        ({"choices": [], "usage": TOKENS}, {"metadata": {"service_tier": "batch"}}, "batch"),
        ({"choices": [], "usage": TOKENS}, {}, None),
    ],
)  # fmt: skip
def test_the_tier_is_where_each_provider_tells_it(body, more, tier):
    assert end(body, **more).usage.tier == tier


def test_a_request_tells_the_tier_it_asks_for():
    assert read_request(None, {"service_tier": "flex"}).service_tier == "flex"
    assert read_request(None, {"speed": "fast", "inference_geo": "us"}).service_tier == "fast+us"
    assert read_request(None, {"service_tier": "auto"}).service_tier is None
    assert read_request(None, {}).service_tier is None


def test_the_end_tells_the_tier_of_tokens_that_only_the_stream_told():
    stream = Stream().fold(ChunkFacts(usage=read_usage(TOKENS)))
    told = settle(end({"choices": [{"finish_reason": "stop"}], "service_tier": "flex"}), stream).usage
    assert (told.tier, told.input_tokens, told.complete) == ("flex", 1000, True)


TABLE = Table(
    "v",
    (
        Rate("m", "", ALWAYS, 10, 100),
        Rate("m", "", ALWAYS, 5, 50, tier="flex"),
        Rate("m", "", ALWAYS, 20, 150, above=200),
        Rate("m", "", date(2026, 6, 1), 11, 101),
    ),
)


def test_a_tier_without_a_price_has_no_cost():
    def priced(tier):
        return TABLE.cost("m", None, Usage(input_tokens=100, output_tokens=1, tier=tier), date(2026, 1, 1))

    assert [priced(tier) for tier in (None, "standard", "flex", "scale")] == [1100, 1100, 550, None]


def test_a_long_prompt_has_its_price_until_a_newer_day_replaces_it():
    def priced(tokens, day):
        return TABLE.cost("m", None, Usage(input_tokens=tokens, output_tokens=0), day)

    before, after = date(2026, 5, 31), date(2026, 6, 1)
    assert (priced(200, before), priced(201, before)) == (2000, 4020)
    assert (priced(200, after), priced(201, after)) == (2200, 2211)
    assert cost((Rate("m", "", ALWAYS, 1, 1, above=200),), Usage(input_tokens=200)) is None


# Audio and images


SPOKEN = Rate("m", "", ALWAYS, 2, 10, 1, audio_input=40, audio_output=80, audio_cached=4, image_input=5, image_cached=3)


def test_audio_of_chat_completions_has_its_own_price():
    usage = read_usage(
        {
            **TOKENS,
            "prompt_tokens_details": {"audio_tokens": 300, "cached_tokens": 0},
            "completion_tokens_details": {"audio_tokens": 60, "reasoning_tokens": 0},
        }
    )
    assert usage.details == Details(audio_input=300, audio_output=60)
    assert SPOKEN.cost(usage) == 700 * 2 + 300 * 40 + 40 * 10 + 60 * 80
    assert Rate("m", "", ALWAYS, 2, 10).cost(usage) is None
    assert Rate("m", "", ALWAYS, 2, 10, audio_input=40).cost(usage) is None


def test_no_audio_is_no_detail():
    none = {"prompt_tokens_details": {"audio_tokens": 0, "cached_tokens": 5}, "completion_tokens_details": None}
    assert read_usage({**TOKENS, **none}).details is None
    none["completion_tokens_details"] = {"audio_tokens": None, "reasoning_tokens": 3}
    assert read_usage({**TOKENS, **none}).details is None


REALTIME = {
    "input_tokens": 1000,
    "output_tokens": 100,
    "total_tokens": 1100,
    "input_token_details": {
        "text_tokens": 500,
        "audio_tokens": 300,
        "image_tokens": 200,
        "cached_tokens": 250,
        "cached_tokens_details": {"text_tokens": 100, "audio_tokens": 100, "image_tokens": 50},
    },
    "output_token_details": {"text_tokens": 30, "audio_tokens": 70},
}


def test_cached_audio_and_images_of_realtime_have_their_prices():
    usage = read_usage(REALTIME)
    assert usage.cached_tokens == 250
    text = 400 * 2 + 100 * 1 + 30 * 10
    assert SPOKEN.cost(usage) == text + 200 * 40 + 100 * 4 + 150 * 5 + 50 * 3 + 70 * 80


def test_what_was_cached_of_audio_is_not_guessed():
    usage = read_usage({**TOKENS, "prompt_tokens_details": {"audio_tokens": 300, "cached_tokens": 100}})
    assert usage.details.unpriced == 1 and SPOKEN.cost(usage) is None


def test_counts_that_contradict_each_other_have_no_cost():
    usage = Usage(input_tokens=10, output_tokens=5, details=Details(audio_input=11))
    assert SPOKEN.cost(usage) is None


def test_gemini_tells_modalities_in_lists():
    told = {
        "promptTokenCount": 1000,
        "candidatesTokenCount": 100,
        "cachedContentTokenCount": 200,
        "promptTokensDetails": [
            {"modality": "TEXT", "tokenCount": 400},
            {"modality": "AUDIO", "tokenCount": 300},
            {"modality": "IMAGE", "tokenCount": 200},
            {"modality": "VIDEO", "tokenCount": 100},
        ],
        "cacheTokensDetails": [{"modality": "AUDIO", "tokenCount": 150}, {"modality": "TEXT", "tokenCount": 50}],
        "candidatesTokensDetails": [{"modality": "TEXT", "tokenCount": 100}],
    }
    usage = read_usage(told)
    assert usage.details == Details(audio_input=300, audio_cached=150, image_input=300)
    assert SPOKEN.cost(usage) == 350 * 2 + 50 * 1 + 150 * 40 + 150 * 4 + 300 * 5 + 100 * 10
    text = {**told, "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 1000}]}
    assert read_usage(text).details is None


def test_langchain_tells_them_under_its_names():
    usage = read_usage(
        {
            "input_tokens": 1000,
            "output_tokens": 100,
            "total_tokens": 1100,
            "input_token_details": {
                **{"audio": 300, "cache_read": 0},
                **{"ephemeral_5m_input_tokens": 5, "ephemeral_1h_input_tokens": 7},
            },
            "output_token_details": {"audio": 60, "reasoning": 0},
        }
    )
    assert usage.details == Details(audio_input=300, audio_output=60)
    assert (usage.cache_write_tokens, usage.cache_write_1h_tokens) == (12, 7)


# Tools of the provider


def test_web_searches_cost_by_the_search_and_fetches_nothing():
    usage = {
        "input_tokens": 10,
        "output_tokens": 1,
        "server_tool_use": {"web_search_requests": 3, "web_fetch_requests": 2},
    }
    told = end({**ANTHROPIC, "usage": usage}).usage
    assert told.details == Details(web_searches=3)
    assert Rate("m", "", ALWAYS, 2, 10, web_search=1000).cost(told) == 10 * 2 + 10 + 3000
    assert Rate("m", "", ALWAYS, 2, 10).cost(told) is None
    usage["server_tool_use"] = {"web_search_requests": 0, "web_fetch_requests": 0}
    assert end({**ANTHROPIC, "usage": usage}).usage.details is None


def test_a_tool_that_nobody_prices_leaves_the_cost_unknown():
    usage = {"input_tokens": 10, "output_tokens": 1, "server_tool_use": {"code_execution_requests": 1}}
    assert SPOKEN.cost(end({**ANTHROPIC, "usage": usage}).usage) is None
    for told in ({"num_sources_used": 4}, {"num_search_queries": 1}):
        assert SPOKEN.cost(read_usage({**TOKENS, **told})) is None


def test_searches_of_the_responses_api_are_counted_in_its_answer():
    items = [
        {"type": "web_search_call", "status": "completed", "action": {"type": "search", "query": "x"}},
        {"type": "web_search_call", "status": "completed", "action": {"type": "open_page", "url": "x"}},
        {"type": "web_search_call", "status": "completed"},
        {"type": "web_search_call", "status": "failed"},
        {"type": "function_call", "name": "f", "arguments": "{}", "call_id": "c"},
        {"type": "message", "content": []},
    ]
    body = {"object": "response", "status": "completed", "usage": {"input_tokens": 10, "output_tokens": 1}}
    assert end({**body, "output": items}).usage.details == Details(web_searches=2)
    assert end({**body, "output": items[4:]}).usage.details is None
    assert end({**body, "output": [{"type": "file_search_call"}]}).usage.details == Details(unpriced=1)


def test_grounding_of_gemini_is_not_priced():
    grounded = {"groundingMetadata": {"webSearchQueries": ["x"]}, "finishReason": "STOP"}
    usage = {"promptTokenCount": 10, "candidatesTokenCount": 1}
    assert end({"candidates": [grounded], "usageMetadata": usage}).usage.details == Details(unpriced=1)
    assert end({"candidates": [{"groundingMetadata": {}}], "usageMetadata": usage}).usage.details is None


# Anything

COUNTS = st.one_of(st.none(), st.integers(-5, 2**70), st.floats(), st.text(max_size=3), st.booleans())
VALUES = st.recursive(COUNTS, lambda v: st.lists(v, max_size=3) | st.dictionaries(st.text(max_size=3), v, max_size=3))
NAMES = st.sampled_from(
    (
        *(
            "service_tier",
            "serviceTier",
            "speed",
            "inference_geo",
            "trafficType",
            "server_tool_use",
            "num_sources_used",
        ),
        *("prompt_tokens_details", "completion_tokens_details", "promptTokensDetails", "cacheTokensDetails"),
        *("prompt_tokens", "completion_tokens", "input_tokens", "promptTokenCount", "cached_tokens_details"),
        *("audio_tokens", "image_tokens", "web_search_requests", "modality", "tokenCount"),
    )
)
USAGES = st.dictionaries(NAMES, st.dictionaries(NAMES, VALUES, max_size=4) | VALUES, max_size=8)


@given(USAGES, USAGES)
def test_whatever_a_usage_holds_is_read_stored_and_merged_in_any_order(a, b):
    one, other = read_usage(a), read_usage(b)
    assert merge(one, other) == merge(other, one)
    for usage in (one, other, merge(one, other)):
        if usage.details is not None:
            assert details.stored(usage.details.text()) == usage.details
        assert SPOKEN.cost(usage) is None or SPOKEN.cost(usage) >= 0
    read_end(data={"choices": [], "usage": a, **b})
    read_request(None, b)


# On record


def recorded(*events):
    lines = [Line(json.dumps(event).encode(), 0) for event in events]
    Recorder(Tables(connection)).record(lines)
    assert not [line.error for line in lines if line.error]


def of(attempt):
    row = Scope.objects.get(uuid=attempt)
    return row.service_tier, row.cost_pusd, row.price_version


@pytest.fixture
def prices(transactional_db):
    Price.objects.all().delete()
    Price.objects.create(model="gpt-4o", input=Decimal(2), output=Decimal(10))
    Price.objects.create(model="gpt-4o", input=Decimal(1), output=Decimal(5), tier="flex")
    Price.objects.create(model="gpt-4o", input=Decimal(4), output=Decimal(15), above=1000)
    pricing.forget()


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize(
    ("asked", "served", "tier", "cost"),
    [
        (None, None, None, 3000_000_000),
        ("auto", "default", "standard", 3000_000_000),
        ("flex", "flex", "flex", 1500_000_000),
        ("flex", "default", "standard", 3000_000_000),
        ("flex", None, "flex", 1500_000_000),
        ("priority", "priority", "priority", None),
    ],
)
@pytest.mark.usefixtures("prices")
def test_an_attempt_is_priced_by_the_tier_it_was_served_in(asked, served, tier, cost, backwards):
    talk = Talk()
    given = request("hi", "gpt-4o")
    given["content"] |= {"service_tier": asked} if asked else {}
    out = answer("x", 1000, 100) | ({"service_tier": served} if served else {})
    attempt = talk.attempt(talk.call(), data=given, out=out)
    for event in reversed(talk.all()) if backwards else talk.all():
        recorded(event)
    version = None if cost is None else pricing.table().version
    assert of(attempt) == (tier, cost, version)


@pytest.mark.usefixtures("prices")
def test_audio_is_kept_so_that_a_later_price_counts_for_it():
    talk = Talk()
    out = answer("x", 1000, 100)
    out["usage"] |= {"prompt_tokens_details": {"audio_tokens": 400}, "completion_tokens_details": {"audio_tokens": 50}}
    attempt = talk.attempt(talk.call(), out=out)
    recorded(*talk.all())
    assert of(attempt) == (None, None, None)
    assert json.loads(Scope.objects.get(uuid=attempt).usage_details) == {"audio_input": 400, "audio_output": 50}
    price = Price.objects.get(model="gpt-4o", tier="standard", above=0)
    price.audio_input, price.audio_output = Decimal(40), Decimal(80)
    price.save()
    list(reprice())
    assert of(attempt)[1] == (600 * 2 + 400 * 40 + 50 * 10 + 50 * 80) * 1_000_000


@pytest.mark.usefixtures("prices")
def test_what_earlier_versions_did_not_note_is_read_in_the_log():
    talk = Talk()
    call = talk.call()
    given = request("hi", "gpt-4o")
    asked = talk.attempt(call, 20, 30, data={**given, "content": {**given["content"], "service_tier": "flex"}},
                         out=answer("x", 1000, 100))  # fmt: skip
    served = talk.attempt(call, 40, 50, out={**answer("x", 1000, 100), "service_tier": "flex"})
    plain = talk.attempt(call, 60, 70, out=answer("x", 1000, 100))
    recorded(*talk.all())
    Scope.objects.filter(role="attempt").update(
        service_tier=None, price_version="2026-02-01.0", cost_pusd=3_000_000_000
    )
    list(reprice())
    version = pricing.table().version
    assert of(asked) == of(served) == ("flex", 1_500_000_000, version)
    assert of(plain) == (None, 3_000_000_000, "2026-02-01.0")
    assert [changed for _, changed in reprice()] == [0]


@pytest.mark.usefixtures("prices")
def test_relays_estimate_counts_in_the_standard_tier_only():
    talk = Talk()
    call = talk.call()
    profile = {"annotated_response": {"usage": {"cost": {"total": 0.5, "currency": "USD"}}}}
    told = {"end_profile": profile}
    standard = talk.attempt(call, 20, 30, out={**answer("x", 1000, 100), "service_tier": "default"}, **told)
    flex = talk.attempt(call, 40, 50, out={**answer("x", 1000, 100), "service_tier": "flex"}, **told)
    recorded(*talk.all())
    assert of(standard) == ("standard", 500_000_000_000, "relay")
    assert of(flex) == ("flex", 1_500_000_000, pricing.table().version)


@pytest.mark.usefixtures("prices")
def test_tokens_that_only_a_stream_told_are_priced_by_the_tier_that_was_asked_for():
    talk = Talk()
    given = request("hi", "gpt-4o")
    given["content"]["service_tier"] = "flex"
    attempt = talk.attempt(talk.call(), data=given, out=None)
    told = {"prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100}
    talk.add(chunk(attempt, 0, 30, usage=told, provider="openai_chat_completions"))
    recorded(*talk.all())
    assert of(attempt)[:2] == ("flex", 1_500_000_000)


@pytest.mark.usefixtures("as_migrated")
@pytest.mark.parametrize(
    ("model", "tier", "tokens", "day", "dollars"),
    [
        ("gpt-5", "standard", 1_000_000, "2026-01-01", 1.25 + 10),
        ("gpt-5", "flex", 1_000_000, "2026-01-01", 0.625 + 5),
        ("gpt-5", "batch", 1_000_000, "2026-01-01", 0.625 + 5),
        ("gpt-5", "priority", 1_000_000, "2026-01-01", 2.5 + 20),
        ("gpt-5", "scale", 1_000_000, "2026-01-01", None),
        ("gpt-5.4", "standard", 272_000, "2026-06-01", 0.68 + 15),
        ("gpt-5.4", "standard", 300_000, "2026-06-01", 1.5 + 22.5),
        ("claude-sonnet-4-5", "standard", 200_000, "2026-01-01", 0.6 + 15),
        ("claude-sonnet-4-5", "standard", 300_000, "2026-01-01", 1.8 + 22.5),
        ("claude-opus-4-6", "standard", 300_000, "2026-03-01", 3 + 37.5),
        ("claude-opus-4-6", "standard", 300_000, "2026-04-01", 1.5 + 25),
        ("claude-opus-4-6", "fast", 100_000, "2026-04-01", 3 + 150),
        ("claude-opus-4-6", "batch+us", 100_000, "2026-04-01", 0.275 + 13.75),
        ("claude-opus-4-6", "priority", 100_000, "2026-04-01", None),
        ("gemini-2.5-pro", "standard", 300_000, "2026-01-01", 0.75 + 15),
        ("gemini-2.5-pro", "priority", 100_000, "2026-01-01", 0.225 + 18),
    ],
)
def test_the_list_prices_know_tiers_and_long_prompts(model, tier, tokens, day, dollars):
    usage = Usage(input_tokens=tokens, output_tokens=1_000_000, tier=tier)
    found = pricing.table().cost(model, None, usage, date.fromisoformat(day))
    assert found == (None if dollars is None else round(dollars * 1e12))


@pytest.mark.usefixtures("as_migrated")
def test_the_list_prices_know_audio_images_and_searches():
    table = pricing.table()
    spoken = table.rate("gpt-4o-audio-preview-2024-12-17", None)
    assert (spoken.audio_input, spoken.audio_output, spoken.audio_cached) == (40_000_000, 80_000_000, None)
    flash = table.rate("gemini-2.5-flash", None)
    assert (flash.audio_input, flash.audio_cached, flash.image_input) == (1_000_000, 100_000, 300_000)
    assert table.rate("claude-sonnet-4-5", None).web_search == 10_000_000_000
    assert table.rate("gpt-4o", None).web_search is None
