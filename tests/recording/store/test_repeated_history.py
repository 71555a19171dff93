"""What a request repeats of the last one is not read again, and comes back all the same."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.db import connection

from relayweb.recording.events.atof import parse, uuid_text
from relayweb.recording.models import Content, Event, Scope
from relayweb.recording.store import histories
from relayweb.recording.store.stored import Reader
from relayweb.recording.store.tables import Tables
from relayweb.recording.writing.recorder import Line, Recorder

pytestmark = pytest.mark.django_db(transaction=True)

ROOT = "019b76da-1e6a-7000-8000-0000000000ff"
TOOLS = [{"type": "function", "function": {"name": f"tool_{i}", "description": "x" * 200}} for i in range(4)]


def request(number: int, messages: list[Any], **body: Any) -> bytes:
    sent = {"messages": messages, "model": "m", "tools": TOOLS, **body}
    event = {
        "atof_version": "0.1",
        "category": "llm",
        "category_profile": {"annotated_request": {"messages": messages, "tools": TOOLS}, "model_name": "m"},
        "data": {"content": sent, "headers": {}},
        "kind": "scope",
        "metadata": {"api_mode": "chat_completions"},
        "name": "openai.chat_completions",
        "parent_uuid": ROOT,
        "propagation_root_uuid": ROOT,
        "scope_category": "start",
        "timestamp": f"2026-01-11T00:00:{number:02d}.000000000+00:00",
        "uuid": uuid_text(number.to_bytes(16, "big")),
    }
    return json.dumps(event, separators=(",", ":"), ensure_ascii=False).encode()


def conversation(turns: int) -> list[Any]:
    said = [{"role": "system", "content": "You help. " * 120}]
    for i in range(turns):
        said += [
            {"role": "user", "content": f"question {i} " * 30},
            {"role": "assistant", "content": f"answer {i} " * 30},
        ]
    return said


def recorded(lines: list[bytes], batch: int) -> Recorder:
    recorder = Recorder(Tables(connection))
    for at in range(0, len(lines), batch):
        some = [Line(text, 0) for text in lines[at : at + batch]]
        recorder.record(some)
        assert not [line.error for line in some if line.error]
    return recorder


def texts() -> list[bytes]:
    return Reader().texts(list(Event.objects.order_by("at_ns")))


@pytest.mark.parametrize("batch", [1, 50])
def test_a_growing_history_comes_back_byte_for_byte_and_is_stored_once(
    batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = conversation(8)
    lines = [request(i, said[: 1 + 2 * i]) for i in range(1, 9)]
    shortened = []
    shorten = histories.shorten

    def watched(line: bytes, same: Any) -> bytes:
        shortened.append(line)
        return shorten(line, same)

    monkeypatch.setattr(histories, "shorten", watched)
    recorded(lines, batch)
    assert len(shortened) == 7 and texts() == lines
    assert Content.objects.filter(kind=Content.Kind.MESSAGE).count() == len(said)
    assert str(Scope.objects.order_by("start_us").last().asked).startswith("question 7")  # type: ignore[union-attr]


def test_a_history_that_stands_in_another_place_comes_back_too() -> None:
    said = conversation(4)
    odd = request(2, said, extra={"kept": {"messages": said, "why": "z" * 600}}, prompt=said)
    broken = request(3, [*said[:-1], {**said[-1], "content": "other " * 60}])
    deleted = request(4, [*said, {"role": "user", "content": "a DEL \x7f stands here " * 10}])
    lines = [request(1, said), odd, broken, deleted]
    recorded(lines, 50)
    assert texts() == lines


def test_a_secret_behind_a_repeated_history_is_masked() -> None:
    said = conversation(4)
    lines = [request(1, said), request(2, said, api_key="canary-1234567"), request(3, said)]
    recorded(lines, 50)
    stored = texts()
    assert b"canary" not in b"".join(stored) and stored[0] == lines[0] and stored[2] == lines[2]
    assert json.loads(stored[1])["data"]["content"]["messages"] == said


def test_what_follows_a_repeated_history_must_be_json() -> None:
    said = conversation(4)
    good = request(1, said)
    bad = request(2, said).replace(b"}],", b"}]]", 1)
    lines = [Line(good, 0), Line(bad, 0)]
    Recorder(Tables(connection)).record(lines)
    assert lines[0].error is None and "not JSON" in str(lines[1].error)
    with pytest.raises(ValueError, match="not JSON"):
        parse(bad)
