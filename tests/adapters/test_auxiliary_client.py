"""Auxiliary calls (R84-R94)."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from adapters import auxiliary_client as aux
from adapters import relay_llm
from tests.adapters.conftest import Conversation, Events, chunk

LOGICAL = "relay.logical_llm_call"
KWARGS = {"model": "m", "messages": []}


def response(text: str = "ok", model: str | None = None) -> Any:
    return SimpleNamespace(model=model, choices=[SimpleNamespace(message=SimpleNamespace(content=text))])


def client(*outcomes: Any) -> Any:
    """A client whose successive calls raise or answer, in order."""
    pending = iter(outcomes)

    def create(**kwargs: Any) -> Any:
        outcome = next(pending)
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    return SimpleNamespace(chat=SimpleNamespace(completions=SimpleNamespace(create=create)))


def async_client(*outcomes: Any) -> Any:
    inner = client(*outcomes)

    async def create(**kwargs: Any) -> Any:
        await asyncio.sleep(0)
        return inner.chat.completions.create(**kwargs)

    return SimpleNamespace(chat=SimpleNamespace(completions=SimpleNamespace(create=create)))


class Status(Exception):
    def __init__(self, status_code: int) -> None:
        super().__init__(f"status {status_code}")
        self.status_code = status_code


@aux.relay_auxiliary_call
def side_task(task: str, using: Any, attempts: int = 1, *, validate: bool = True) -> Any:
    aux.set_relay_auxiliary_route("openrouter", "m", "chat_completions")
    for last in [False] * (attempts - 1) + [True]:
        try:
            got = aux.relay_sync_completion(using, KWARGS)
            return aux.validate_llm_response(got, task) if validate else got
        except Exception:
            if last:
                raise
    return None


def test_r84_each_call_has_an_identity_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, Any]] = []

    def execute_current(request: Any, callback: Any, **kwargs: Any) -> Any:
        seen.append(kwargs)
        return callback(request)

    monkeypatch.setattr(relay_llm, "execute_current", execute_current)
    monkeypatch.setattr(relay_llm, "complete_logical_call", lambda request_id, *, outcome: None)

    @aux.relay_auxiliary_call
    def outer(*, task: str | None = None) -> Any:
        aux.set_relay_auxiliary_route("p", "m", "chat_completions")
        aux.relay_sync_completion(client(response()), KWARGS)
        side_task("inner", client(response()))
        aux.relay_sync_completion(client(response()), KWARGS)

    outer(task="title")
    outer()
    ids = [s["metadata"]["api_request_id"] for s in seen]
    assert ids[0] == ids[2] != ids[1] and ids[3] not in ids[:3]
    assert all(i.startswith("aux-") for i in ids)
    assert [s["metadata"]["auxiliary_task"] for s in seen[:4]] == ["title", "inner", "title", "unknown"]
    assert [s["metadata"]["retry_count"] for s in seen[:3]] == [0, 0, 1]


def test_r85_attempts_share_one_logical_call(talk: Conversation, events: Events) -> None:
    got = side_task("compression", client(SimpleNamespace(choices=[]), response("ok")), 2)
    assert got.choices[0].message.content == "ok"
    assert len(events.starts(LOGICAL)) == 1
    first, second = (e["metadata"] for e in events.attempts())
    assert first["api_request_id"] == second["api_request_id"]
    assert (first["retry_count"], second["retry_count"]) == (0, 1)
    assert first["call_role"] == "auxiliary:compression"
    assert (first["auxiliary_task"], first["api_mode"]) == ("compression", "chat_completions")
    assert events.outcomes() == ["success"]


def test_r85_outside_an_auxiliary_call_it_is_a_plain_call(talk: Conversation, events: Events) -> None:
    answer = response()
    assert aux.relay_sync_completion(client(answer), KWARGS) is answer
    assert aux.relay_sync_stream(client(answer), KWARGS) is answer
    assert aux.validate_llm_response(answer) is answer
    assert events.attempts() == []


def test_r86_a_route_has_defaults_and_the_last_one_is_reported(talk: Conversation, events: Events) -> None:
    @aux.relay_auxiliary_call
    def task(name: str) -> Any:
        aux.set_relay_auxiliary_route("", None, "")
        aux.relay_sync_completion(client(response(model="first-model")), {"messages": []})
        aux.set_relay_auxiliary_route("second", "m2", "chat_completions")
        return aux.validate_llm_response(aux.relay_sync_completion(client(response()), {"messages": []}), name)

    task("title")
    first, second = events.attempts()
    assert first["metadata"]["relay.provider"] == "auxiliary"
    assert first["category_profile"]["model_name"] == "unknown"
    assert first["metadata"]["api_mode"] == "chat_completions"
    assert second["metadata"]["retry_count"] == 1
    [end] = events.ends(LOGICAL)
    assert end["data"] == {"outcome": "success", "model": "m2", "provider": "second", "error_class": "none"}


def test_r87_provider_and_model_of_the_call_come_before_the_route(talk: Conversation, events: Events) -> None:
    @aux.relay_auxiliary_call
    def task(name: str) -> Any:
        aux.set_relay_auxiliary_route("route", "route-model", "")
        aux.relay_sync_completion(client(response()), {"model": "own"}, provider="explicit", api_mode="codex_responses")
        aux.relay_sync_completion(client(response()), {})

    task("title")
    first, second = events.attempts()
    assert (first["metadata"]["relay.provider"], first["category_profile"]["model_name"]) == ("explicit", "own")
    assert first["name"] == "openai.responses"
    assert (second["metadata"]["relay.provider"], second["category_profile"]["model_name"]) == ("route", "route-model")


@pytest.mark.parametrize("bad", [None, SimpleNamespace(choices=[]), {}, {"choices": [{}]}, "text", {"error": {"m": 1}}])
def test_r88_an_unusable_response_is_an_error_and_leaves_the_call_open(
    talk: Conversation, events: Events, bad: Any
) -> None:
    @aux.relay_auxiliary_call
    def task(name: str) -> Any:
        aux.set_relay_auxiliary_route("p", "m", "")
        with pytest.raises(RuntimeError, match="invalid response"):
            aux.validate_llm_response(aux.relay_sync_completion(client(bad), KWARGS), name)
        assert len(talk.turn.logical_llm_calls) == 1

    task("title")
    assert events.outcomes() == []


@pytest.mark.parametrize(
    "shape",
    [
        SimpleNamespace(output_text="saved", model="m"),
        {"output": [{"type": "message", "content": [{"type": "output_text", "text": "saved"}]}]},
        SimpleNamespace(content=[SimpleNamespace(type="text", text="saved")]),
    ],
)
def test_r88_text_is_recovered_from_responses_like_shapes(talk: Conversation, events: Events, shape: Any) -> None:
    assert side_task("title", client(shape)).choices[0].message.content == "saved"
    assert events.outcomes() == ["success"]


def test_r88_acceptance_closes_once_with_the_providers_model(talk: Conversation, events: Events) -> None:
    @aux.relay_auxiliary_call
    def task(name: str) -> Any:
        aux.set_relay_auxiliary_route("p", "m", "")
        got = aux.relay_sync_completion(client(response(model="m-2026")), KWARGS)
        aux.validate_llm_response(got, name)
        return aux.validate_llm_response(got, name)

    task("title")
    [end] = events.ends(LOGICAL)
    assert end["data"]["response_model"] == "m-2026"


def test_r89_an_exception_that_leaves_closes_the_call_failed(talk: Conversation, events: Events) -> None:
    error = Status(500)
    with pytest.raises(Status) as caught:
        side_task("title", client(error))
    assert caught.value is error
    assert events.outcomes() == ["failed"]
    talk.end("success")
    assert events.outcomes() == ["failed"]


@pytest.mark.parametrize("abort", [InterruptedError("stop"), KeyboardInterrupt(), asyncio.CancelledError()])
def test_r89_an_abort_closes_the_call_cancelled(talk: Conversation, events: Events, abort: BaseException) -> None:
    with pytest.raises(type(abort)):
        side_task("title", client(abort))
    assert events.outcomes() == ["cancelled"]


def test_r89_a_close_that_fails_does_not_hide_the_error(
    talk: Conversation, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("close failed")

    monkeypatch.setattr(relay_llm, "complete_logical_call", broken)
    with pytest.raises(Status):
        side_task("title", client(Status(500)))
    assert "was not closed" in caplog.text


def test_r90_a_fallback_to_another_provider_is_the_same_call(talk: Conversation, events: Events) -> None:
    @aux.relay_auxiliary_call
    def task(name: str) -> Any:
        aux.set_relay_auxiliary_route("first", "a", "")
        with pytest.raises(Status):
            aux.relay_sync_completion(client(Status(503)), {"model": "a"})
        aux.set_relay_auxiliary_route("second", "b", "")
        return aux.validate_llm_response(aux.relay_sync_completion(client(response()), {"model": "b"}), name)

    task("title")
    assert [e["metadata"]["relay.provider"] for e in events.attempts()] == ["first", "second"]
    assert [e["data"] for e in events.ends(LOGICAL)] == [
        {"outcome": "success", "model": "b", "provider": "second", "error_class": "overloaded"}
    ]


@pytest.mark.parametrize(
    "outcomes, expected",
    [
        ([response()], ("success", "none")),
        ([Status(500), response()], ("success", "server_error")),
        ([Status(429), Status(400), response()], ("success", "format_error")),
        ([SimpleNamespace(choices=[]), response()], ("success", "unknown")),
        ([Status(404)], ("failed", "model_not_found")),
        ([{"error": {"message": "overloaded"}}], ("failed", "server_error")),
        ([TimeoutError("slow")], ("failed", "timeout")),
        ([ConnectionError("gone")], ("failed", "network_error")),
    ],
)
def test_r91_the_output_says_which_error_it_was(
    talk: Conversation, events: Events, outcomes: list[Any], expected: tuple[str, str]
) -> None:
    if expected[0] == "failed":
        with pytest.raises(Exception, match="."):
            side_task("title", client(*outcomes), len(outcomes))
    else:
        side_task("title", client(*outcomes), len(outcomes))
    [end] = events.ends(LOGICAL)
    assert (end["data"]["outcome"], end["data"]["error_class"]) == expected


def stream_of(*parts: Any) -> Any:
    def generate() -> Any:
        for part in parts:
            if isinstance(part, BaseException):
                raise part
            yield part

    return generate()


def piece(text: str) -> Any:
    return SimpleNamespace(model="m", choices=[SimpleNamespace(delta=SimpleNamespace(content=text))], usage=None)


@aux.relay_auxiliary_call
def streamed(task: str, using: Any) -> Any:
    aux.set_relay_auxiliary_route("openrouter", "m", "chat_completions")
    return aux.relay_sync_stream(using, {**KWARGS, "stream": True})


def test_r92_an_exhausted_stream_is_a_success_with_no_text_on_record(talk: Conversation, events: Events) -> None:
    pieces = [piece("a"), piece("b")]
    assert list(streamed("moa", client(stream_of(*pieces)))) == pieces
    assert [e["data"] for e in events.ends(LOGICAL)] == [{"outcome": "success", "model": "m", "provider": "openrouter"}]
    assert events.attempts("end")[0]["data"] == {}


def test_r92_a_partial_failure_closes_before_the_recovery_starts(talk: Conversation, events: Events) -> None:
    part, error = piece("partial"), Status(500)
    stream = streamed("moa", client(stream_of(part, error)))
    assert next(stream) is part
    with pytest.raises(Status) as caught:
        next(stream)
    assert caught.value is error
    assert events.outcomes() == ["failed"]
    side_task("moa", client(response("recovered")))
    assert events.outcomes() == ["failed", "success"]


def test_r92_an_early_close_is_cancelled(talk: Conversation, events: Events) -> None:
    stream = streamed("moa", client(stream_of(piece("a"), piece("b"))))
    next(stream)
    stream.close()
    assert events.outcomes() == ["cancelled"]


@pytest.mark.parametrize("managed", [True, False])
def test_r92_a_complete_response_comes_back_itself(talk: Conversation, managed: bool) -> None:
    if not managed:
        talk.host.release_managed_execution("tests")
    completed = response("whole")
    assert streamed("moa", client(completed)) is completed


@aux.relay_auxiliary_call_async
async def async_task(task: str, using: Any, attempts: int = 1) -> Any:
    aux.set_relay_auxiliary_route("anthropic", "m", "chat_completions")
    for last in [False] * (attempts - 1) + [True]:
        try:
            return aux.validate_llm_response(await aux.relay_async_completion(using, KWARGS), task)
        except Exception:
            if last:
                raise


async def test_r93_the_async_twin_behaves_the_same(talk: Conversation, events: Events) -> None:
    with talk.turn.activate():
        got = await async_task("title", async_client(Status(500), SimpleNamespace(choices=[]), response("ok")), 3)
        with pytest.raises(Status):
            await async_task("title", async_client(Status(400)))
    assert got.choices[0].message.content == "ok"
    assert [e["metadata"]["retry_count"] for e in events.attempts()] == [0, 1, 2, 0]
    assert [e["data"] for e in events.ends(LOGICAL)] == [
        {"outcome": "success", "model": "m", "provider": "anthropic", "error_class": "unknown"},
        {"outcome": "failed", "model": "m", "provider": "anthropic", "error_class": "format_error"},
    ]


async def test_r93_the_plain_decorator_takes_coroutine_functions_too(talk: Conversation, events: Events) -> None:
    @aux.relay_auxiliary_call
    async def task(name: str) -> Any:
        aux.set_relay_auxiliary_route("p", "m", "")
        return aux.validate_llm_response(await aux.relay_async_completion(async_client(response()), KWARGS), name)

    with talk.turn.activate():
        await task("title")
    assert events.outcomes() == ["success"]


async def test_r93_the_async_stream_behaves_the_same(talk: Conversation, events: Events) -> None:
    async def parts() -> Any:
        yield chunk("a")
        raise Status(500)

    @aux.relay_auxiliary_call_async
    async def task(name: str) -> Any:
        aux.set_relay_auxiliary_route("p", "m", "")
        return await aux.relay_async_stream(async_client(parts()), KWARGS)

    with talk.turn.activate():
        stream = await task("moa")
    assert await anext(stream) == chunk("a")
    with pytest.raises(Status):
        await anext(stream)
    assert events.outcomes() == ["failed"]


async def test_r93_a_cancelled_async_call_is_cancelled(talk: Conversation, events: Events) -> None:
    started = asyncio.Event()

    async def create(**kwargs: Any) -> Any:
        started.set()
        await asyncio.sleep(60)

    hanging = SimpleNamespace(chat=SimpleNamespace(completions=SimpleNamespace(create=create)))
    with talk.turn.activate():
        task = asyncio.create_task(async_task("title", hanging))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert events.outcomes() == ["cancelled"]


def test_r94_the_owner_unwinds_without_touching_the_client(talk: Conversation, events: Events) -> None:
    abort, inside, go_on, finished = (threading.Event() for _ in range(4))
    threads: list[threading.Thread] = []

    def create(**kwargs: Any) -> Any:
        threads.append(threading.current_thread())
        inside.set()
        assert go_on.wait(10)
        finished.set()
        return response()

    shared = SimpleNamespace(chat=SimpleNamespace(completions=SimpleNamespace(create=create)))

    @aux.relay_auxiliary_call
    def task(name: str) -> Any:
        aux.set_relay_auxiliary_route("p", "m", "")
        return aux.relay_sync_completion(shared, KWARGS, abort=abort)

    def stop() -> None:
        assert inside.wait(10)
        abort.set()

    threading.Thread(target=stop).start()
    with pytest.raises(aux.CallAborted):
        task("title")
    assert events.outcomes() == ["cancelled"]
    assert not finished.is_set() and not hasattr(shared, "close")
    assert threads != [threading.current_thread()]
    go_on.set()
    assert finished.wait(10)


def test_r94_a_worker_gives_back_what_the_provider_gave(talk: Conversation, events: Events) -> None:
    answer, error = response(), Status(500)
    abort = threading.Event()

    @aux.relay_auxiliary_call
    def task(name: str) -> Any:
        aux.set_relay_auxiliary_route("p", "m", "")
        with pytest.raises(Status) as caught:
            aux.relay_sync_completion(client(error), KWARGS, abort=abort)
        assert caught.value is error
        return aux.relay_sync_completion(client(answer), KWARGS, abort=abort)

    assert task("title") is answer
