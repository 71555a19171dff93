"""What scopes and turns come to, case by case."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date
from typing import Any

import pytest

from relayweb.recording.conventions import pricing
from relayweb.recording.events.atof import load, parse
from relayweb.recording.models import Attempt, LogicalCall, Rewrite, Scope, Session, Turn
from relayweb.recording.projection import facts
from relayweb.recording.reading import queries
from relayweb.recording.store.content import Store
from relayweb.recording.writing.recorder import Line
from tests.recording import streams
from tests.recording.streams import FAILED, OK, answer, chunk, mark, request, scope, uid

Record = Callable[..., list[Line]]


class Flow:
    """A session with a turn, and calls in it."""

    def __init__(self, record: Record, prefix: str = "relay") -> None:
        self.record, self.prefix = record, prefix
        self.session, self.turn = uid(), uid()
        self.ms = 0.0
        record(
            scope("start", self.session, uid(), self.tick(), name=f"{prefix}.session", category="agent"),
            scope("start", self.turn, self.session, self.tick(), name=f"{prefix}.turn"),
        )

    def tick(self, by: float = 10) -> float:
        self.ms += by
        return self.ms

    def logical(self, parent: str | None = None) -> str:
        uuid = uid()
        self.record(
            scope(
                "start",
                uuid,
                parent or self.turn,
                self.tick(),
                name=f"{self.prefix}.logical_llm_call",
                metadata={"relay.call_role": "primary"},
            )
        )
        return uuid

    def attempt(self, parent: str, *, status: Any = OK, out: Any = None, marks: Any = (), **more: Any) -> str:
        uuid = uid()
        common: Any = {"name": "openai.chat_completions", "category": "llm"}
        metadata = {"api_mode": "chat_completions", "api_request_id": "r1"}
        self.record(scope("start", uuid, parent, self.tick(), data=request(**more), metadata=metadata, **common))
        self.record(*[m(uuid) for m in marks])
        self.record(scope("end", uuid, parent, self.tick(), data=out, metadata={**metadata, **status}, **common))
        return uuid

    def end(self, uuid: str, parent: str, name: str, outcome: str = "success") -> None:
        self.record(scope("end", uuid, parent, self.tick(), name=f"{self.prefix}.{name}", data={"outcome": outcome}))


def test_retries_are_attempts_of_one_logical_call(record: Record) -> None:
    flow = Flow(record)
    call = flow.logical()
    first = flow.attempt(call, status=FAILED, text="do it")
    second = flow.attempt(call, out=answer(prompt=500, completion=20))
    flow.end(call, flow.turn, "logical_llm_call")
    flow.end(flow.turn, flow.session, "turn")
    turn = Turn.objects.get()
    assert (turn.status, turn.logical_calls, turn.attempts, turn.retries) == ("ok", 1, 2, 1)
    assert (turn.input_tokens, turn.total_tokens, turn.usage_complete, turn.asked) == (500, 520, True, "do it")
    assert json.loads(turn.model_names or "") == {"gpt-4o": 2}
    assert [(str(a.uuid), a.attempt, a.status) for a in Attempt.objects.order_by("attempt")] == [
        (first, 1, "failed"),
        (second, 2, "ok"),
    ]
    assert (LogicalCall.objects.get().attempts, LogicalCall.objects.get().retries) == (2, 1)
    assert Attempt.objects.get(attempt=1).error_status == 500


def test_tokens_of_both_attempts_count_when_the_first_was_not_accepted(
    record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    rate = pricing.Rate("gpt-4o", "", date(2020, 1, 1), input=2, output=8)
    monkeypatch.setattr(pricing, "table", lambda: pricing.Table("test", (rate,)))
    flow = Flow(record)
    call = flow.logical()
    flow.attempt(call, out=answer(prompt=500, completion=20))
    flow.attempt(call, out=answer(prompt=500, completion=30))
    turn = Turn.objects.get()
    assert (turn.input_tokens, turn.output_tokens) == (1_000, 50)
    assert (turn.cost_pusd, turn.wasted_pusd) == (2 * 1_000 + 8 * 50, None)
    flow.attempt(call, status=FAILED, out=answer(prompt=10, completion=1))
    assert Turn.objects.get().wasted_pusd == 28


def test_two_equal_tool_calls_are_two_calls_and_no_retry(record: Record) -> None:
    flow = Flow(record)
    for number in range(2):
        uuid = uid()
        profile = {"tool_call_id": f"c{number}"}
        record(
            scope(
                "start", uuid, flow.turn, flow.tick(), name="read_file", category="tool", data={"p": 1}, profile=profile
            )
        )
        record(
            scope(
                "end",
                uuid,
                flow.turn,
                flow.tick(),
                name="read_file",
                category="tool",
                data="x",
                profile=profile,
                metadata=OK,
            )
        )
    turn = Turn.objects.get()
    assert (turn.tools, turn.retries, turn.attempts) == (2, 0, 0)
    assert sorted(Scope.objects.filter(role="tool").values_list("tool_call_id", flat=True)) == ["c0", "c1"]


def test_chunks_give_first_token_time_and_the_reason_the_end_hides(record: Record) -> None:
    flow = Flow(record)
    call = flow.logical()
    finish = {"finish_reasons": [{"choice_index": 0, "finish_reason": "tool_calls"}]}
    usage = {"usage": {"prompt_tokens": 12, "completion_tokens": 5, "total_tokens": 17}}
    base = flow.ms + 10
    marks = [
        lambda u: chunk(u, 0, base + 30),
        lambda u: chunk(u, 1, base + 31, **finish),
        lambda u: chunk(u, 2, base + 32, **usage),
    ]
    uuid = flow.attempt(
        call,
        out={"choices": [{"finish_reason": "stop", "message": {"content": "", "tool_calls": [{"id": "1"}]}}]},
        marks=marks,
    )
    attempt = Attempt.objects.get(uuid=uuid)
    assert (attempt.chunk_count, attempt.ttft_us, attempt.streaming) == (3, 30_000, True)
    assert (attempt.finish_reason, attempt.stream_finish_reason) == ("stop", "tool_calls")
    assert "finish_reason_mismatch" in attempt.flag_names
    turn = Turn.objects.get()
    assert (turn.chunk_count, turn.input_tokens, turn.output_tokens) == (3, 12, 5)
    assert turn.ttft_us == attempt.start_us - turn.start_us + 30_000


def test_usage_that_nobody_knows_is_null_and_the_sum_incomplete(record: Record) -> None:
    flow = Flow(record)
    flow.attempt(flow.logical(), out={})
    turn = Turn.objects.get()
    assert turn.input_tokens is None and turn.cost_pusd is None and turn.usage_complete is False


def test_a_successful_call_without_a_successful_attempt_says_so(record: Record) -> None:
    flow = Flow(record)
    call = flow.logical()
    flow.attempt(call, status=FAILED)
    flow.end(call, flow.turn, "logical_llm_call")
    assert LogicalCall.objects.get().flag_names == ["no_successful_attempt"]
    flow.attempt(call, out=answer())
    assert "no_successful_attempt" not in LogicalCall.objects.get().flag_names


def test_the_top_agent_of_a_foreign_stream_is_session_and_turn_at_once(record: Record) -> None:
    agent, call = uid(), uid()
    record(
        scope("start", agent, uid(), 0, name="helper", category="agent", metadata={"session_id": "s9"}),
        scope("start", call, agent, 1, name="openai.chat", category="llm", data=request()),
        scope("end", call, agent, 2, name="openai.chat", category="llm", data=answer(), metadata=OK),
        scope("end", agent, uid(), 3, name="helper", category="agent"),
    )
    turn = Turn.objects.get()
    assert Session.objects.get().uuid == turn.uuid and (turn.role, turn.session_id) == ("turn", "s9")
    attempt = Attempt.objects.get()
    assert attempt.flag_names == ["synthetic"] and attempt.logical_uuid == attempt.uuid and attempt.attempt == 1
    assert (turn.logical_calls, turn.attempts, turn.retries) == (1, 1, 0)


def test_a_sub_agent_has_a_turn_of_its_own(record: Record) -> None:
    flow = Flow(record)
    sub, turn = uid(), uid()
    role = {"nemo_relay_scope_role": "subagent"}
    record(scope("start", sub, flow.turn, flow.tick(), name="relay.session", category="agent", metadata=role, root=sub))
    record(scope("start", turn, sub, flow.tick(), name="relay.turn", root=sub))
    flow.attempt(flow.logical(turn), out=answer())
    outer, inner = Turn.objects.get(uuid=flow.turn), Turn.objects.get(uuid=turn)
    assert (outer.logical_calls, outer.subagents, inner.logical_calls) == (0, 1, 1)
    assert Scope.objects.get(uuid=sub).parent_turn_uuid == outer.uuid and str(inner.parent_turn_uuid) == sub
    assert "missing_parent" not in Scope.objects.get(uuid=sub).flag_names


@pytest.mark.parametrize(("root", "missing"), [(None, False), ("self", False), ("parent", False), ("other", True)])
def test_only_a_parent_that_should_have_come_is_missing(record: Record, root: str | None, missing: bool) -> None:
    uuid, parent = uid(), uid()
    given = {"self": uuid, "parent": parent, "other": uid()}.get(root or "")
    record(scope("start", uuid, parent, 0, root=given))
    assert ("missing_parent" in Scope.objects.get().flag_names) is missing
    record(scope("start", parent, None, 0))
    assert "missing_parent" not in Scope.objects.get(uuid=uuid).flag_names


def test_an_end_before_its_start_is_clock_skew_and_keeps_both_times(record: Record) -> None:
    uuid = uid()
    record(scope("start", uuid, None, 10_000), scope("end", uuid, None, 0))
    row = Scope.objects.get()
    assert "clock_skew" in row.flag_names and row.start_us - row.end_us == 10_000_000


def test_a_child_that_ends_after_its_parent_is_late_whatever_came_first(record: Record) -> None:
    flow = Flow(record)
    tool = uid()
    record(scope("start", tool, flow.turn, 30, category="tool"), scope("end", tool, flow.turn, 900, category="tool"))
    record(scope("end", flow.turn, flow.session, 100, name="relay.turn", data={"outcome": "success"}))
    assert "late_child" in Scope.objects.get(uuid=tool).flag_names


def test_a_tool_whose_result_the_gateway_never_saw_is_interrupted_for_an_unknown_time(record: Record) -> None:
    flow = Flow(record)
    tool, at = uid(), flow.tick()
    common: Any = {"name": "look", "category": "tool"}
    observed = {"relay.observed_by": "gateway"}
    record(scope("end", tool, flow.turn, at, metadata={**observed, "outcome": "interrupted", **OK}, **common))
    record(scope("start", tool, flow.turn, at, metadata=observed, data={}, **common))
    own = uid()  # what a tool itself calls an outcome is not ours to read
    record(scope("start", own, flow.turn, flow.tick(), data={}, **common))
    record(scope("end", own, flow.turn, flow.tick(), data={"outcome": "failed"}, metadata=OK, **common))
    found = {node["uuid"]: node for node in queries.turn_nodes(Turn.objects.get().uuid)}
    assert (found[tool]["status"], found[tool]["duration_us"], found[tool]["ended_at"]) == ("interrupted", None, None)
    assert (found[own]["status"], found[own]["duration_us"]) == ("ok", 10_000)


def test_what_stays_open_is_interrupted_and_a_late_end_repairs_it(record: Record) -> None:
    flow = Flow(record)
    call = flow.logical()
    attempt = uid()
    common: Any = {"name": "custom", "category": "llm"}
    record(scope("start", attempt, call, flow.tick(), data=request(), **common), arrived_us=1_000_000)
    recorder = record.recorder  # type: ignore[attr-defined]
    assert recorder.sweep(2_000_000, 500_000, 0) == 0
    assert recorder.sweep(9_000_000, 5_000_000, 0) == 4
    assert set(Scope.objects.values_list("status", flat=True)) == {"interrupted"}
    record(scope("end", attempt, call, flow.tick(), data=answer(), metadata=OK, **common), arrived_us=9_100_000)
    assert Attempt.objects.get().status == "ok"
    assert Turn.objects.get().status == "running"
    flow.end(flow.turn, flow.session, "turn")
    assert Turn.objects.get().status == "ok"


def test_only_one_process_sweeps_in_an_interval(record: Record) -> None:
    Flow(record)
    recorder = record.recorder  # type: ignore[attr-defined]
    now_us = 4 * 10**15  # later than any other writer's clock
    assert recorder.sweep(now_us, 10**9, 1_000_000) == 2
    record(scope("start", uid(), None, 0))
    assert recorder.sweep(now_us + 5, 10**9, 1_000_000) == 0
    assert recorder.sweep(now_us + 1_000_005, 10**9, 1_000_000) == 1


@pytest.mark.parametrize(
    "blocked",
    [
        mark(
            "relay.attempt_blocked",
            None,
            5,
            {"stage": "guardrail", "reason": "no weapons", "model": "m", "request": request("hi")["content"]},
        ),
        mark("openai.chat", None, 5, {"rejected": True, "rejection_reason": "no weapons"}),
    ],
)
def test_a_call_that_never_began_is_a_blocked_attempt(record: Record, blocked: streams.Event) -> None:
    flow = Flow(record)
    call = flow.logical()
    record({**blocked, "parent_uuid": call, "uuid": uid()})
    attempt = Attempt.objects.get()
    assert (attempt.status, attempt.error_message, attempt.attempt) == ("blocked", "no weapons", 1)
    assert str(attempt.logical_uuid) == call
    turn = Turn.objects.get()
    assert (turn.attempts, turn.logical_calls, turn.usage_complete) == (1, 1, True)


@pytest.mark.parametrize("first", [0, 1])
def test_a_refusal_that_relay_and_the_core_both_tell_is_one_attempt(record: Record, first: int) -> None:
    flow = Flow(record)
    call = flow.logical()
    metadata = {"relay.schema_version": "relay.runtime.v1", "api_request_id": "q1"}
    told = [
        mark("openai.chat", call, 5, {"rejected": True, "rejection_reason": "no weapons"}, metadata=metadata),
        mark(
            "relay.attempt_blocked",
            call,
            6,
            {"stage": "guardrail", "reason": "no weapons", "model": "m"},
            metadata=metadata,
        ),
    ]
    record(told[first])
    record(told[1 - first])
    assert Attempt.objects.get().model == "m"
    assert Turn.objects.get().attempts == 1


def test_rewrites_count_where_they_changed_something(record: Record) -> None:
    flow = Flow(record)
    results = [("hit", "enforce"), ("miss", "enforce"), ("hit", "shadow"), ("block", "enforce")]
    marks = [
        lambda u, r=r, m=m, i=i: mark(
            "relay.rewrite", u, 50 + i, {"key": f"k{i}", "result": r, "mode": m, "position": i}
        )
        for i, (r, m) in enumerate(results)
    ]
    uuid = flow.attempt(flow.logical(), out=answer(), marks=marks)
    assert [(r.key, r.changed) for r in Rewrite.objects.order_by("position")] == [
        ("k0", True),
        ("k1", False),
        ("k2", False),
        ("k3", True),
    ]
    assert Attempt.objects.get(uuid=uuid).rewrites == 2 and Turn.objects.get().rewrites == 2


def test_what_the_provider_answered_is_told_by_a_mark(record: Record) -> None:
    flow = Flow(record)
    data = {"status": 429, "error_type": "rate_limit", "message": "slow down", "body": None}
    uuid = flow.attempt(flow.logical(), status=FAILED, marks=[lambda u: mark("relay.attempt_failed", u, 55, data)])
    row = Attempt.objects.get(uuid=uuid)
    assert (row.error_status, row.error_type, row.error_message) == (429, "rate_limit", "slow down")


def test_a_session_takes_its_id_from_a_mark_in_its_turn(record: Record) -> None:
    flow = Flow(record, "hermes")
    record(mark("hermes.turn.start", flow.turn, flow.tick(), {}, metadata={"session_id": "told"}))
    assert set(Scope.objects.values_list("session_id", flat=True)) == {"told"}


def test_a_chain_of_five_thousand_scopes_is_no_trouble(record: Record) -> None:
    uuids = [uid() for _ in range(5_000)]
    events = [scope("start", u, p, i) for i, (u, p) in enumerate(zip(uuids, [None, *uuids], strict=False))]
    for at in range(0, 5_000, 500):
        record(*events[at : at + 500])
    assert Scope.objects.filter(turn_uuid=uuids[0]).count() == 5_000
    record(scope("start", uid(), uuids[-1], 9_000, category="tool"))
    assert Turn.objects.get().tools == 1


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (2, 3, 0, 1), (3, 1, 2, 0)])
def test_one_turn_and_one_call_seen_by_two_processes_are_one(record: Record, order: tuple[int, ...]) -> None:
    meta = {"session_id": "s", "turn_id": "t"}
    parts: list[list[streams.Event]] = []
    for process in range(2):
        session, turn, call, attempt = (uid() for _ in range(4))
        ms = process * 100.0
        more: Any = {"category": "llm", "name": "custom", "metadata": {"api_request_id": "r"}}
        parts.append(
            [
                scope("start", session, None, ms, name="relay.session", category="agent", metadata={"session_id": "s"}),
                scope("start", turn, session, ms + 1, name="relay.turn", metadata=meta),
                scope("start", call, turn, ms + 2, name="relay.logical_llm_call"),
            ]
        )
        out = answer() if process else None
        status = OK if process else FAILED
        parts.append(
            [
                scope("start", attempt, call, ms + 3, data=request(), **more),
                scope("end", attempt, call, ms + 4, data=out, **{**more, "metadata": {**more["metadata"], **status}}),
            ]
        )
    for number in order:
        record(*parts[number])
    turn = Turn.objects.get()
    assert (str(turn.uuid), turn.logical_calls, turn.attempts, turn.retries) == (parts[0][1]["uuid"], 1, 2, 1)
    assert [a.attempt for a in Attempt.objects.order_by("start_us")] == [1, 2]
    assert set(Attempt.objects.values_list("turn_uuid", flat=True)) == {turn.uuid}
    joined = {str(s.uuid): str(s.joined_uuid) for s in Scope.objects.exclude(joined_uuid=None)}
    assert joined == {parts[2][1]["uuid"]: parts[0][1]["uuid"], parts[2][2]["uuid"]: parts[0][2]["uuid"]}
    by_other_name = queries.turn(parts[2][1]["uuid"])
    assert by_other_name is not None and by_other_name["uuid"] == str(turn.uuid)


def test_a_request_of_very_many_members_costs_no_more_than_its_length(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = []
    monkeypatch.setattr(facts, "load", lambda text: loaded.append(text) or load(text))
    data = {"content": {**{f"k{number}": number for number in range(20_000)}, "model": "m"}, "headers": {}}
    event = parse(streams.line(streams.scope("start", streams.uid(), None, 1, category="llm", data=data)))
    told = facts.read_scope(event, Store().pack(event), {})
    assert told.model == "m" and len(loaded) < 50
