"""Streams of real clients, as pages and API show them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from relayweb.recording.reading import bodies, queries
from tests.recording.recorded import record

pytestmark = pytest.mark.django_db(transaction=True)

CAPTURES = Path(__file__).parent.parent / "captures"


def show(name):
    """Record a capture as `relayweb import` does; its turns, oldest first."""
    text = gzip.decompress((CAPTURES / f"{name}.jsonl.gz").read_bytes())
    recorder = record(*[json.loads(line) for line in text.split(b"\n") if line.strip()])
    recorder.sweep(10**16, 1, 0)
    return sorted(queries.turns()["turns"], key=lambda turn: turn["start_us"])


def attempts(turn):
    return [n for n in queries.turn_nodes(turn["uuid"]) if n["role"] == "attempt"]


def test_l4_a_sub_agent_with_a_root_of_its_own_is_in_the_same_tree():
    parent, child = show("hermes-iot-delegate")
    nodes = {n["uuid"]: n for n in queries.turn_nodes(parent["uuid"])}
    assert child["uuid"] in nodes and nodes[child["uuid"]]["role"] == "turn"
    above = nodes[nodes[child["uuid"]]["parent_uuid"]]
    assert (above["role"], above["name"], above["parent_uuid"]) == ("subagent", "hermes.session", parent["uuid"])
    assert child["parent_turn_uuid"] == parent["uuid"]
    assert (parent["subagents"], parent["logical_calls"]) == (1, 2)


def test_l6_both_finish_reasons_are_shown_and_the_difference_flagged():
    (turn,) = show("hermes-axisrow-basic")
    first, second = attempts(turn)
    assert (first["finish_reason"], first["stream_finish_reason"]) == ("stop", "tool_calls")
    assert {"finish_reason_mismatch", "incomplete_tool_call"} <= set(first["flags"])
    assert "finish_reason_mismatch" not in second["flags"]
    assert turn["usage"]["total_tokens"] == 2 * 1238, "the first one's usage is in its chunk marks alone"


def test_l8_anthropic_usage_told_four_times_counts_once():
    (turn,) = show("hermes-iot-anthbasic")
    assert (turn["usage"]["input_tokens"], turn["usage"]["output_tokens"]) == (2 * 1201, 2 * 41)
    assert turn["usage"]["cached_tokens"] == 2 * 1024


def test_l10_what_never_ended_is_interrupted():
    (turn,) = show("hermes-h019-basic")
    tools = [n for n in queries.turn_nodes(turn["uuid"]) if n["role"] == "tool"]
    assert [n["status"] for n in tools] == ["interrupted", "interrupted"]
    assert queries.turns("is:running")["turns"] == []


def test_l13_a_sinks_token_is_masked_wherever_it_is_read():
    show("gateway_sessions")
    for turn in queries.turns()["turns"]:
        for node in queries.turn_nodes(turn["uuid"]):
            found = [
                queries.events(node["uuid"])["events"],
                list((bodies.request(queries.as_uuid(node["uuid"])) or {}).values()),
            ]
            assert "SINKSECRET" not in repr([node, found])
    assert {t["session_id"]: t["logical_calls"] for t in queries.turns()["turns"]} == {
        "sess-A": 2,
        "sess-B": 1,
        "cc-1": 2,
    }


def test_a_retried_server_error_is_one_call_of_two_attempts():
    (turn,) = show("hermes-iot-retry500")
    assert (turn["logical_calls"], turn["attempts"], turn["retries"], turn["tools"]) == (2, 3, 1, 2)
    failed = attempts(turn)[0]
    assert (failed["status"], failed["error"]["status"], failed["error"]["type"]) == (
        "failed",
        500,
        "InternalServerError",
    )
    assert turn["usage"]["complete"] is True, "a refused request used no tokens"


def test_a_cut_stream_fails_its_attempt_and_leaves_the_usage_a_lower_bound():
    (turn,) = show("hermes-iot-abort")
    assert [a["status"] for a in attempts(turn)] == ["failed", "ok"]
    assert attempts(turn)[0]["error"]["type"] == "RemoteProtocolError" and turn["usage"]["complete"] is False


def test_a_guardrail_and_an_intercept_of_others_are_shown():
    (turn,) = show("py_intercepts_guardrails")
    assert [a["status"] for a in attempts(turn)] == ["ok", "blocked"]
    assert attempts(turn)[1]["error"]["message"] == "policy: weapons"


def test_foreign_agents_are_session_and_turn_at_once():
    (turn,) = show("langchain_agent")
    assert (turn["logical_calls"], turn["tools"], turn["models"]) == (2, 1, ["fake-1"])
    assert turn["usage"]["total_tokens"] == 38
    calls = [n for n in queries.turn_nodes(turn["uuid"]) if n["role"] == "logical_call"]
    assert all("synthetic" in call["flags"] for call in calls)
