from __future__ import annotations

import io
from decimal import Decimal

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command

from relayweb.recording.conventions import pricing
from relayweb.recording.models import Price, Role, Scope
from relayweb.recording.reading import queries
from tests.recording.recorded import FAILED, Talk, answer, chunk, record

pytestmark = pytest.mark.django_db(transaction=True)


def run(*args):
    out = io.StringIO()
    call_command("reprice", *args, stdout=out)
    return out.getvalue().strip()


def usd(turn):
    found = queries.turn_summary(turn)
    return found["cost_usd"], found["wasted_usd"]


@pytest.fixture(autouse=True)
def no_list_prices():
    Price.objects.all().delete()
    pricing.forget()


@pytest.fixture
def talk():
    talk = Talk()
    call = talk.call()
    talk.attempt(call, 20, 100, status=FAILED, out=answer("x", 1_000_000, 0, None))
    talk.attempt(call, 120, 200, out=answer("x", 1_000_000, 1_000_000))
    talk.record()
    return talk


def test_a_new_price_counts_for_what_is_on_record(talk):
    assert usd(talk.turn) == (None, None)
    Price.objects.create(model="gpt-4o", input=Decimal(2), output=Decimal(10))
    assert run().endswith("2 of 2 attempts changed")
    assert usd(talk.turn) == (14.0, 2.0)
    call, first, second = queries.turn_nodes(talk.turn)[1:4]
    assert (call["cost_usd"], first["cost_usd"], second["cost_usd"]) == (14.0, 2.0, 12.0)
    assert second["price_version"] == pricing.table().version
    assert run().endswith("0 of 0 attempts changed")
    Price.objects.get().delete()
    run()
    assert usd(talk.turn) == (None, None)


@pytest.mark.parametrize("told", ["by the end", "by the stream", "by nobody"])
def test_attempts_of_before_the_hour_cache_had_a_price_are_mended_from_the_log(told):
    split = {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 1_000_000}
    usage = {"input_tokens": 0, "output_tokens": 0, "cache_creation_input_tokens": 1_000_000}
    out = {"type": "message", "model": "claude-x", "content": [], "stop_reason": "end_turn", "usage": usage}
    if told == "by the end":
        out["usage"] = {**usage, "cache_creation": split}
    if told == "by the stream":
        del out["usage"]
    Price.objects.create(model="claude-x", input=5, output=25, cache_write=Decimal("6.25"))
    talk = Talk()
    attempt = talk.attempt(
        talk.call(), model="claude-x", out=out, name="anthropic.messages", metadata={"api_mode": "anthropic_messages"}
    )
    if told == "by the stream":
        for at, found in enumerate(({**usage, "cache_creation": split}, {"output_tokens": 0})):
            data = {"chunk_index": at, "usage": found, "provider": "anthropic.messages"}
            talk.add(chunk(attempt, at, 30 + at, **data))
    talk.record()
    # As a version left it that knew of no hour, and the migration to one that does.
    Scope.objects.filter(role=Role.ATTEMPT).update(cache_write_1h_tokens=None)
    Price.objects.update(cache_write_1h=10)
    assert usd(talk.turn)[0] == 6.25
    run()
    whole = 6.25 if told == "by nobody" else 10.0
    assert queries.turn_nodes(talk.turn)[2]["cost_usd"] == usd(talk.turn)[0] == whole
    if told != "by nobody":
        assert run().endswith("0 of 0 attempts changed")


def test_what_relay_priced_stays():
    talk = Talk()
    profile = {"annotated_response": {"usage": {"cost": {"total": 0.5, "currency": "USD"}}}}
    talk.around(
        "openai.chat",
        "llm",
        talk.turn,
        10,
        20,
        data={"content": {"model": "gpt-4o"}},
        out=answer(),
        end_profile=profile,
    )
    talk.record()
    Price.objects.create(model="gpt-4o", input=Decimal(2), output=Decimal(10))
    run()
    assert usd(talk.turn)[0] == 0.5


def test_only_what_is_recent_is_priced_if_asked(talk):
    Price.objects.create(model="gpt-4o", input=Decimal(2), output=Decimal(10))
    assert run("--since", "2026-06-01").endswith("0 of 0 attempts changed")
    assert run("--since", "2026-01-01").endswith("2 of 2 attempts changed")
    with pytest.raises(CommandError, match="--since"):
        run("--since", "yesterday")


def test_what_is_recorded_afterwards_adds_to_the_new_sums(talk):
    Price.objects.create(model="gpt-4o", input=Decimal(2), output=Decimal(10))
    run()
    more = Talk()
    more.turn, more.events, more.tail = talk.turn, [], []
    more.attempt(more.call(1_000, 2_000), 1_100, 1_200, out=answer("y", 1_000_000, 0))
    record(*more.all())
    assert usd(talk.turn) == (16.0, 2.0)


def test_prices_are_edited_in_the_admin(client):
    client.force_login(User.objects.create_superuser("root"))
    page = client.get("/admin/recording/price/")
    assert page.status_code == 200 and "a million tokens" in page.content.decode()
    form = {
        "model": "gpt-9",
        "provider": "",
        "since": "2026-01-01",
        "input": "1",
        "output": "2",
        "cached": "",
        "cache_write": "",
        "cache_write_1h": "",
        "tier": "standard",
        "above": "0",
    }
    before = pricing.table().version
    assert client.post("/admin/recording/price/add/", form).status_code == 302
    assert pricing.table().rate("gpt-9", None).input == 1_000_000 and pricing.table().version != before
    wrong = client.post("/admin/recording/price/add/", {**form, "model": "GPT 9", "input": "-1"})
    assert "small letters" in wrong.content.decode() and "greater than or equal to 0" in wrong.content.decode()
    assert client.post("/admin/recording/price/add/", {**form, "tier": "flex", "input": "0.5"}).status_code == 302
    assert (
        client.post("/admin/recording/price/add/", {**form, "above": "200000", "audio_input": "40"}).status_code == 302
    )
    assert [rate.above for rate in pricing.table().tariff("gpt-9", None)] == [0, 200_000]
    assert pricing.table().tariff("gpt-9", None, tier="flex")[0].input == 500_000
    listed = client.get("/admin/recording/price/?tier=flex&q=gpt-9").content.decode()
    assert ">0.5</td>" in listed and ">2</td>" in listed and "0.50" not in listed
    assert 'type="date"' in client.get("/admin/recording/price/add/").content.decode()
    twice = client.post("/admin/recording/price/add/", form)
    assert "already have a price" in twice.content.decode()
