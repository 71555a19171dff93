from __future__ import annotations

import itertools
import json
import uuid
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.core.management import call_command

from adapters.intercepts import RuleError
from relayweb.intercepts import backtest, trial
from relayweb.recording.writing.writer import writer
from tests.people import signed_in

pytestmark = pytest.mark.django_db(transaction=True)

_seconds = itertools.count(1)


def at() -> str:
    return f"2026-11-30T08:{next(_seconds) // 60:02d}:{next(_seconds) % 60:02d}.000000Z"


def scope(name: str, category: str, parent: str | None, data: Any = None, **metadata: Any) -> tuple[str, list[dict]]:
    own = str(uuid.uuid4())
    common = {
        "kind": "scope",
        "category": category,
        "name": name,
        "uuid": own,
        "parent_uuid": parent,
        "atof_version": "0.1",
        "attributes": [],
        "metadata": metadata,
    }
    start = {**common, "scope_category": "start", "timestamp": at(), "data": data}
    end = {**common, "scope_category": "end", "timestamp": at(), "data": None}
    if category == "llm":
        start["category_profile"] = {"model_name": data["content"]["model"]}
    return own, [start, end]


def record(*calls: list[dict[str, Any]], model: str = "gpt-5.2") -> None:
    """One turn whose calls had these messages."""
    turn, events = scope("agent.turn", "agent", None, nemo_relay_scope_role="turn", session_id="s1")
    for messages in calls:
        body = {"model": model, "messages": messages}
        _, call = scope(
            "openai.chat_completions", "llm", turn, {"content": body, "headers": {}}, api_mode="chat_completions"
        )
        events += call
    lines = b"".join(json.dumps(event).encode() + b"\n" for event in events)
    receipt = writer().submit_sync(lines)
    assert receipt.rejected == []


HI = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi"}]
LATER = [*HI, {"role": "assistant", "content": "Hello."}, {"role": "user", "content": "And now?"}]


def test_it_counts_what_a_draft_would_match_and_change(value):
    record(HI, LATER)
    record(HI, model="claude-x")
    report = backtest.run({**value, "match": {"model": ["gpt-*"]}})
    assert (report.tried, report.matched, report.changed, report.untouched, report.failed) == (3, 2, 2, 1, 0)
    assert report.bytes_after - report.bytes_before == 2 * len(',"temperature":0.2')
    assert report.samples[0].patch == [{"op": "add", "path": "/temperature", "value": 0.2}]
    assert report.total == 3 and report.prefix_lost == 0 and len(report.durations) == 2


def test_it_matches_by_what_the_turn_says_of_its_calls(value):
    record(HI)
    assert backtest.run({**value, "match": {"session": ["s*"], "call_role": ["primary"]}}).matched == 1
    assert backtest.run({**value, "match": {"session": ["other"]}}).matched == 0


def test_a_disabled_shadow_draft_runs_as_if_it_were_enforced(value):
    record(HI)
    assert backtest.run({**value, "enabled": False, "mode": "shadow"}).changed == 1


def test_a_blocking_draft_shows_as_calls_that_would_never_be_sent(value):
    record(HI)
    report = backtest.run({**value, "action": {"type": "block", "message": "No."}})
    assert (report.stopped, report.changed) == (1, 0)
    assert report.samples[0].result == "block"


def test_a_changed_beginning_counts_as_a_lost_prefix(value):
    record(HI, LATER)
    trim = {**value, "action": {"type": "json_patch", "patch": [{"op": "remove", "path": "/messages/0"}]}}
    assert backtest.run(trim).prefix_lost == 1
    append = {**value, "action": {"type": "system_text", "where": "append", "text": "Be brief."}}
    assert backtest.run(append).prefix_lost == 0


def test_it_looks_only_where_the_query_says_and_not_further_than_the_limit(value):
    record(HI)
    record(HI, LATER, model="claude-x")
    assert backtest.run(value, q="model:claude-x").tried == 2
    assert backtest.run(value, limit=1).tried == 1


def test_each_step_says_how_far_it_is(value):
    record(HI, LATER)
    record(HI, model="claude-x")
    seen = [(r.tried, r.total, r.changed) for r in backtest.steps({**value, "match": {"model": ["gpt-*"]}})]
    assert seen == [(0, 3, 0), (1, 3, 0), (2, 3, 1), (3, 3, 2)]
    assert [r.total for r in backtest.steps(value, limit=2)][-1] == 2


def lines(answer) -> list[dict[str, Any]]:
    async def read() -> bytes:
        return b"".join([piece async for piece in answer.streaming_content])

    return [json.loads(line) for line in async_to_sync(read)().splitlines()]


def test_the_answer_tells_its_progress_and_then_the_report(value, monkeypatch):
    monkeypatch.setattr(trial, "PACE", -1)
    record(HI, LATER)
    *progress, last = lines(trial.answer(backtest.steps(value), lambda report: f"{report.changed} changed"))
    assert [(line["tried"], line["total"]) for line in progress] == [(0, 2), (1, 2), (2, 2), (2, 2)]
    assert progress[-1]["changed"] == 2 and last == {"html": "2 changed"}


def test_going_away_stops_it(value, monkeypatch):
    monkeypatch.setattr(trial, "PACE", -1)
    record(*[HI] * 5)
    tried: list[int] = []

    def steps():
        for report in backtest.steps(value):
            tried.append(report.tried)
            yield report

    async def first() -> bytes:
        pieces = trial.answer(steps(), lambda report: "").streaming_content
        async for piece in pieces:
            await pieces.aclose()
            return piece
        return b""

    assert json.loads(async_to_sync(first)())["total"] == 5
    assert tried == [0]


def test_a_fault_on_the_way_is_said_where_the_progress_was(value, monkeypatch):
    record(HI, LATER)
    monkeypatch.setattr(backtest, "_try", lambda *_: 1 / 0)
    *_, last = lines(trial.answer(backtest.steps(value), lambda report: ""))
    assert last == {"error": "The back-test stopped after 0 requests: division by zero"}


def test_a_draft_that_is_not_valid_is_refused(value):
    with pytest.raises(RuleError, match=r"action\.type"):
        backtest.run({**value, "action": {"type": "blok"}})


def test_failures_of_a_draft_do_not_stop_the_rule_in_force(value):
    from adapters import intercepts

    record(*[HI] * 10)
    told: list[str] = []
    intercepts.failures.on_disabled = lambda key, reason: told.append(key)
    try:
        patch = [{"op": "remove", "path": "/not/there"}]
        report = backtest.run({**value, "action": {"type": "json_patch", "patch": patch}})
    finally:
        intercepts.failures.on_disabled = None
    assert report.failed == 10 and told == []
    assert report.samples[0].error


def test_the_form_runs_the_draft_it_holds_and_saves_nothing(value):
    from relayweb.intercepts.models import InterceptConfig

    record(HI)
    typed = {
        "title": "Cooler",
        "key": "cooler",
        "mode": "shadow",
        "priority": "1",
        "on_error": "open",
        "action_type": "set_parameters",
        "action_parameters": "temperature: 0.2",
    }
    operator = signed_in("operator")
    path = "/admin/intercepts/interceptconfig/back-test/"
    *_, last = lines(operator.post(path, typed))
    page = last["html"]
    assert "<b>1</b><span>matched</span>" in page and "add /temperature" in page
    wrong = operator.post(path, {**typed, "priority": "x", "action_parameters": "temperature"}).content.decode()
    assert "Correct the form first" in wrong and "<b>Priority</b>" in wrong and "<b>Parameters</b> Line 1" in wrong
    assert "no field modle" in operator.post(path, {**typed, "back_test_q": "modle:x"}).content.decode()
    assert not InterceptConfig.objects.exists()


def test_the_command_prints_json(value, tmp_path, capsys):
    record(HI)
    (tmp_path / "a.json").write_text(json.dumps([value]))
    call_command("intercepts", "back-test", str(tmp_path / "a.json"))
    assert json.loads(capsys.readouterr().out)["cooler"]["changed"] == 1
