"""One logical identity for all attempts of a side task: retries, fallbacks to another provider, and the answer taken.

A decorated function makes as many attempts as it likes with `relay_sync_completion` and its siblings and passes what it
gets to `validate_llm_response`; accepting an answer, or an exception that leaves the function, closes the call once.
"""

from __future__ import annotations

import contextvars
import functools
import inspect
import logging
import threading
import uuid
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ParamSpec, TypeVar

from adapters import relay_llm
from adapters.failures import error_class, is_abort

log = logging.getLogger("adapters")

P = ParamSpec("P")
T = TypeVar("T")

AUXILIARY = "auxiliary"


class CallAborted(InterruptedError):
    """The owner of an auxiliary call gave it up; the provider's call may still run in its worker."""


@dataclass
class _Call:
    """One auxiliary call and the route of its next attempt."""

    task: str
    api_request_id: str
    attempts: int = 0
    provider: str = ""
    model: str = ""
    api_mode: str = ""
    response_model: str | None = None
    last_error: str = "none"
    closed: bool = False


_CALL: contextvars.ContextVar[_Call | None] = contextvars.ContextVar("relay_auxiliary_call", default=None)


def relay_auxiliary_call(function: Callable[P, T]) -> Callable[P, T]:
    """Make each call of `function` one logical call. The task is its first argument, or `task=`."""
    if inspect.iscoroutinefunction(function):
        return relay_auxiliary_call_async(function)  # type: ignore[return-value]

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        with _identity(args, kwargs):
            return function(*args, **kwargs)

    return call


def relay_auxiliary_call_async(function: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
    """`relay_auxiliary_call` for a coroutine function."""

    @functools.wraps(function)
    async def call(*args: P.args, **kwargs: P.kwargs) -> T:
        with _identity(args, kwargs):
            return await function(*args, **kwargs)

    return call


@contextmanager
def _identity(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[None]:
    task = args[0] if args else kwargs.get("task")
    call = _Call(str(task) if task else "unknown", f"aux-{uuid.uuid4().hex}")
    token = _CALL.set(call)
    try:
        yield
    except BaseException as error:
        if is_abort(error):
            _close(call, "cancelled", "none")
        else:
            kind = error_class(error)
            _close(call, "failed", call.last_error if kind == "unknown" and call.last_error != "none" else kind)
        raise
    finally:
        _CALL.reset(token)


def _close(call: _Call, outcome: str, error: str | None = None) -> None:
    """Say what is known about the call, then close it; a close that fails never hides what the caller is told."""
    if call.closed:
        return
    call.closed = True
    try:
        relay_llm.describe_logical_call(
            call.api_request_id, **_route(call), **({"error_class": error} if error else {})
        )
        relay_llm.complete_logical_call(call.api_request_id, outcome=outcome)
    except Exception as problem:
        log.warning("auxiliary call %s was not closed: %s", call.api_request_id, problem)


def _route(call: _Call) -> dict[str, str]:
    """Model and provider, both or none; and the model the provider said it was."""
    known = {"model": call.model, "provider": call.provider} if call.model and call.provider else {}
    return {**known, "response_model": call.response_model} if known and call.response_model else known


def set_relay_auxiliary_route(provider: str | None, model: str | None, api_mode: str | None) -> None:
    """Where the next attempts of this auxiliary call go. Outside such a call nothing happens."""
    call = _CALL.get()
    if call is not None:
        call.provider, call.model = provider or AUXILIARY, model or "unknown"
        call.api_mode = api_mode or "chat_completions"
        call.response_model = None


def _metadata(call: _Call, api_mode: str | None) -> dict[str, Any]:
    """The metadata of the next attempt; counts it."""
    attempt, call.attempts = call.attempts, call.attempts + 1
    return {
        "api_mode": api_mode or call.api_mode or "chat_completions",
        "api_request_id": call.api_request_id,
        "call_role": f"{AUXILIARY}:{call.task}",
        "retry_count": attempt,
        "auxiliary_task": call.task,
    }


def _arguments(call: _Call, kwargs: dict[str, Any], provider: str | None, api_mode: str | None) -> dict[str, Any]:
    return {
        "name": provider or call.provider or AUXILIARY,
        "model_name": str(kwargs.get("model") or call.model or "unknown"),
        "metadata": _metadata(call, api_mode),
    }


def _create(client: Any, kwargs: dict[str, Any]) -> Callable[[dict[str, Any]], Any]:
    """The method of `client` that makes a call of this shape: Chat, Responses or Messages."""
    if "input" in kwargs and hasattr(client, "responses"):
        return lambda request: client.responses.create(**request)
    if not hasattr(client, "chat") and hasattr(client, "messages"):
        return lambda request: client.messages.create(**request)
    return lambda request: client.chat.completions.create(**request)


def relay_sync_completion(
    client: Any,
    kwargs: dict[str, Any],
    *,
    provider: str | None = None,
    api_mode: str | None = None,
    abort: threading.Event | None = None,
) -> Any:
    """One attempt of the auxiliary call around it; a plain call where there is none.

    Args:
        client: An SDK client, or anything with `chat.completions.create`.
        kwargs: The arguments of that call.
        provider: The provider's name, where it is not the one of the route.
        api_mode: The wire format, where it is not the one of the route.
        abort: When it is set, the attempt raises CallAborted at once; the provider's call is left to its worker, and
            the client is not touched.
    """
    create = _create(client, kwargs)
    if abort is not None:
        create = _abortable(create, abort)
    call = _CALL.get()
    if call is None:
        return create(kwargs)
    try:
        return relay_llm.execute_current(
            kwargs, create, defer_logical_completion=True, **_arguments(call, kwargs, provider, api_mode)
        )
    except Exception as error:
        call.last_error = error_class(error)
        raise


async def relay_async_completion(
    client: Any, kwargs: dict[str, Any], *, provider: str | None = None, api_mode: str | None = None
) -> Any:
    """`relay_sync_completion` for an async client."""
    create = _create(client, kwargs)
    call = _CALL.get()
    if call is None:
        return await _awaited(create(kwargs))
    try:
        return await relay_llm.execute_current_async(
            kwargs,
            lambda request: _awaited(create(request)),
            defer_logical_completion=True,
            **_arguments(call, kwargs, provider, api_mode),
        )
    except Exception as error:
        call.last_error = error_class(error)
        raise


async def _awaited(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


def relay_sync_stream(
    client: Any, kwargs: dict[str, Any], *, provider: str | None = None, api_mode: str | None = None
) -> Any:
    """One streamed attempt; it closes its logical call itself. A complete response is given back as it is."""
    create = _create(client, kwargs)
    call = _CALL.get()
    if call is None:
        return create(kwargs)
    arguments = _arguments(call, kwargs, provider, api_mode)
    return relay_llm.stream_current(
        kwargs,
        _described(create, call),
        finalizer=dict,
        completed_response_predicate=_is_complete,
        **arguments,
    )


async def relay_async_stream(
    client: Any, kwargs: dict[str, Any], *, provider: str | None = None, api_mode: str | None = None
) -> Any:
    """`relay_sync_stream` for an async client."""
    create = _create(client, kwargs)
    call = _CALL.get()
    if call is None:
        return await _awaited(create(kwargs))
    arguments = _arguments(call, kwargs, provider, api_mode)
    return await relay_llm.stream_current_async(
        kwargs,
        _described(create, call),
        finalizer=dict,
        completed_response_predicate=_is_complete,
        **arguments,
    )


def _described(create: Callable[[dict[str, Any]], Any], call: _Call) -> Callable[[dict[str, Any]], Any]:
    """`create`, telling the logical call its route first: by then the call is open, and it closes by itself."""
    route = _route(call)

    def factory(request: dict[str, Any]) -> Any:
        relay_llm.describe_logical_call(call.api_request_id, **route)
        return create(request)

    return factory


def _is_complete(value: Any) -> bool:
    return hasattr(value, "choices")


def _abortable(create: Callable[[dict[str, Any]], Any], abort: threading.Event) -> Callable[[dict[str, Any]], Any]:
    def callback(request: dict[str, Any]) -> Any:
        done = threading.Condition()
        outcome: list[Any] = []
        context = contextvars.copy_context()

        def work() -> None:
            value, error = None, None
            try:
                value = context.run(create, request)
            except BaseException as raised:
                error = raised
            with done:
                outcome.append((value, error))
                done.notify()

        threading.Thread(target=work, name="relay-auxiliary", daemon=True).start()
        with done:
            while not outcome and not abort.is_set():
                done.wait(0.02)
        if not outcome:
            raise CallAborted("the auxiliary call was aborted")
        result, error = outcome[0]
        if error is not None:
            raise error
        return result

    return callback


def validate_llm_response(response: Any, task: str | None = None) -> Any:
    """Accept a response and close the auxiliary call around it with success; give the response.

    Text is recovered from Responses-like shapes. Raises RuntimeError ("invalid response") for one that cannot be used;
    the call then stays open for another attempt.
    """
    call = _CALL.get()
    if not _has_message(response):
        recovered = _recovered(response)
        if recovered is None:
            kind = error_class(response)
            if call is not None:
                call.last_error = kind
            raise RuntimeError(
                f"invalid response for auxiliary task {task or (call.task if call else 'unknown')!r}: "
                f"{'null' if response is None else f'{type(response).__name__} without choices[0].message'}"
            )
        response = recovered
    if call is not None:
        model = _get(response, "model")
        call.response_model = model if isinstance(model, str) and model else None
        _close(call, "success", call.last_error)
    return response


def _get(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else getattr(value, name, None)


def _first(value: Any) -> Any:
    return value[0] if isinstance(value, (list, tuple)) and value else None


def _has_message(response: Any) -> bool:
    return response is not None and _get(_first(_get(response, "choices")), "message") is not None


def _recovered(response: Any) -> Any:
    """A chat-like response around the text of one shaped like Responses or Messages, if there is any."""
    text = _get(response, "output_text")
    if not isinstance(text, str) or not text:
        parts = [
            _get(part, "text")
            for item in _list(_get(response, "output"))
            for part in _list(_get(item, "content"))
            if _get(part, "type") in ("output_text", "text", None)
        ]
        parts += [_get(part, "text") for part in _list(_get(response, "content")) if _get(part, "type") == "text"]
        text = "".join(part for part in parts if isinstance(part, str))
    if not text:
        return None
    message = SimpleNamespace(role="assistant", content=text, tool_calls=None)
    choice = SimpleNamespace(index=0, message=message, finish_reason="stop")
    return SimpleNamespace(choices=[choice], model=_get(response, "model"), usage=_get(response, "usage"), raw=response)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
