from __future__ import annotations

import json
from datetime import date
from decimal import Decimal

import pytest
from django.core.exceptions import ValidationError
from django.db import connection

from relayweb.recording.conventions import pricing
from relayweb.recording.conventions.pricing import Rate, Table, base_name
from relayweb.recording.conventions.usage import Usage, read_usage
from relayweb.recording.models import Price, PriceTable, Scope
from relayweb.recording.store.tables import Tables
from relayweb.recording.upkeep.repricing import reprice
from relayweb.recording.writing.recorder import Line, Recorder
from tests.recording.recorded import Talk

ALWAYS = date(2020, 1, 1)
USAGE = Usage(input_tokens=1201, output_tokens=37, cached_tokens=1024, cache_write_tokens=100, complete=True)


@pytest.mark.parametrize(
    ("model", "base"),
    [
        ("gpt-4o", "gpt-4o"),
        ("GPT-4o-2024-08-06", "gpt-4o"),
        ("claude-sonnet-4-5-20250929", "claude-sonnet-4-5"),
        ("claude-sonnet-4-5@20250929", "claude-sonnet-4-5"),
        ("claude-3-5-sonnet-latest", "claude-3-5-sonnet"),
        ("openrouter/anthropic/claude-opus-4-5", "claude-opus-4-5"),
        ("us.anthropic.claude-haiku-4-5-20251001-v1:0", "claude-haiku-4-5"),
        ("gpt-4o-audio-preview", "gpt-4o-audio-preview"),
        ("o3-mini", "o3-mini"),
    ],
)
def test_a_model_is_listed_under_its_name_without_date_router_or_region(model, base):
    assert base_name(model) == base


def rate(pattern="m", input=2, output=10, *, provider="", since=ALWAYS, cached=None, cache_write=None):
    return Rate(pattern, provider, since, input, output, cached, cache_write)


def test_each_kind_of_token_has_its_price():
    found = rate(input=10, output=100, cached=1, cache_write=20)
    assert found.cost(USAGE) == (1201 - 1124) * 10 + 1024 * 1 + 100 * 20 + 37 * 100
    assert rate(input=10, output=100).cost(USAGE) == 1201 * 10 + 3700


def test_what_the_cache_keeps_for_an_hour_has_a_price_of_its_own():
    usage = read_usage(
        {
            "input_tokens": 10,
            "output_tokens": 5,
            "cache_creation_input_tokens": 300,
            "cache_creation": {"ephemeral_5m_input_tokens": 100, "ephemeral_1h_input_tokens": 200},
        }
    )
    found = Rate("m", "", ALWAYS, 3_000_000, 15_000_000, 300_000, 3_750_000, 6_000_000)
    assert found.cost(usage) == 1_680_000_000
    assert Rate("m", "", ALWAYS, 3, 15, None, 4).cost(usage) == 10 * 3 + 300 * 4 + 5 * 15


@pytest.mark.usefixtures("as_migrated")
def test_an_hour_of_cache_is_priced_when_recorded_and_when_priced_again():
    usage = {"input_tokens": 10, "output_tokens": 5, "cache_creation_input_tokens": 300}
    usage["cache_creation"] = {"ephemeral_5m_input_tokens": 100, "ephemeral_1h_input_tokens": 200}
    talk = Talk()
    body = {"model": "claude-sonnet-4-5", "content": [{"type": "text", "text": "hi"}], "usage": usage}
    attempt = talk.attempt(talk.call(), model="claude-sonnet-4-5", out=body)
    Recorder(Tables(connection)).record([Line(json.dumps(event).encode(), 0) for event in talk.all()])
    assert Scope.objects.get(uuid=attempt).cost_pusd == 1_680_000_000
    price = Price.objects.get(model="claude-sonnet-4-5", tier="standard", above=0)
    price.cache_write_1h = 7
    price.save()
    list(reprice())
    assert Scope.objects.get(uuid=attempt).cost_pusd == 1_880_000_000


def test_unknown_tokens_have_no_cost_and_a_lower_bound_has_one():
    assert rate().cost(Usage()) is None
    assert rate().cost(Usage(output_tokens=5)) is None
    assert rate(input=2, output=10).cost(Usage(input_tokens=5)) == 10


def test_the_most_specific_pattern_wins_then_the_provider_then_the_newest_day():
    table = Table(
        "v",
        (
            rate("gpt-*", 1),
            rate("gpt-5*", 2),
            rate("gpt-5*", 3, provider="azure*"),
            rate("gpt-5*", 4, since=date(2026, 6, 1)),
        ),
    )
    assert table.rate("gpt-4o", None, date(2026, 1, 1)).input == 1
    assert table.rate("gpt-5.2", "openai", date(2026, 1, 1)).input == 2
    assert table.rate("gpt-5.2", "azure-eu", date(2026, 1, 1)).input == 3
    assert table.rate("gpt-5.2", "openai", date(2026, 7, 1)).input == 4
    assert table.rate("mock", None) is table.rate(None, None) is None


@pytest.mark.usefixtures("as_migrated")
def test_the_table_comes_seeded_with_dated_list_prices():
    pricing.forget()
    table = pricing.table()
    assert table.version == f"{PriceTable.current().name}.0"
    assert table.cost("gpt-4o-2024-08-06", "openai", Usage(1_000_000, 1_000_000, complete=True)) == 12_500_000_000_000
    assert table.rate("claude-sonnet-4-5", None).cached == 300_000
    assert table.rate("mock-main", "custom") is None


@pytest.mark.django_db(transaction=True)
def test_an_edit_makes_a_new_version_and_counts_at_once():
    Price.objects.create(model="m", input=Decimal("1"), output=Decimal("2"))
    before = pricing.table()
    price = Price.objects.get(model="m")
    price.input = Decimal("3")
    price.save()
    after = pricing.table()
    assert before.version != after.version
    assert (before.rate("m", None).input, after.rate("m", None).input) == (1_000_000, 3_000_000)
    price.delete()
    assert pricing.table().rate("m", None) is None


@pytest.mark.django_db
@pytest.mark.parametrize("wrong", [{"input": Decimal(-1)}, {"model": "GPT-4"}, {"model": "two words"}, {"model": ""}])
def test_a_wrong_price_is_refused(wrong):
    price = Price(**{"model": "gpt-9", "input": Decimal(1), "output": Decimal(1), **wrong})
    with pytest.raises(ValidationError):
        price.full_clean()
