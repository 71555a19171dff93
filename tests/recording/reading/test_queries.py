from __future__ import annotations

import json
import random
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from django.core.management import call_command
from django.db import connection

from relayweb.recording.events.json_text import dumps
from relayweb.recording.models import Price, Scope
from relayweb.recording.reading import queries, tree
from relayweb.recording.reading.queries import CursorError, QueryError
from relayweb.recording.reading.query_language import parse
from relayweb.recording.reading.turn_filter import turns_matching
from tests.recording.recorded import FAILED, OK, Talk, answer, chunk, record, scope, uid
from tests.recording.streams import T0, mark

pytestmark = pytest.mark.django_db(transaction=True)


def listed(q="", **more):
    return [turn["uuid"] for turn in queries.turns(q, **more)["turns"]]


def nodes(turn, role=None):
    found, stack = [], [queries.turn(turn)["tree"]]
    while stack:
        node = stack.pop()
        found.append(node)
        stack += reversed(node["children"])
    return [n for n in found if role is None or n["role"] == role]


def node(turn, uuid, role=None):
    return next(n for n in nodes(turn, role) if n["uuid"] == uuid)


# The list


def test_turns_come_newest_first_and_page_without_gaps_or_repeats():
    turns = [Talk(f"s-{i}", start=i % 3 * 1000).record() for i in range(7)]
    everything = listed()
    assert sorted(everything) == sorted(turns)
    pages, cursor = [], None
    while True:
        page = queries.turns(limit=2, cursor=cursor)
        pages += [turn["uuid"] for turn in page["turns"]]
        cursor = page["next"]
        if cursor is None:
            break
    assert pages == everything


def test_a_cursor_that_is_none_of_ours_is_refused():
    for cursor in ("x", "1.", "1.zz", "99999999999999999999999.0"):
        with pytest.raises(CursorError, match="next"):
            queries.turns(cursor=cursor)


def test_a_turn_tells_what_happened_in_it():
    talk = Talk("s-1", profile="nightly")
    call = talk.call()
    talk.attempt(call, 20, 100, status=FAILED, out=None, asks="what is up?")
    attempt = talk.attempt(call, 200, 500, out=answer("fine", 12, 3), asks="what is up?")
    talk.add(*[chunk(attempt, i, 210 + i) for i in range(3)])
    talk.tool("terminal")
    (turn,) = queries.turns()["turns"] if talk.record() else ()
    counts = {k: turn[k] for k in ("logical_calls", "attempts", "retries", "tools", "chunks", "rewrites", "subagents")}
    assert counts == {
        "logical_calls": 1, "attempts": 2, "retries": 1, "tools": 1, "chunks": 3, "rewrites": 0, "subagents": 0
    }  # fmt: skip
    assert (turn["status"], turn["outcome"], turn["session_id"], turn["profile"]) == ("ok", "success", "s-1", "nightly")
    assert (turn["asked"], turn["models"], turn["providers"]) == ("what is up?", ["gpt-4o"], ["openai"])
    assert turn["usage"]["total_tokens"] == 15 and turn["usage"]["complete"] is True
    assert turn["duration_us"] == 8_999_000 and turn["ttft_us"] == 209_000
    assert turn["started_at"] == "2026-01-11T00:00:00.001000Z"
    assert turn["start_us"] == T0 + 10 * 86_400_000_000 + 1000


@pytest.fixture
def zoo():
    """Turns by what is special about them."""
    plain = Talk("plain", start=0)
    plain.attempt(plain.call(), asks="hello there")
    failed = Talk("failed", start=100_000, outcome="failed", profile="ci-7")
    failed.attempt(failed.call(outcome="failed"), status=FAILED, out=None, model="claude-x", name="anthropic.messages")
    retried = Talk("retried", start=200_000)
    call = retried.call()
    retried.attempt(call, 20, 30, status=FAILED, out=None)
    retried.attempt(call, 40, 50, out=answer("x", 5_000, 10, finish="length"))
    side = Talk("side", start=300_000)
    side.attempt(side.call(role="auxiliary:title"), out=answer("x", 1, 1))
    side.tool("read_file")
    running = Talk("running", start=400_000)
    running.attempt(running.call(end=None), end=None)
    running.tail = []
    talks = {"plain": plain, "failed": failed, "retried": retried, "side": side, "running": running}
    for talk in talks.values():
        talk.record()
    return {talk.turn: name for name, talk in talks.items()}


@pytest.mark.parametrize(
    ("q", "names"),
    [
        ("", "running side retried failed plain"),
        ("status:failed", "failed"),
        ("-status:failed", "running side retried plain"),
        ("status:failed,running", "running failed"),
        ("is:running", "running"),
        ("is:retried", "retried"),
        ("model:gpt-*", "running side retried plain"),
        ("model:CLAUDE-X", "failed"),
        ("-model:gpt-*", "failed"),
        ("model:gpt", ""),
        ("provider:anthropic", "failed"),
        ("role:auxiliary:*", "side"),
        ("-role:primary", "side"),
        ("tool:read_*", "side"),
        ("error:500", "retried failed"),
        ("error:InternalServerError status:ok", "retried"),
        ("error:*code*", "retried failed"),
        ("finish:length", "retried"),
        ("api:chat_completions -tool:*", "running retried failed plain"),
        ("profile:ci-*", "failed"),
        ("-profile:ci-*", "running side retried plain"),
        ("session:side", "side"),
        ("session:re*", "retried"),
        ("retries:>0", "retried"),
        ("retries:0", "running side failed plain"),
        ("tools:1", "side"),
        ("tools:<1", "running retried failed plain"),
        ("tokens:>1k", "retried"),
        ("tokens:10..20", "plain"),
        ("dur:>5s", "side retried failed plain"),
        ("since:2026-01-11T00:03:00", "running side retried"),
        ("until:2026-01-11T00:01:00", "plain"),
        ("rewritten:no", "running side retried failed plain"),
        ("rewritten:yes", ""),
        ("name:relay.turn", "running side retried failed plain"),
        ("hello", "plain"),
        ("-hello", "running side retried failed"),
        ("is:subagent", ""),
        ("status:ok model:gpt-* retries:>0 role:primary", "retried"),
        ("intercept:none", ""),
    ],
)
def test_a_query_finds_its_turns(zoo, q, names):
    assert [zoo[uuid] for uuid in listed(q)] == names.split()


def test_many_matches_are_found_like_few(zoo, monkeypatch):
    from relayweb.recording.reading import turn_filter

    few = {q: listed(q) for q in ("role:primary", "tool:read_file", "error:500", "-role:primary")}
    monkeypatch.setattr(turn_filter, "FEW", 0)
    assert {q: listed(q) for q in few} == few


def test_a_wrong_query_says_where(zoo):
    with pytest.raises(QueryError) as error:
        queries.turns("status:ok modle:x")
    assert (error.value.column, error.value.suggestion) == (11, "model:x")


def test_relative_times_count_from_now(zoo):
    now = datetime(2026, 1, 11, 0, 4, tzinfo=UTC)
    assert [zoo[u] for u in listed("since:1m", now=now)] == ["running", "side", "retried"]


def test_facets_and_histogram_name_their_window(zoo):
    found = queries.facets()
    assert found["window"] == {"turns": 5, "limit": 1000, "complete": True}
    assert {"value": "failed", "count": 1} in found["facets"]["status"]
    assert {"value": "auxiliary:title", "count": 1} in found["facets"]["role"]
    assert found["facets"]["model"][0] == {"value": "gpt-4o", "count": 4}
    histogram = queries.histogram(buckets=4)
    assert sum(map(sum, histogram["counts"].values())) == 5
    assert histogram["counts"]["failed"] == [0, 1, 0, 0] or sum(histogram["counts"]["failed"]) == 1
    assert histogram["to_us"] - histogram["from_us"] == 4 * histogram["width_us"]
    assert queries.histogram("status:blocked")["counts"] == {}


def test_sessions_hold_their_turns():
    first, second = Talk("one", start=0).record(), Talk("one", start=50_000).record()
    other = Talk("two/x", start=20_000, outcome="failed").record()
    found = queries.sessions()
    assert [(s["session_id"], s["turns"], s["failed"]) for s in found["sessions"]] == [("one", 2, 0), ("two/x", 1, 1)]
    page = queries.sessions(limit=1)
    assert queries.sessions(limit=1, cursor=page["next"])["sessions"][0]["session_id"] == "two/x"
    one = queries.session("one")
    assert [t["uuid"] for t in one["turns"]] == [first, second] and one["next"] is None
    assert queries.session("one", limit=1)["next"] is not None
    assert [t["uuid"] for t in queries.session("two/x")["turns"]] == [other]
    assert queries.session("nobody") is None


def test_what_is_not_there_is_none():
    for uuid in (uid(), "no uuid", "", "\0"):
        assert queries.turn(uuid) is queries.scope(uuid) is None
        assert queries.turn_nodes(uuid) == []
    assert queries.latest_seq() == 0


# The tree


def test_a_tree_holds_calls_attempts_and_tools_in_order_of_time():
    talk = Talk()
    call = talk.call()
    second = talk.attempt(call, 200, 300)
    first = talk.attempt(call, 20, 100, status=FAILED, out=None)
    tool = talk.tool("terminal", 950, 960)
    tree_ = queries.turn(talk.record())["tree"]
    assert [c["uuid"] for c in tree_["children"]] == [call, tool]
    assert [(a["uuid"], a["attempt"], a["status"]) for a in tree_["children"][0]["children"]] == [
        (first, 1, "failed"),
        (second, 2, "ok"),
    ]
    assert tree_["children"][0]["retries"] == 1 and tree_["children"][0]["call_role"] == "primary"
    attempt = node(talk.turn, first)
    assert attempt["error"] == {"type": "InternalServerError", "status": 500, "message": "Error code: 500"}
    assert (attempt["parent_uuid"], attempt["model"], attempt["api_mode"]) == (call, "gpt-4o", "chat_completions")
    assert attempt["usage"]["total_tokens"] is None


def test_b02_an_attempt_that_was_answered_and_asked_again_still_costs():
    Price.objects.create(model="gpt-4o", input=Decimal("2.5"), output=Decimal(10))
    talk = Talk()
    call = talk.call()
    talk.attempt(call, 20, 100, out=answer("rejected", 500, 20))
    talk.attempt(call, 200, 300, out=answer("taken", 500, 30))
    (turn,) = queries.turns()["turns"] if talk.record() else ()
    assert (turn["usage"]["input_tokens"], turn["usage"]["output_tokens"]) == (1000, 50)
    assert turn["cost_usd"] == pytest.approx((1000 * 2.5 + 50 * 10) / 1e6)


def test_a_cost_without_the_price_of_an_attempt_is_not_complete_until_it_is_priced():
    Price.objects.create(model="gpt-4o", input=Decimal("2.5"), output=Decimal(10))
    whole, partial, running = Talk("whole"), Talk("partial"), Talk("running", start=50_000)
    for talk in (whole, partial, running):
        talk.attempt(talk.call(), 20, 100, out=answer("priced", 500, 20))
    partial.attempt(partial.call(), 200, 300, model="unheard-of", out=answer("unpriced", 500, 30))
    running.attempt(running.call(), 200, None, model="unheard-of")
    uuids = {talk.record(): name for talk, name in ((whole, "whole"), (partial, "partial"), (running, "running"))}
    told = {"whole": True, "partial": False, "running": True}

    def complete() -> list[dict[str, bool]]:
        return [
            {uuids[turn["uuid"]]: turn["cost_complete"] for turn in queries.turns()["turns"]},
            {found["session_id"]: found["cost_complete"] for found in queries.sessions()["sessions"]},
            {name: queries.session(name)["cost_complete"] for name in told},
        ]

    assert complete() == [told] * 3
    Price.objects.create(model="unheard-of", input=Decimal(1), output=Decimal(1))
    call_command("reprice", verbosity=0)
    assert complete() == [{**told, "partial": True}] * 3


def test_b03_two_different_ends_are_a_conflict_and_count_once():
    talk = Talk()
    attempt = talk.attempt(talk.call(), 20, 500, status=FAILED, out=None)
    talk.add(scope("end", attempt, talk.events[2]["uuid"], 600, name="openai.chat_completions", category="llm",
                   data=answer("late", 10, 3), metadata=OK))  # fmt: skip
    found = node(talk.record(), attempt)
    assert found["status"] == "failed" and "conflict" in found["flags"]
    assert len(queries.events(attempt)["events"]) == 3
    assert ["conflict"] in queries.events(attempt)["flags"]


def test_b04_the_same_tool_called_twice_is_no_retry():
    talk = Talk()
    talk.tool("read_file", 600, 610, profile={"tool_call_id": "a"})
    talk.tool("read_file", 620, 630, profile={"tool_call_id": "b"})
    (turn,) = queries.turns()["turns"] if talk.record() else ()
    assert (turn["tools"], turn["retries"]) == (2, 0)
    assert [n["tool_call_id"] for n in nodes(talk.turn, "tool")] == ["a", "b"]


def test_b40_a_chain_of_five_thousand_scopes_is_a_tree_that_any_parser_reads():
    talk, parent = Talk(), ""
    chain = []
    parent = talk.turn
    for i in range(5_000):
        uuid = uid()
        chain.append(uuid)
        talk.add(scope("start", uuid, parent, 2 + i / 1000), scope("end", uuid, parent, 8_000 - i / 1000))
        parent = uuid
    turn = json.loads(dumps(queries.turn(talk.record())))
    stack, depths, flattened = [(turn["tree"], 0)], {}, 0
    while stack:
        found, level = stack.pop()
        depths[found["uuid"]] = found["depth"]
        assert level <= tree.NESTING + 1
        flattened += "flattened" in found["flags"]
        stack += [(child, level + 1) for child in found["children"]]
    assert [depths[uuid] for uuid in chain] == list(range(1, 5_001))
    assert flattened == 5_000 - tree.NESTING - 1


def test_b43_an_end_before_its_start_lasts_no_time_and_says_so():
    talk = Talk()
    uuid = talk.around("odd", "function", talk.turn, 5_000, 1_000)
    found = node(talk.record(), uuid)
    assert found["duration_us"] == 0 and "clock_skew" in found["flags"]
    assert found["started_at"] > found["ended_at"]


def test_b51_without_an_end_the_duration_goes_to_the_last_thing_seen():
    talk = Talk()
    attempt = talk.attempt(talk.call(end=None), 20, None)
    talk.add(chunk(attempt, 0, 120))
    talk.tail = []
    found = node(talk.record(), attempt)
    assert (found["ended_at"], found["duration_us"]) == (None, 100_000)
    assert "derived_end" in found["flags"]


def test_a_call_without_a_logical_scope_gets_a_synthetic_one():
    talk = Talk()
    attempt = talk.attempt(talk.turn)
    talk.record()
    above = node(talk.turn, attempt, "logical_call")
    assert "synthetic" in above["flags"] and [c["uuid"] for c in above["children"]] == [attempt]
    below = above["children"][0]
    assert (below["role"], below["flags"], below["attempt"]) == ("attempt", [], 1)
    assert queries.turns()["turns"][0]["logical_calls"] == 1


def test_a_parent_that_never_came_loses_nothing():
    talk = Talk()
    below = talk.around("below", "agent", uid(), 12, 14, root=talk.session)
    talk.record()
    assert "missing_parent" in queries.scope(below)["flags"]
    assert below in listed()


def test_scopes_in_a_circle_are_shown_and_do_not_hang():
    talk = Talk()
    a, b = uid(), uid()
    talk.add(scope("start", a, b, 10, name="a"), scope("start", b, a, 11, name="b"), scope("end", a, b, 20, name="a"))
    talk.record()
    for uuid in (a, b):
        assert queries.scope(uuid)["uuid"] == uuid
    for turn in queries.turns()["turns"]:
        assert queries.turn(turn["uuid"])["tree"]


def test_sub_agents_of_sessions_of_their_own_hang_in_the_tree_and_know_their_turn():
    talk = Talk("parent")
    inner, inner_turn = uid(), uid()
    more = {
        "name": "relay.session",
        "category": "agent",
        "metadata": {"session_id": "child", "nemo_relay_scope_role": "subagent"},
    }
    turn = {"name": "relay.turn", "category": "function"}
    talk.add(
        scope("start", inner, talk.turn, 100, root=inner, **more),
        scope("start", inner_turn, inner, 110, root=inner, **turn),
        scope("end", inner_turn, inner, 190, root=inner, **turn, data={"outcome": "success"}),
        scope("end", inner, talk.turn, 200, root=inner, **more),
    )
    talk.record()
    assert {inner, inner_turn} <= {n["uuid"] for n in nodes(talk.turn)}
    assert node(talk.turn, inner)["role"] == "subagent"
    child = queries.turn_summary(inner_turn)
    assert child["parent_turn_uuid"] == talk.turn
    assert queries.turn_summary(talk.turn)["parent_turn_uuid"] is None
    assert inner_turn in listed("is:subagent") and talk.turn not in listed("is:subagent")
    assert inner_turn in [t["uuid"] for t in queries.inner_turns([queries.as_uuid(talk.turn)])]


def test_only_what_changed_since_a_number_is_told():
    talk = Talk()
    call = talk.call()
    talk.tail, tail = [], talk.tail
    recorder = record(*talk.events)
    before = queries.latest_seq()
    assert queries.turn_nodes(talk.turn, since_seq=before) == []
    talk.events = []
    attempt = talk.attempt(call)
    record(*talk.events, *tail)
    changed = {n["uuid"] for n in queries.turn_nodes(talk.turn, since_seq=before)}
    assert attempt in changed
    assert all(n["seq"] > before for n in queries.turn_nodes(talk.turn, since_seq=before))
    assert recorder.newest == before


def test_b44_the_three_ways_to_write_a_time_are_one_day():
    moments = [1767225600123456, "2026-01-01T00:00:00.123456789+00:00", "2026-01-01T01:00:00+01:00"]
    found = []
    for moment in moments:
        uuid = uid()
        record({**scope("start", uuid, None, 0, category="agent"), "timestamp": moment})
        found.append(queries.turn_summary(uuid)["started_at"])
    assert found == ["2026-01-01T00:00:00.123456Z", "2026-01-01T00:00:00.123456Z", "2026-01-01T00:00:00.000000Z"]


@pytest.mark.skipif(connection.vendor != "sqlite", reason="reads SQLite's query plan")
@pytest.mark.parametrize(
    ("q", "index"),
    [
        ("", "scope_turn_list"),
        ("status:failed", "scope_turn_list"),
        ("model:gpt-* dur:>5s", "scope_turn_list"),
        ("since:2h", "scope_turn_list"),
    ],
)
def test_the_list_walks_an_index_and_sorts_nothing(q, index):
    found = turns_matching(parse(q)).filter(start_us__isnull=False).order_by("-start_us", "-uuid")[:51]
    plan = found.explain()
    assert index in plan and "TEMP B-TREE" not in plan, plan


@pytest.mark.skipif(connection.vendor != "sqlite", reason="reads SQLite's query plan")
@pytest.mark.parametrize(
    ("column", "condition", "index"),
    [
        ("call_role", {"call_role__isnull": False}, "scope_call_role"),
        ("name", {"role": "tool"}, "scope_tool"),
        ("finish_reason", {"role": "attempt"}, "scope_answer"),
        ("api_mode", {"role": "attempt"}, "scope_answer"),
    ],
)
def test_what_is_inside_a_turn_is_found_in_an_index_alone(column, condition, index):
    inside = Scope.objects.filter(**{f"{column}__glob": "x*"}, **condition).values_list("turn_uuid")[:9]
    assert f"COVERING INDEX {index}" in inside.explain()


def test_b25_cut_arguments_of_a_tool_are_flagged_and_the_retry_counted():
    talk = Talk()
    call = talk.call()
    cut = answer(None, 10, 3, "tool_calls")
    cut["choices"][0]["message"]["tool_calls"] = [{"id": "c", "function": {"name": "ls", "arguments": '{"path": "no'}}]
    first = talk.attempt(call, 20, 100, out=cut)
    talk.attempt(call, 200, 300)
    (turn,) = queries.turns()["turns"] if talk.record() else ()
    found = node(talk.turn, first)
    assert (found["status"], found["flags"], turn["retries"]) == ("ok", ["incomplete_tool_call"], 1)


@pytest.mark.parametrize("limit", [1, 2, 3, 50])
@pytest.mark.parametrize("q", ["", "status:failed", "name:relay.turn"])
def test_pages_of_sessions_hold_each_session_once_in_the_order_of_their_newest_turns(monkeypatch, limit, q):
    monkeypatch.setattr(queries, "PAGE", 4)
    rng = random.Random(7)
    for _ in range(40):  # several begin at the same microsecond
        outcome = rng.choice(["success", "failure"])
        Talk(f"s-{rng.randrange(9)}", start=rng.randrange(12) * 1_000, outcome=outcome).record()
    expected: dict[str, list[dict[str, object]]] = {}
    cursor: str | None = None
    while True:
        page = queries.turns(q, limit=4, cursor=cursor)
        for turn in page["turns"]:
            expected.setdefault(turn["session_id"], []).append(turn)
        if (cursor := page["next"]) is None:
            break
    told, pages = [], 0
    while pages < 60:
        answer = queries.sessions(q, limit=limit, cursor=cursor)
        assert len(answer["sessions"]) <= limit
        told += answer["sessions"]
        pages += 1
        if (cursor := answer["next"]) is None:
            break
    assert [s["session_id"] for s in told] == list(expected)
    for session, turns in zip(told, expected.values(), strict=True):
        assert session["turns"] == len(turns)
        assert session["failed"] == sum(t["status"] == "failed" for t in turns)
        assert session["start_us"] == min(t["start_us"] for t in turns)


def test_the_rewrites_of_a_turn_are_those_of_its_attempts_that_changed_something():
    talk = Talk()
    attempt = talk.attempt(talk.call())
    ran = [("hit", "enforce"), ("miss", "enforce"), ("error", "enforce"), ("hit", "shadow"), ("respond", "enforce")]
    for position, (result, mode) in enumerate(ran):
        data = {"position": position, "key": f"k{position}", "mode": mode, "result": result, "patch": []}
        talk.add(mark("relay.rewrite", attempt, 15, data))
    turn = talk.record()
    nodes = queries.turn_nodes(turn)
    changed = [run["key"] for node in nodes for run in node.get("rewrites", ()) if run["changed"]]
    assert changed == ["k0", "k4"] and queries.turn_summary(turn)["rewrites"] == 2
