from __future__ import annotations

import gzip
import io
import json
import sys
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from adapters import marks
from relayweb.ingest import export
from relayweb.ingest.export_atif import atif
from relayweb.ingest.export_otlp import otlp
from relayweb.ingest.otlp import spans
from relayweb.ingest.otlp.events import events
from relayweb.recording.reading import queries
from tests.recording.recorded import FAILED, OK, Talk, answer, chunk, record, request, scope, uid
from tests.recording.streams import mark
from tests.recording.test_any_order import empty, snapshot

pytestmark = pytest.mark.django_db(transaction=True)


def exported(part=None):
    lines = list(export.atof(part or export.everything()))
    assert all(line.isascii() and line.endswith(b"\n") for line in lines)
    return [json.loads(line) for line in lines]


def key(event):
    return event["uuid"], event["kind"], event.get("scope_category"), json.dumps(event, sort_keys=True)


def busy(session="s-1", start=0.0):
    talk = Talk(session, start=start)
    call = talk.call()
    talk.attempt(call, 20, 100, status=FAILED, out=None, asks="long question " * 60)
    attempt = talk.attempt(call, 200, 500, asks="long question " * 60, out=answer("long answer " * 60))
    talk.add(*[chunk(attempt, i, 210 + i) for i in range(20)])
    talk.add(mark(marks.CHUNKS, attempt, 230, {"first": 0, "chunks": [{"choices": []}] * 20}))
    talk.add(mark("note", talk.turn, 300, {"text": "é\u2028", "n": 2**70}))
    talk.tool("terminal", profile={"tool_call_id": "c1"})
    return talk


def test_everything_comes_back_with_the_same_values():
    talks = [busy(f"s-{i}", start=i * 20_000) for i in range(3)]
    for talk in talks:
        talk.record()
    assert sorted(map(key, exported())) == sorted(key(e) for t in talks for e in t.all())


def test_conflicting_copies_are_exported_too_and_duplicates_once():
    talk = Talk()
    attempt = talk.attempt(talk.call(), 20, 500)
    other = scope(
        "end",
        attempt,
        talk.events[2]["uuid"],
        600,
        name="openai.chat_completions",
        category="llm",
        data=None,
        metadata=OK,
    )
    talk.add(other, other)
    talk.record()
    ends = [e for e in exported() if e["uuid"] == attempt and e["scope_category"] == "end"]
    assert len(ends) == 2 and other in ends


def test_an_import_of_an_export_gives_the_same_record():
    for i in range(2):
        busy(f"s-{i}", start=i * 20_000).record()
    before, events = snapshot(), exported()
    empty()
    record(*events)
    assert snapshot() == before
    assert sorted(map(key, exported())) == sorted(map(key, events))


def test_events_come_in_the_order_they_were_accepted():
    talk = busy()
    talk.record()
    order = {json.dumps(e, sort_keys=True): i for i, e in enumerate(talk.all())}
    places = [order[json.dumps(e, sort_keys=True)] for e in exported()]
    assert places == sorted(places)


def test_one_turn_comes_with_its_sub_agents_and_the_scopes_around_it():
    wanted, other = busy("one"), busy("one", start=20_000)
    inner = uid()
    more = {"name": "helper", "category": "agent"}
    wanted.add(scope("start", inner, wanted.turn, 400, **more), scope("end", inner, wanted.turn, 410, **more))
    wanted.record()
    other.record()
    found = exported(export.turn(wanted.turn))
    assert sorted(map(key, found)) == sorted(map(key, wanted.all()))
    empty()
    record(*found)
    assert queries.turn_summary(wanted.turn)["session_id"] == "one"
    assert "missing_parent" not in queries.turn_summary(wanted.turn)["flags"]


def test_one_session_comes_with_all_its_turns():
    first, second, other = busy("one"), busy("one", start=20_000), busy("two", start=40_000)
    for talk in (first, second, other):
        talk.record()
    assert sorted(map(key, exported(export.session("one")))) == sorted(map(key, first.all() + second.all()))


def test_what_is_not_there_is_named():
    with pytest.raises(export.NothingThere, match="there is no turn"):
        export.turn(uid())
    with pytest.raises(export.NothingThere, match="there is no session 'x'"):
        export.session("x")


# OTLP


def test_spans_of_an_export_bring_the_same_scopes_back():
    talk = busy()
    talk.record()
    before = {n["uuid"]: n for n in queries.turn_nodes(talk.turn)}
    requests = list(otlp(export.everything()))
    empty()
    found = [span for line in requests for span in spans.from_json(line)]
    record(*[json.loads(line) for span in found for line in events(span)])
    after = {n["uuid"]: n for n in queries.turn_nodes(talk.turn)}
    assert set(after) == set(before)
    same = ("role", "name", "status", "parent_uuid", "started_at", "ended_at", "model", "usage", "tool_call_id")
    for uuid, node in before.items():
        assert {k: after[uuid].get(k) for k in same} == {k: node.get(k) for k in same}, node["name"]


def test_values_of_any_kind_go_through_spans_and_an_export_of_an_import_is_the_same():
    given = ["plain", '"quoted"', "12", "true", 5, -(2**63), 1.5, True, False, [1, "x"], {"a": "s", "b": {"c": 1}}]
    talk = Talk()
    told = {talk.tool("t", 600 + i, 601 + i, data=value, out=value): value for i, value in enumerate(given)}
    talk.tool("t", 700, 701, data=2**70, out="a\0b ✅")
    talk.record()
    exports = []
    for _ in range(4):
        exports.append(list(otlp(export.everything())))
        empty()
        found = [span for line in exports[-1] for span in spans.from_json(line)]
        record(*[json.loads(line) for span in found for line in events(span)])
    for uuid, value in told.items():
        said = [json.loads(bytes(line))["data"] for line in queries.events(uuid)["events"]]
        assert [(type(data), data) for data in said] == [(type(value), value)] * 2
    assert exports[1] == exports[2] == exports[3]


def test_spans_have_relays_ids_and_names_that_others_read():
    talk = busy()
    talk.record()
    (line,) = otlp(export.turn(talk.turn))
    found = json.loads(line)["resourceSpans"][0]["scopeSpans"][0]["spans"]
    by_id = {span["spanId"]: span for span in found}
    turn = by_id[talk.turn.replace("-", "")[16:]]
    assert (
        turn["traceId"] == talk.session.replace("-", "") and turn["parentSpanId"] == talk.session.replace("-", "")[16:]
    )
    calls = [s for s in found if s["name"] == "openai.chat_completions"]
    attributes = {a["key"]: a["value"] for a in max(calls, key=lambda s: s["startTimeUnixNano"])["attributes"]}
    assert attributes["gen_ai.operation.name"] == {"stringValue": "chat"}
    assert attributes["gen_ai.usage.input_tokens"] == {"intValue": "10"}
    assert {s["status"].get("code") for s in calls} == {1, 2}
    assert [e["name"] for e in turn["events"]] == ["note"]
    assert "parentSpanId" not in by_id[talk.session.replace("-", "")[16:]]


# ATIF


def test_a_trajectory_has_what_was_asked_said_called_and_returned():
    talk = Talk("s-1")
    call = talk.call()
    talk.attempt(call, 20, 100, status=FAILED, out=None, asks="add 1 and 2")
    calling = answer(None, 100, 10, "tool_calls")
    calling["choices"][0]["message"] |= {
        "reasoning_content": "use the tool",
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a":1}'}}],
    }
    talk.attempt(call, 120, 200, out=calling, asks="add 1 and 2")
    talk.tool("add", profile={"tool_call_id": "c1"}, out={"sum": 3})
    body = request("add 1 and 2")
    body["content"]["messages"] += [
        calling["choices"][0]["message"],
        {"role": "tool", "tool_call_id": "c1", "content": "3"},
    ]
    talk.attempt(talk.call(800, 900), 810, 890, data=body, out=answer("It is 3.", 120, 5))
    talk.record()
    (line,) = atif(export.everything())
    found = json.loads(line)
    assert (found["schema_version"], found["session_id"]) == ("ATIF-v1.7", "s-1")
    user, agent, last = found["steps"]
    assert [s["step_id"] for s in found["steps"]] == [1, 2, 3]
    assert (user["source"], user["message"]) == ("user", "add 1 and 2")
    assert agent["tool_calls"] == [{"tool_call_id": "c1", "function_name": "add", "arguments": {"a": 1}}]
    assert agent["reasoning_content"] == "use the tool"
    assert agent["observation"]["results"] == [{"source_call_id": "c1", "content": '{"sum": 3}'}]
    assert agent["metrics"]["prompt_tokens"] == 100
    assert (last["source"], last["message"]) == ("agent", "It is 3.")
    assert found["final_metrics"]["total_prompt_tokens"] == 220 and found["final_metrics"]["total_steps"] == 3


def test_trajectories_of_a_session_and_of_its_sub_agents_are_apart():
    first, second = busy("one"), busy("one", start=20_000)
    inner = uid()
    more = {"name": "helper", "category": "agent", "metadata": {"session_id": "helper"}}
    first.add(scope("start", inner, first.turn, 400, **more), scope("end", inner, first.turn, 410, **more))
    first.record()
    second.record()
    found = [json.loads(line) for line in atif(export.everything())]
    assert [(t["session_id"], len(t["extra"]["turns"])) for t in found] == [("one", 2), ("helper", 1)]
    assert found[1]["extra"]["parent_turn"] == first.turn


# The command


def run(monkeypatch, *args):
    out = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", type("Out", (), {"buffer": out})())
    call_command("export", *args)
    return out.getvalue()


def test_the_command_writes_each_format(monkeypatch):
    talk = busy()
    talk.record()
    assert len(run(monkeypatch).splitlines()) == len(talk.all())
    assert b"resourceSpans" in run(monkeypatch, "--format", "otlp", "--turn", talk.turn)
    assert b"ATIF-v1.7" in run(monkeypatch, "--format", "atif", "--session", "s-1")


def test_the_command_refuses_what_is_not_there():
    with pytest.raises(CommandError, match="no turn"):
        call_command("export", "--turn", uid())


CAPTURES = Path(__file__).parent.parent / "captures"


@pytest.mark.parametrize("path", sorted(CAPTURES.glob("*.jsonl.gz")), ids=lambda p: p.name.split(".")[0])
def test_real_streams_come_back_with_the_same_values(path):
    events = [json.loads(line) for line in gzip.decompress(path.read_bytes()).split(b"\n") if line.strip()]
    record(*events)
    found = exported()
    if path.name == "gateway_sessions.jsonl.gz":  # l13: holds a sink's token
        assert b"SINKSECRET" not in b"".join(export.atof(export.everything()))
        assert [e["uuid"] for e in found] == [e["uuid"] for e in events]
    else:
        assert sorted(map(key, found)) == sorted(map(key, events))
