"""Buffered attempts: answers, errors, contexts, values Relay cannot hold (R27-R35), and the marks beside them."""

from __future__ import annotations

import asyncio
import contextvars
import json
import math
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from adapters import faults, json_patch, relay_llm, wire
from adapters.failures import is_wrapper
from tests.adapters.conftest import Conversation, Events, answer, body, call

VAR: contextvars.ContextVar[str] = contextvars.ContextVar("var", default="unset")


def run(callback: Any, request: Any = None, **arguments: Any) -> Any:
    return relay_llm.execute_current(body() if request is None else request, callback, **{**call("a"), **arguments})


def change(result: Any) -> Any:
    """An execution intercept that changes the provider's answer with `result(answer)`."""

    async def intercept(name: str, request: Any, context: Any, following: Any) -> Any:
        return result(await following(request))

    return intercept


def test_r27_the_caller_gets_the_providers_own_object(talk: Conversation) -> None:
    response = SimpleNamespace(id="x", choices=[SimpleNamespace(message=SimpleNamespace(content="hi"))])
    assert run(lambda r: response) is response


async def test_r27_holds_for_the_async_form(talk: Conversation) -> None:
    response = SimpleNamespace(id="x", choices=[])

    async def provider(request: Any) -> Any:
        await asyncio.sleep(0)
        return response

    with talk.turn.activate():
        assert await relay_llm.execute_current_async(body(), provider, **call("a")) is response
        got = await relay_llm.execute_async(body(), lambda r: response, session_id=talk.session_id, **call("b"))
        assert got is response


def test_r28_a_changed_answer_is_an_attribute_view_of_it(talk: Conversation, registered: Any) -> None:
    registered("llm_execution", 1, change(lambda a: {**a, "choices": [{"message": {"content": "changed"}}]}))
    got = run(lambda r: answer())
    assert got.choices[0].message.content == "changed"
    assert got["id"] == "r1"
    assert not hasattr(got, "output")


def test_r28_a_changed_answer_keeps_a_pydantic_type(talk: Conversation, registered: Any) -> None:
    from openai.types.chat import ChatCompletion

    registered("llm_execution", 1, change(lambda a: {**a, "id": "changed"}))
    original = ChatCompletion.model_validate({**answer(), "object": "chat.completion", "created": 1})
    got = run(lambda r: original)
    assert type(got) is ChatCompletion
    assert got.id == "changed"
    assert got.choices[0].message.content == "yes"


def test_r28_an_answer_no_provider_gave_reaches_the_caller(talk: Conversation, registered: Any) -> None:
    async def cached(name: str, request: Any, context: Any, following: Any) -> Any:
        return answer("from a cache")

    registered("llm_execution", 1, cached)
    got = run(lambda r: pytest.fail("the provider was asked"))
    assert got.choices[0].message.content == "from a cache"


def raising_after(error: BaseException) -> Any:
    async def intercept(name: str, request: Any, context: Any, following: Any) -> Any:
        await following(request)
        raise error

    return intercept


@pytest.mark.parametrize("deferred", [True, False])
def test_r29_a_relay_failure_after_the_answer_does_not_cost_the_answer(
    talk: Conversation, events: Events, registered: Any, deferred: bool, caplog: pytest.LogCaptureFixture
) -> None:
    registered("llm_execution", 1, raising_after(RuntimeError("post-processing")))
    response = answer()
    assert run(lambda r: response, defer_logical_completion=deferred) is response
    assert "after the provider had answered" in caplog.text
    assert events.outcomes() == ([] if deferred else ["success"])


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)])
def test_r30_the_rescue_does_not_swallow_an_interrupt(talk: Conversation, events: Events, error: BaseException) -> None:
    def interrupted(request: Any) -> Any:
        raise error

    with pytest.raises(type(error)) as caught:
        run(interrupted)
    assert caught.value is error
    assert list(talk.turn.logical_llm_calls) == ["a"]
    assert events.attempts("end")[0]["metadata"]["otel.status_code"] == "ERROR"


async def test_r30_a_cancelled_call_leaves_its_logical_call_open(talk: Conversation, events: Events) -> None:
    started = asyncio.Event()

    async def hangs(request: Any) -> Any:
        started.set()
        await asyncio.sleep(60)

    with talk.turn.activate():
        task = asyncio.create_task(relay_llm.execute_current_async(body(), hangs, **call("a")))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert list(talk.turn.logical_llm_calls) == ["a"]


class ProviderError(Exception):
    status_code = 503

    class Inner(Exception):
        pass


def test_r31_the_providers_own_exception_is_raised(talk: Conversation) -> None:
    error = ProviderError("overloaded")

    def fails(request: Any) -> Any:
        raise error

    with pytest.raises(ProviderError) as caught:
        run(fails)
    assert caught.value is error


async def test_r31_holds_for_the_async_form(talk: Conversation) -> None:
    error = ProviderError("overloaded")

    async def fails(request: Any) -> Any:
        raise error

    with talk.turn.activate(), pytest.raises(ProviderError) as caught:
        await relay_llm.execute_current_async(body(), fails, **call("a"))
    assert caught.value is error


@pytest.mark.parametrize(
    "text",
    [
        "internal error: Inner: slow (retried 3x)",
        "internal error: ProviderError.Inner: slow",
        "internal error: tests.adapters.test_execute.ProviderError.Inner: slow",
    ],
)
def test_r31_relays_native_wrapper_is_known_by_its_text(text: str) -> None:
    assert is_wrapper(RuntimeError(text), ProviderError.Inner("slow"))
    assert not is_wrapper(ValueError(text), ProviderError.Inner("slow"))
    assert not is_wrapper(RuntimeError(text), ProviderError.Inner("fast"))


def test_r31_a_native_wrapper_is_unwrapped(talk: Conversation, registered: Any) -> None:
    async def wraps(name: str, request: Any, context: Any, following: Any) -> Any:
        try:
            return await following(request)
        except ProviderError as error:
            raise RuntimeError(f"internal error: ProviderError: {error} (retried 3x)") from None

    registered("llm_execution", 1, wraps)
    error = ProviderError("down")

    def fails(request: Any) -> Any:
        raise error

    with pytest.raises(ProviderError) as caught:
        run(fails)
    assert caught.value is error


def test_r32_another_error_after_a_provider_failure_is_not_replaced(talk: Conversation, registered: Any) -> None:
    async def policy(name: str, request: Any, context: Any, following: Any) -> Any:
        try:
            return await following(request)
        except ProviderError:
            raise PermissionError("not today") from None

    registered("llm_execution", 1, policy)

    def fails(request: Any) -> Any:
        raise ProviderError("down")

    with pytest.raises(PermissionError, match="not today"):
        run(fails)


def test_r32_a_retry_by_an_intercept_that_succeeds_is_a_success(
    talk: Conversation, events: Events, registered: Any
) -> None:
    async def retries(name: str, request: Any, context: Any, following: Any) -> Any:
        try:
            return await following(request)
        except ProviderError:
            return await following(request)

    registered("llm_execution", 1, retries)
    outcomes = iter([ProviderError("once"), answer()])

    def provider(request: Any) -> Any:
        outcome = next(outcomes)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    assert run(provider) == answer()
    assert events.outcomes() == ["success"]
    assert len(events.marks("relay.attempt_failed")) == 1


def test_r33_the_callback_sees_the_callers_context_and_leaks_nothing(talk: Conversation) -> None:
    VAR.set("caller")
    seen = []

    def provider(request: Any) -> Any:
        seen.append((VAR.get(), threading.current_thread()))
        VAR.set("callback")
        return answer()

    run(provider)
    run(provider)
    assert seen == [("caller", threading.current_thread())] * 2
    assert VAR.get() == "caller"


async def test_r33_holds_for_the_async_form(talk: Conversation) -> None:
    VAR.set("caller")
    seen = []

    async def provider(request: Any) -> Any:
        seen.append(VAR.get())
        VAR.set("callback")
        return answer()

    with talk.turn.activate():
        await asyncio.gather(*(relay_llm.execute_current_async(body(), provider, **call(f"{i}")) for i in range(3)))
    assert seen == ["caller"] * 3
    assert VAR.get() == "caller"


def test_r33_a_synchronous_callback_may_run_a_loop_of_its_own(talk: Conversation) -> None:
    def provider(request: Any) -> Any:
        async def inner() -> Any:
            await asyncio.sleep(0)
            return answer("from a loop")

        return asyncio.run(inner())

    assert run(provider) == answer("from a loop")


async def test_r34_the_sync_form_refuses_to_block_an_event_loop(talk: Conversation, events: Events) -> None:
    with talk.turn.activate():
        with pytest.raises(RuntimeError, match="execute_current_async"):
            relay_llm.execute_current(body(), lambda r: answer(), **call("a"))
        with pytest.raises(RuntimeError, match="stream_async"):
            relay_llm.stream(body(), lambda r: iter([]), session_id=talk.session_id, **call("a"))
    assert events.attempts() == []


ODD = {
    "surrogate": "x\ud83dy",
    "huge": 2**64,
    "tiny": -(2**63) - 1,
    "bytes": b"\x00\xff",
    "nan": math.nan,
}


@pytest.mark.parametrize("kind", sorted(ODD))
def test_r35_values_relay_cannot_hold_reach_the_other_side_as_they_are(
    talk: Conversation, events: Events, kind: str
) -> None:
    value = ODD[kind]
    request = body(extra=value)
    response = {**answer(), "odd": value}
    seen: list[Any] = []

    def provider(got: Any) -> Any:
        seen.append(got["extra"])
        return response

    assert run(provider, request) is response
    assert seen[0] is value
    assert events.outcomes() == ["success"]
    recorded = events.attempts()[0]["data"]["content"]
    assert recorded["extra"] != value
    assert recorded["messages"] == request["messages"]
    assert [m["data"]["escaped"] for m in events.marks("relay.request")] == [["/extra"]]
    assert json.dumps(events.attempts("end")[0]["data"]["odd"])


def test_r35_a_changed_answer_keeps_the_odd_values_of_the_original(talk: Conversation, registered: Any) -> None:
    registered("llm_execution", 1, change(lambda a: {**a, "id": "changed"}))
    got = run(lambda r: {**answer(), "huge": 2**70})
    assert (got.id, got.huge) == ("changed", 2**70)


def test_a_failed_attempt_says_what_the_provider_said(talk: Conversation, events: Events) -> None:
    error = ProviderError("overloaded")
    error.response = SimpleNamespace(  # type: ignore[attr-defined]
        status_code=503, headers={"Retry-After": "7", "X-Request-Id": "req_1"}, text="x" * 70_000
    )
    error.body = {"error": {"type": "overloaded_error", "message": "later"}}  # type: ignore[attr-defined]

    def fails(request: Any) -> Any:
        raise error

    with pytest.raises(ProviderError):
        run(fails)
    [mark] = events.marks("relay.attempt_failed")
    assert mark["data"] == {
        "status": 503,
        "error_type": "overloaded_error",
        "message": "overloaded",
        "body": "x" * 65_536,
        "request_id": "req_1",
        "retry_after": "7",
    }
    assert mark["parent_uuid"] == events.attempts()[0]["uuid"]


def test_a_guardrail_that_refuses_is_recorded_under_the_logical_call(
    talk: Conversation, events: Events, registered: Any
) -> None:
    registered("llm_conditional_execution", 1, lambda request: "not allowed")
    with pytest.raises(RuntimeError, match="guardrail rejected: not allowed"):
        run(lambda r: pytest.fail("the provider was asked"))
    [mark] = events.marks("relay.attempt_blocked")
    assert mark["parent_uuid"] == events.starts("relay.logical_llm_call")[0]["uuid"]
    assert mark["data"]["stage"] == "guardrail"
    assert mark["data"]["request"]["messages"] == body()["messages"]
    assert (mark["data"]["model"], mark["data"]["provider"]) == ("m", "provider-x")
    assert events.attempts() == []


def test_an_intercept_that_raises_is_recorded_under_the_logical_call(
    talk: Conversation, events: Events, registered: Any
) -> None:
    def broken(name: str, request: Any, annotation: Any) -> Any:
        raise LookupError("no such tenant")

    registered("llm_request", 1, False, broken)
    with pytest.raises(LookupError, match="no such tenant"):
        run(lambda r: answer())
    [mark] = events.marks("relay.attempt_blocked")
    assert (mark["data"]["stage"], mark["data"]["error_type"]) == ("intercept", "LookupError")


def test_a_rule_that_blocks_ends_an_ordinary_attempt(talk: Conversation, events: Events, rules: Any) -> None:
    rules({"key": "no", "revision": 4, "action": {"type": "block", "message": "budget used up"}})
    with pytest.raises(relay_llm.CallBlocked, match="budget used up") as caught:
        run(lambda r: pytest.fail("the provider was asked"))
    assert (caught.value.key, caught.value.revision) == ("no", 4)
    [end] = events.attempts("end")
    assert end["metadata"]["otel.status_code"] == "ERROR"
    [rewrite] = events.marks("relay.rewrite")
    assert (rewrite["data"]["result"], rewrite["parent_uuid"]) == ("block", end["uuid"])


def test_a_rule_rewrites_the_providers_request(talk: Conversation, events: Events, rules: Any) -> None:
    rules({"key": "cool", "action": {"type": "set_parameters", "parameters": {"temperature": 0}}})
    request = body(unknown_field={"keep": [1, 2]})
    seen: list[Any] = []
    run(lambda r: seen.append(r) or answer(), request)
    assert seen[0]["temperature"] == 0
    assert seen[0]["messages"] is request["messages"]
    assert seen[0]["unknown_field"] is request["unknown_field"]
    assert "temperature" not in request
    [mark] = events.marks("relay.request")
    [start] = events.attempts("start")
    assert json_patch.apply(start["data"]["content"], mark["data"]["app_patch"]) == request


def test_a_redact_rule_keeps_content_out_of_the_record_only(talk: Conversation, events: Events, rules: Any) -> None:
    rules({"key": "hide", "action": {"type": "redact", "patterns": ["secret-[0-9]+"]}})
    response = answer("you said secret-42")
    seen: list[Any] = []
    got = run(lambda r: seen.append(r["messages"][0]["content"]) or response, body("it is secret-42"))
    assert got is response
    assert seen == ["it is secret-42"]
    assert "secret-42" not in json.dumps(events.all())


def test_a_fault_of_the_recorder_costs_the_record_not_the_call(
    talk: Conversation, events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("recorder is broken")

    before = faults.counts().get("call", 0)
    monkeypatch.setattr(wire, "ProviderCall", broken)
    request = body()
    assert run(lambda r: r, request) is request
    assert list(relay_llm.stream_current(request, lambda r: iter([r]), **call("s"))) == [request]
    assert faults.counts()["call"] == before + 2
    assert talk.host._operations == 0


def test_r67_the_providers_name_moves_to_the_metadata_unless_it_is_there(talk: Conversation, events: Events) -> None:
    run(lambda r: answer())
    run(lambda r: answer(), **call("b", **{"relay.provider": "own"}))
    run(lambda r: answer(), **call("c", api_mode="unheard_of"))
    assert [(e["name"], e["metadata"]["relay.provider"]) for e in events.attempts()] == [
        ("openai.chat_completions", "provider-x"),
        ("openai.chat_completions", "own"),
        ("provider-x", "provider-x"),
    ]
