"""Block, canned answers and faults: decided in the intercept, done in the callback; the provider is not asked."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from anthropic.types import Message
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response

from adapters import relay_llm
from adapters.accumulators import for_api_mode
from adapters.actions import fault
from adapters.actions.respond import pieces
from adapters.intercepts import Rule, RuleError, RuleSet, preview
from adapters.relay_llm import CallBlocked, CallCut, CallFault
from tests.adapters.relay_calls import MODES, body, rules

each_mode = pytest.mark.parametrize("api_mode", MODES)
each_way = pytest.mark.parametrize("stream", [False, True], ids=["buffered", "streamed"])

CHUNK = {
    "id": "c",
    "object": "chat.completion.chunk",
    "model": "m",
    "choices": [{"index": 0, "delta": {"content": "x"}}],
}


class Provider:
    """Counts how often it is asked; streams five chunks."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, _request: Any) -> Any:
        self.asked += 1
        return {"ok": True}

    def streamed(self, _request: Any) -> Iterator[Any]:
        self.asked += 1
        return iter([CHUNK] * 5)


def call(api_mode: str, stream: bool, provider: Provider, request: dict[str, Any] | None = None, **options: Any) -> Any:
    """One call in the live turn; a stream is read to its end."""
    arguments = {"name": "p", "model_name": "m", "metadata": {"api_mode": api_mode, "api_request_id": "q"}, **options}
    request = request or body(api_mode, stream=stream)
    if stream:
        return list(relay_llm.stream_current(request, provider.streamed, **arguments))
    return relay_llm.execute_current(request, provider, **arguments)


def rule(**action: Any) -> dict[str, Any]:
    return {"key": "guard", "revision": 3, "action": action}


@each_way
@each_mode
def test_a_blocked_call_is_an_attempt_with_its_request_marks_and_end(
    talk: Any, events: Any, api_mode: str, stream: bool
) -> None:
    provider = Provider()
    with rules(rule(type="block", message="Not on Fridays.")), pytest.raises(CallBlocked) as error:
        call(api_mode, stream, provider)
    assert (error.value.reason, error.value.key, error.value.revision) == ("Not on Fridays.", "guard", 3)
    assert provider.asked == 0
    (start,), (end,) = events.attempts("start"), events.attempts("end")
    assert start["data"]["content"] == body(api_mode, stream=stream)
    assert end["metadata"]["otel.status_code"] == "ERROR"
    (mark,) = events.marks("relay.rewrite")
    assert mark["parent_uuid"] == start["uuid"]
    assert (mark["data"]["result"], mark["data"]["reason"]) == ("block", "Not on Fridays.")


def as_json(value: Any) -> Any:
    return json.loads(json.dumps(value))


@each_way
@pytest.mark.parametrize(
    "config",
    [
        {"text": "Hello, dear reader of this canned answer. " * 3},
        {"tool": "read", "arguments": {"z": "1"}},
        {"text": "a", "tool": "f"},
    ],
    ids=["text", "tool", "both"],
)
@each_mode
def test_a_canned_answer_comes_in_the_wire_format(
    talk: Any, events: Any, api_mode: str, stream: bool, config: dict[str, Any]
) -> None:
    provider = Provider()
    keep = {"chunk_adapter": as_json} if stream else {"response_adapter": as_json}
    with rules(rule(type="respond", **config)):
        got = call(api_mode, stream, provider, **keep)
    assert provider.asked == 0
    if stream:
        assert len(got) > 3
        accumulator = for_api_mode(api_mode)
        assert accumulator is not None
        for chunk in got:
            accumulator.observe(chunk)
        got = accumulator.finalize()
    assert said(api_mode, got) == (
        config.get("text", ""),
        config.get("tool"),
        config.get("arguments", {}) if "tool" in config else None,
    )
    assert got["model"] == "m"
    assert events.marks("relay.rewrite")[0]["data"]["result"] == "respond"
    assert events.attempts("end")[0]["metadata"]["otel.status_code"] == "OK"
    assert events.outcomes() == ["success"]


def said(api_mode: str, response: dict[str, Any]) -> tuple[str, str | None, Any]:
    """Text, tool and arguments of a response."""
    if api_mode == "chat_completions":
        message = response["choices"][0]["message"]
        tool = message["tool_calls"][0]["function"] if message.get("tool_calls") else None
        assert response["choices"][0]["finish_reason"] == ("tool_calls" if tool else "stop")
        return message["content"] or "", tool and tool["name"], tool and json.loads(tool["arguments"])
    if api_mode == "codex_responses":
        assert response["status"] == "completed"
        texts = [p["text"] for i in response["output"] if i["type"] == "message" for p in i["content"]]
        tool = next((i for i in response["output"] if i["type"] == "function_call"), None)
        return "".join(texts), tool and tool["name"], tool and json.loads(tool["arguments"])
    texts = [b["text"] for b in response["content"] if b["type"] == "text"]
    tool = next((b for b in response["content"] if b["type"] == "tool_use"), None)
    assert response["stop_reason"] == ("tool_use" if tool else "end_turn")
    return "".join(texts), tool and tool["name"], tool and tool["input"]


def test_canned_answers_are_what_the_sdks_read() -> None:
    config = rule(type="respond", text="Hi there.", tool="f", arguments={"a": 1})

    def answer(api_mode: str) -> Any:
        _, _, decision = preview(RuleSet.parse([config]), body(api_mode), api_mode=api_mode)
        assert decision is not None
        return decision.effect

    chat = answer("chat_completions")
    assert ChatCompletion.model_validate(chat.body).choices[0].message.content == "Hi there."
    assert [ChatCompletionChunk.model_validate(c) for c in chat.chunks][-1].usage is not None
    responses = answer("codex_responses")
    assert Response.model_validate(responses.body).output_text == "Hi there."
    assert responses.events == tuple(c["type"] for c in responses.chunks)
    assert [c["sequence_number"] for c in responses.chunks] == list(range(len(responses.chunks)))
    anthropic = answer("anthropic_messages")
    assert Message.model_validate(anthropic.body).content[1].input == {"a": 1}
    assert anthropic.events[0] == "message_start" and anthropic.events[-1] == "message_stop"


@pytest.mark.parametrize(
    "config", [{"text": "Hello there, reader."}, {"tool": "f", "arguments": {"a": 1}}, {"text": "x", "tool": "f"}]
)
@each_mode
def test_the_chunks_of_a_canned_answer_add_up_to_the_buffered_one(api_mode: str, config: dict[str, Any]) -> None:
    _, _, decision = preview(RuleSet.parse([rule(type="respond", **config)]), body(api_mode), api_mode=api_mode)
    accumulator = for_api_mode(api_mode)
    assert decision is not None and accumulator is not None
    for chunk in decision.effect.chunks:
        accumulator.observe(chunk)
    whole = json.loads(json.dumps(decision.effect.body))
    if api_mode == "chat_completions":  # members that are null in a buffered answer and absent in chunks
        del whole["choices"][0]["logprobs"], whole["choices"][0]["message"]["refusal"]
    assert accumulator.finalize() == whole


def test_no_usage_chunk_unless_the_app_asked_for_one() -> None:
    request = {"model": "m", "messages": [], "stream": True}
    _, _, decision = preview(RuleSet.parse([rule(type="respond", text="x")]), request, api_mode="chat_completions")
    assert decision is not None and all(c["choices"] for c in decision.effect.chunks)


@pytest.mark.parametrize("words", ["", " ", "a", "  lead and trail  ", "x" * 100, "a b\n\nc\td " * 30])
def test_streamed_pieces_join_to_the_text(words: str) -> None:
    assert "".join(pieces(words)) == words
    assert all(len(p) <= 24 or " " not in p.strip() for p in pieces(words))


@each_way
@each_mode
def test_a_status_fails_the_call_in_the_providers_words(talk: Any, events: Any, api_mode: str, stream: bool) -> None:
    provider = Provider()
    with rules(rule(type="fault", status=429, message="Slow down.", retry_after=2)), pytest.raises(CallFault) as error:
        call(api_mode, stream, provider)
    assert provider.asked == 0
    assert (error.value.status_code, error.value.headers) == (429, {"retry-after": "2"})
    told = error.value.body
    assert told["error"]["message"] == "Slow down." and told["error"]["type"] == "rate_limit_error"
    assert ("type" in told) == (api_mode == "anthropic_messages")
    assert events.marks("relay.rewrite")[0]["data"]["result"] == "fault"
    (failed,) = events.marks("relay.attempt_failed")
    assert failed["data"]["status"] == 429 and failed["data"]["retry_after"] == "2"


@each_mode
def test_a_stream_is_cut_after_some_chunks_and_a_buffered_call_at_once(talk: Any, api_mode: str) -> None:
    provider, got = Provider(), []
    with rules(rule(type="fault", cut_after=2)):
        arguments = {"name": "p", "model_name": "m", "metadata": {"api_mode": api_mode}}
        stream = relay_llm.stream_current(body(api_mode), provider.streamed, **arguments)
        with pytest.raises(CallCut):
            for chunk in stream:
                got.append(chunk)
        with pytest.raises(CallCut):
            call(api_mode, False, provider)
    assert len(got) == 2 and provider.asked == 1


@each_way
@each_mode
def test_a_delay_only_makes_the_call_late_and_other_rules_still_run(talk: Any, api_mode: str, stream: bool) -> None:
    seen: list[Any] = []

    class Watching(Provider):
        def __call__(self, request: Any) -> Any:
            seen.append(request["seed"])
            return super().__call__(request)

        def streamed(self, request: Any) -> Iterator[Any]:
            seen.append(request["seed"])
            return super().streamed(request)

    provider = Watching()
    later = {"key": "later", "priority": 200, "action": {"type": "set_parameters", "parameters": {"seed": 7}}}
    started = time.monotonic()
    with rules(rule(type="fault", delay_s=0.15), later):
        got = call(api_mode, stream, provider)
    assert time.monotonic() - started >= 0.15
    assert (provider.asked, seen) == (1, [7])
    assert got == ([CHUNK] * 5 if stream else {"ok": True})


def test_a_fault_may_hit_only_a_share_of_the_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    draws = iter([0.1, 0.6, 0.499, 0.5])
    monkeypatch.setattr(fault.random, "random", lambda: next(draws))
    rule_set = RuleSet.parse([rule(type="fault", status=500, percent=50)])
    results = [preview(rule_set, {}, api_mode="chat_completions")[0][0]["result"] for _ in range(4)]
    assert results == ["fault", "miss", "fault", "miss"]


def test_only_the_first_attempts_of_each_logical_call_fail(talk: Any, events: Any) -> None:
    provider = Provider()
    with rules(rule(type="fault", status=503, attempts=2)):
        for request_id in ("one", "two"):
            arguments = {"name": "p", "metadata": {"api_mode": "chat_completions", "api_request_id": request_id}}
            for _ in range(2):
                with pytest.raises(CallFault):
                    relay_llm.execute_current(body("chat_completions"), provider, **arguments)
            assert relay_llm.execute_current(body("chat_completions"), provider, **arguments) == {"ok": True}
    assert provider.asked == 2
    assert events.outcomes() == ["success", "success"]
    assert [mark["data"]["result"] for mark in events.marks("relay.rewrite")] == ["fault", "fault", "miss"] * 2


def test_nothing_runs_after_a_call_is_blocked_answered_or_failed() -> None:
    later = {"key": "z", "priority": 200, "action": {"type": "swap_model", "model": "x"}}
    for action in (
        {"type": "block", "message": "no"},
        {"type": "respond", "text": "x"},
        {"type": "fault", "status": 500},
    ):
        rewrites, sent, _ = preview(RuleSet.parse([rule(**action), later]), {"model": "m"}, api_mode="chat_completions")
        assert [r["key"] for r in rewrites] == ["guard"] and sent == {"model": "m"}


@pytest.mark.parametrize(
    "action, field, says",
    [
        ({"type": "block"}, "action.message", "is required"),
        ({"type": "respond"}, "action.text", "give a text, a tool call, or both"),
        ({"type": "respond", "text": "x", "arguments": {}}, "action.arguments", "belong to a tool"),
        ({"type": "respond", "tool": "f", "arguments": []}, "action.arguments", "must be a JSON object"),
        ({"type": "fault"}, "action.status", "give a status, a cut or a delay"),
        ({"type": "fault", "status": 200}, "action.status", "must be at least 400, is 200"),
        ({"type": "fault", "status": "500"}, "action.status", "must be a whole number, not text"),
        ({"type": "fault", "delay_s": 601}, "action.delay_s", "must be at most 600"),
        ({"type": "fault", "delay_s": True}, "action.delay_s", "must be a number"),
        ({"type": "fault", "status": 500, "cut_after": 1}, "action.cut_after", "not both"),
        ({"type": "fault", "cut_after": 1, "retry_after": 1}, "action.retry_after", "belongs to a status"),
    ],
)
def test_wrong_values_name_their_field(action: dict[str, Any], field: str, says: str) -> None:
    with pytest.raises(RuleError) as error:
        Rule.parse({"key": "k", "action": action})
    assert error.value.field == field and says in error.value.message
