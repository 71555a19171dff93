from __future__ import annotations

import json
from uuid import UUID

import pytest

from adapters import marks
from relayweb.recording.reading import bodies, chunks
from tests.recording.recorded import FAILED, OK, Talk, answer, chunk, record, request, uid
from tests.recording.streams import line, mark

pytestmark = pytest.mark.django_db(transaction=True)


def one(**more):
    """A turn with one call and one attempt."""
    talk = Talk()
    return talk, talk.attempt(talk.call(), **more)


def value(found, name):
    return None if found[name] is None else json.loads(found[name])


def test_request_and_answer_come_back_as_they_were_sent():
    asked = request("long " * 500)["content"]
    talk, attempt = one(asks="long " * 500, out=answer("said " * 400))
    talk.record()
    found = bodies.request(UUID(attempt))
    assert value(found, "request") == asked
    assert (found["app"], value(found, "headers"), found["escaped"]) == (None, {}, [])
    assert value(bodies.response(UUID(attempt)), "response") == answer("said " * 400)


def test_any_digits_and_any_text_survive():
    odd = {"n": 123456789012345678901234567890, "f": 0.1, "text": "\0 \u2028 \U0001f600 \u00e9"}
    talk = Talk()
    tool = talk.tool("terminal", data=odd, out=odd)
    talk.record()
    assert value(bodies.request(UUID(tool)), "request") == odd
    assert value(bodies.response(UUID(tool)), "response") == odd
    assert b"123456789012345678901234567890" in bodies.response(UUID(tool))["response"]


def test_lone_surrogates_come_back():
    talk, attempt = one(asks="x" * 600)
    raw = line(talk.events[-2]).replace(b"x" * 600, b"\\ud800" + b"x" * 594)
    from relayweb.recording.writing.recorder import Line

    recorder = record()
    recorder.record([Line(raw, 0)])
    found = json.loads(bodies.request(UUID(attempt))["request"])
    assert found["messages"][0]["content"][0] == "\ud800"


def test_what_the_marks_say_of_the_request_wins():
    talk, attempt = one()
    told = {"app": {"model": "asked"}, "provider": {"model": "got"}, "escaped": ["/x"]}
    talk.add(mark(marks.REQUEST, attempt, 30, told))
    talk.record()
    found = bodies.request(UUID(attempt))
    assert (value(found, "app"), value(found, "request"), found["escaped"]) == (
        {"model": "asked"},
        {"model": "got"},
        ["/x"],
    )


def test_what_the_app_gave_is_put_together_from_a_patch_of_the_body_that_went_out():
    talk, attempt = one()
    sent = json.loads(bodies.request(UUID(attempt))["request"]) if talk.record() else {}
    patch = [{"op": "replace", "path": "/model", "value": "asked"}, {"op": "add", "path": "/n", "value": 2**70}]
    talk.add(mark(marks.REQUEST, attempt, 30, {"app_patch": patch}))
    talk.record()
    assert value(bodies.request(UUID(attempt)), "app") == {**sent, "model": "asked", "n": 2**70}


def test_the_later_mark_wins_in_whatever_order_they_came():
    talk, attempt = one()
    late = mark(marks.REQUEST, attempt, 31, {"app_patch": [{"op": "replace", "path": "/model", "value": "late"}]})
    early = mark(marks.REQUEST, attempt, 30, {"app_patch": [{"op": "replace", "path": "/model", "value": "early"}]})
    talk.add(late, early)
    talk.record()
    assert value(bodies.request(UUID(attempt)), "app")["model"] == "late"


def test_a_patch_that_does_not_fit_the_body_tells_no_app_body():
    talk, attempt = one()
    talk.add(mark(marks.REQUEST, attempt, 30, {"app_patch": [{"op": "remove", "path": "/none"}]}))
    talk.record()
    assert bodies.request(UUID(attempt))["app"] is None


def test_a_failed_attempt_tells_what_the_provider_answered():
    talk, attempt = one(status=FAILED, out=None)
    told = {"status": 429, "error_type": "x", "message": "slow", "body": "{}", "request_id": None, "retry_after": "2"}
    talk.add(mark(marks.ATTEMPT_FAILED, attempt, 30, told))
    talk.record()
    found = bodies.response(UUID(attempt))
    assert (found["response"], found["partial"], value(found, "failure")) == (None, False, told)


def test_the_text_of_a_cut_stream_is_put_together_from_its_chunks():
    talk, attempt = one(status=FAILED, out=None)
    texts = [{"choices": [{"index": 0, "delta": {"content": t}}]} for t in ("It ", "was ", "cut")]
    talk.add(mark(marks.CHUNKS, attempt, 30, {"first": 1, "chunks": texts[1:]}))
    talk.add(mark(marks.CHUNKS, attempt, 25, {"first": 0, "chunks": texts[:1]}))
    talk.record()
    found = bodies.response(UUID(attempt))
    assert found["partial"] is True
    assert value(found, "response")["choices"][0]["message"]["content"] == "It was cut"


def test_b23_an_unfinished_tool_call_of_a_cut_stream_is_kept():
    talk, attempt = one(status=FAILED, out=None)
    call = {"index": 0, "id": "c1", "function": {"name": "read_file", "arguments": '{"path": "no'}}
    talk.add(
        mark(
            marks.CHUNKS,
            attempt,
            30,
            {"first": 0, "chunks": [{"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]}]},
        )
    )
    talk.record()
    (kept,) = value(bodies.response(UUID(attempt)), "response")["choices"][0]["message"]["tool_calls"]
    assert kept["function"] == {"name": "read_file", "arguments": '{"path": "no'}


def test_l7_no_recorded_text_is_no_text():
    talk, attempt = one(out={})
    talk.record()
    assert value(bodies.response(UUID(attempt)), "response") == {}


@pytest.mark.parametrize(
    "data", [None, "text", 7, [], {}, {"content": None}, {"content": "x"}, {"content": {"messages": None}}]
)
def test_b65_data_of_any_shape_is_given_back(data):
    talk = Talk()
    attempt = talk.around("openai.chat", "llm", talk.turn, 1, 2, data=data, out=data, end_metadata=OK)
    talk.record()
    found = bodies.request(UUID(attempt))
    inner = data.get("content") if isinstance(data, dict) else None
    assert value(found, "request") == (data if inner is None else inner) or data is None
    assert value(bodies.response(UUID(attempt)), "response") == data
    assert bodies.rewrites(UUID(attempt))["rewrites"] == []


def rewrite(attempt, position, patch, **more):
    data = {
        "position": position, "key": f"k{position}", "revision": 3, "action": "set_parameters", "priority": 10,
        "mode": "enforce", "result": "hit" if patch else "miss", "patch": patch, "headers": [], "duration_us": 5.0,
        "bytes_before": 10, "bytes_after": 12, **more,
    }  # fmt: skip
    return mark(marks.REWRITE, attempt, 19 + position / 10, data)


def test_b56_the_request_is_shown_before_and_after_each_rewrite():
    talk, attempt = one()
    app = {"model": "gpt-4o", "messages": [], "temperature": 1}
    provider = {"model": "gpt-5", "messages": [], "top_k": 4}
    talk.add(
        mark(marks.REQUEST, attempt, 21, {"app": app, "provider": provider}),
        rewrite(attempt, 2, [{"op": "remove", "path": "/temperature"}, {"op": "add", "path": "/top_k", "value": 4}]),
        rewrite(attempt, 0, [{"op": "replace", "path": "/model", "value": "gpt-5"}]),
        rewrite(attempt, 1, [{"op": "add", "path": "/n", "value": 2}], mode="shadow"),
    )
    talk.record()
    found = bodies.rewrites(UUID(attempt))
    assert [s.get("name", s.get("key")) for s in found["stages"]] == ["app", "k0", "k1", "k2", "provider"]
    assert found["stages"][0]["body"] == app
    assert found["stages"][1]["body"] == {**app, "model": "gpt-5"}
    assert found["stages"][2]["body"] == found["stages"][1]["body"], "what a shadow would have changed stays as it was"
    assert found["stages"][3]["body"] == found["stages"][4]["body"] == provider
    assert [r["attempt"] for r in found["rewrites"]] == [attempt] * 3
    from relayweb.recording.reading import queries

    node = next(n for n in queries.turn_nodes(talk.turn) if n["uuid"] == attempt)
    assert node["rewrites"][0] == {"key": "k0", "revision": 3, "result": "hit", "mode": "enforce", "changed": True}


def test_b57_a_patch_that_does_not_fit_is_named_and_changes_nothing():
    talk, attempt = one()
    talk.add(rewrite(attempt, 0, [{"op": "remove", "path": "/nowhere"}]), rewrite(attempt, 1, "nonsense"))
    talk.record()
    stages = bodies.rewrites(UUID(attempt))["stages"]
    assert "/nowhere" in stages[1]["problem"] and stages[1]["body"] == stages[0]["body"]
    assert stages[2]["problem"]


def test_the_events_of_a_scope_are_the_events_that_came():
    talk, attempt = one()
    note = mark("note", attempt, 40, {"x": 1})
    talk.add(note, chunk(attempt, 0, 30))
    talk.record()
    found = bodies.events(UUID(attempt))
    sent = [e for e in talk.events if attempt in (e["uuid"], e["parent_uuid"]) and e["name"] != "llm.chunk"]
    assert [json.loads(t) for t in found["events"]] == sent
    assert found["seqs"] == sorted(found["seqs"]) and found["next"] is None
    first = bodies.events(UUID(attempt), limit=1)
    assert (len(first["events"]), first["next"]) == (1, 1)


def test_a_call_blocked_before_it_began_tells_what_was_asked():
    talk = Talk()
    call = talk.call(outcome="failed")
    told = {"stage": "guardrail", "reason": "no", "error_type": None, "request": {"model": "m"}, "model": "m",
            "provider": "openai", "api_mode": "chat_completions"}  # fmt: skip
    talk.add(mark(marks.ATTEMPT_BLOCKED, call, 30, told))
    talk.record()
    from relayweb.recording.reading import queries

    (blocked,) = [n for n in queries.turn_nodes(talk.turn) if n["role"] == "attempt"]
    assert (blocked["status"], blocked["error"]["message"]) == ("blocked", "no")
    assert value(bodies.request(UUID(blocked["uuid"])), "request") == {"model": "m"}


def test_nothing_is_known_of_a_scope_that_is_not_there():
    for read in (bodies.request, bodies.response, bodies.rewrites, bodies.events, chunks.page):
        assert read(UUID(uid())) is None


# Chunks


def test_marks_and_content_of_a_stream_are_joined_by_index():
    talk, attempt = one()
    bodies_ = [{"choices": [{"index": 0, "delta": {"content": t}}]} for t in "ABC"]
    talk.add(*[chunk(attempt, i, 30 + i) for i in (2, 0, 1)])
    talk.add(
        chunk(
            attempt,
            3,
            40,
            usage={"prompt_tokens": 3, "completion_tokens": 2},
            finish_reasons=[{"finish_reason": "stop"}],
        )
    )
    talk.add(mark(marks.CHUNKS, attempt, 35, {"first": 0, "chunks": bodies_[:2]}))
    talk.add(mark(marks.CHUNKS, attempt, 600, {"first": 2, "chunks": bodies_[2:]}))
    talk.record()
    found = chunks.page(UUID(attempt))
    assert [(c["index"], c["kind"], c["text"], c["size"]) for c in found["chunks"]] == [
        (0, "text", "A", 1), (1, "text", "B", 1), (2, "text", "C", 1), (3, "other", None, None)
    ]  # fmt: skip
    assert found["chunks"][0]["content"] == bodies_[0] and found["chunks"][3]["content"] is None
    assert (found["chunks"][3]["finish_reason"], found["chunks"][3]["usage"]["total_tokens"]) == ("stop", 5)
    assert [c["at_us"] for c in found["chunks"]] == sorted(c["at_us"] for c in found["chunks"])
    page = chunks.page(UUID(attempt), offset=1, limit=2)
    assert ([c["index"] for c in page["chunks"]], page["count"], page["next"]) == ([1, 2], 4, 3)


def test_redacted_chunks_have_a_length_and_no_text():
    talk, attempt = one()
    talk.add(mark(marks.CHUNKS, attempt, 35, {"first": 0, "chunks": [{"length": 7}], "redacted": True}))
    talk.record()
    (found,) = chunks.page(UUID(attempt))["chunks"]
    assert (found["size"], found["text"], found["content"]) == (7, None, None)


def test_l16_content_with_any_digits_is_given_back_raw():
    talk, attempt = one()
    talk.add(mark(marks.CHUNKS, attempt, 35, {"first": 0, "chunks": [{"n": 123456789012345678901234567890}]}))
    talk.record()
    (found,) = chunks.page(UUID(attempt), raw=True)["chunks"]
    assert bytes(found["content"]) == b'{"n":123456789012345678901234567890}'


def test_marks_without_an_index_come_last_in_order_of_time():
    talk, attempt = one()
    talk.add(mark("llm.chunk", attempt, 50, {}), mark("llm.chunk", attempt, 40, None), chunk(attempt, 0, 30))
    talk.record()
    found = chunks.page(UUID(attempt))["chunks"]
    assert [c["index"] for c in found] == [0, 1, 2] and found[1]["at_us"] < found[2]["at_us"]


def test_a_long_stream_is_paged():
    talk, attempt = one()
    talk.add(*[chunk(attempt, i, 21 + i / 10) for i in range(1_000)])
    talk.record()
    seen, offset = [], 0
    while offset is not None:
        page = chunks.page(UUID(attempt), offset=offset, limit=300)
        seen += [c["index"] for c in page["chunks"]]
        offset = page["next"]
    assert seen == list(range(1_000))


@pytest.mark.parametrize(
    ("result", "raised", "more", "last"),
    [
        ("block", "CallBlocked", {}, "held"),
        ("error", "CallBlocked", {}, "held"),
        ("respond", None, {}, "held"),
        ("fault", "CallFault", {}, "held"),
        ("fault", "CallCut", {}, "held"),
        ("fault", None, {}, "provider"),
        ("error", "RateLimitError", {}, "provider"),
        ("hit", None, {}, "provider"),
        ("block", None, {"mode": "shadow"}, "provider"),
        ("respond", None, {"mode": "shadow"}, "provider"),
    ],
)
def test_a_request_that_was_never_sent_has_no_stage_at_the_provider(result, raised, more, last):
    ended = {"status": {**FAILED, "exception.type": raised}} if raised else {}
    talk, attempt = one(**ended)
    talk.add(rewrite(attempt, 0, [], result=result, **more))
    talk.record()
    found = bodies.rewrites(UUID(attempt))["stages"]
    assert [stage.get("name", "k0") for stage in found] == ["app", "k0", last]
    assert found[-1]["body"] == found[0]["body"]


def test_a_stream_that_a_rule_cut_in_the_middle_was_sent():
    talk, attempt = one(status={**FAILED, "exception.type": "CallCut"})
    talk.add(rewrite(attempt, 0, [], result="fault"), chunk(attempt, 0, 30))
    talk.record()
    assert bodies.rewrites(UUID(attempt))["stages"][-1]["name"] == "provider"
