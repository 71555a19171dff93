"""Calls to a provider through Relay: one attempt each, buffered or streamed, sync and async.

`callback` (or `stream_factory`) gets the provider's request, a mapping: the very object passed in when nothing changed
it. A call that cannot or need not be managed goes straight to it. Keyword arguments: `adapters.options`.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Unpack

from adapters import exits, faults, loops, rules
from adapters.accumulators import AnthropicStreamAccumulator, ChatStreamAccumulator, ResponsesStreamAccumulator
from adapters.attempt import Attempt, CallCut, CallFault, prepared
from adapters.json_values import escape, to_json
from adapters.managed_stream import AsyncManagedLlmStream, ManagedLlmStream
from adapters.options import CallArguments, CallOptions, StreamArguments, StreamOptions
from adapters.places import Place, managed, placed
from adapters.sessions import active_turn
from adapters.unplaced import CallBlocked, Unplaced, check_call

if TYPE_CHECKING:
    from adapters.wire import ProviderCall

log = logging.getLogger("adapters")

Request = Mapping[str, Any]
Callback = Callable[[Any], Any]

MANY = 1_000
"""Messages (or other items) from which on rules run in a thread, where there is an event loop: 13 ms on it else."""
_UNANSWERED = object()


def execute(request: Request, callback: Callback, *, session_id: str, **arguments: Unpack[CallArguments]) -> Any:
    """Make one attempt in a session and give the provider's answer, its own object when no intercept changed it.

    Args:
        request: The provider's request: body, and what else the SDK's call takes.
        callback: Called with the request, or with what intercepts made of it.
        session_id: The session; its live turn in this context is the parent, else the session itself.

    Raises:
        RuntimeError: On a thread with a running event loop; use `execute_async` there.
        CallBlocked, CallFault, CallCut: What a rule of ours wanted.
        Exception: What the provider raised, the same object; or what refused the call in Relay.
    """
    return _execute(session_id, request, callback, CallOptions(**arguments))


def execute_current(request: Request, callback: Callback, **arguments: Unpack[CallArguments]) -> Any:
    """`execute` in the live turn of this context; unmanaged where there is none."""
    return _execute(None, request, callback, CallOptions(**arguments))


async def execute_async(
    request: Request, callback: Callback, *, session_id: str, **arguments: Unpack[CallArguments]
) -> Any:
    """`execute` on a running event loop; `callback` may be a coroutine function."""
    return await _execute_async(session_id, request, callback, CallOptions(**arguments))


async def execute_current_async(request: Request, callback: Callback, **arguments: Unpack[CallArguments]) -> Any:
    """`execute_async` in the live turn of this context; unmanaged where there is none."""
    return await _execute_async(None, request, callback, CallOptions(**arguments))


def _execute(session_id: str | None, request: Request, callback: Callback, options: CallOptions) -> Any:
    attempt = _begin(session_id, request, options, loop_refused="execute")
    if attempt is None:
        return callback(request)
    try:
        return loops.run(_run(attempt, callback, blocking=True))
    finally:
        attempt.where.host.end_operation()


async def _execute_async(session_id: str | None, request: Request, callback: Callback, options: CallOptions) -> Any:
    attempt = await _begin_async(session_id, request, options)
    if attempt is None:
        result = callback(request)
        return await result if inspect.isawaitable(result) else result
    try:
        return await _run(attempt, callback, blocking=False)
    finally:
        attempt.where.host.end_operation()


def _begin(
    session_id: str | None, request: Request, options: CallOptions | StreamOptions, *, loop_refused: str = ""
) -> Attempt | None:
    """An attempt that holds up shutdown until its operation ends; None when the call goes out unmanaged.

    Raises CallBlocked where a fault of ours keeps it from rules that fail closed, and RuntimeError on a running event
    loop, for the synchronous form that is named.
    """
    where = _place(session_id, request, options, loop_refused)
    if where is None:
        return None
    try:
        return Attempt(where, prepared(where, request, options), options)
    except Exception as error:
        _give_up(where, request, options, error)
        return None


async def _begin_async(
    session_id: str | None, request: Request, options: CallOptions | StreamOptions
) -> Attempt | None:
    """The same. Where the rules have much to do they do it in a thread, so that they hold nobody up."""
    where = _place(session_id, request, options)
    if where is None:
        return None
    try:
        if _takes_long(request):
            call = await asyncio.to_thread(_prepared_well, where, request, options)
        else:
            call = prepared(where, request, options)
        return Attempt(where, call, options)
    except Exception as error:
        _give_up(where, request, options, error)
        return None
    except BaseException:
        where.host.end_operation()
        raise


def _takes_long(request: Request) -> bool:
    many = any(isinstance(value, list) and len(value) > MANY for value in request.values())
    return many and bool(rules.current().rules)


def _prepared_well(where: Place, request: Request, options: CallOptions | StreamOptions) -> ProviderCall:
    call = prepared(where, request, options)
    call.make_ready()
    return call


def _place(
    session_id: str | None, request: Request, options: CallOptions | StreamOptions, loop_refused: str = ""
) -> Place | None:
    try:
        where = placed(session_id)
    except Unplaced as fault:
        check_call(request, options, profile=fault.profile, session_id=fault.session_id)
        return None
    if where is None:
        return None
    if loop_refused and loops.has_running_loop():
        async_forms = f"{loop_refused}_async() or {loop_refused}_current_async()"
        raise RuntimeError(f"this thread runs an event loop: await {async_forms} instead")
    return where if where.host.begin_operation() else None


def _give_up(where: Place, request: Request, options: CallOptions | StreamOptions, error: Exception) -> None:
    where.host.end_operation()
    faults.note("call", error)
    check_call(request, options, profile=where.host.profile, session_id=where.session.session_id)


async def _run(attempt: Attempt, callback: Callback, *, blocking: bool) -> Any:
    """One buffered attempt. With `blocking` the callback is synchronous and runs as if there were no loop."""
    result: Any = _UNANSWERED
    plain = carried = None

    async def provider(passed: Any) -> Any:
        nonlocal result, plain, carried
        result = _UNANSWERED
        outgoing = attempt.outgoing(passed)
        ruled = await attempt.ruled(streaming=False)
        if ruled is not None:
            return attempt.carried(ruled.body)
        try:
            with managed():
                if blocking:
                    with loops.hidden_loop():
                        answer = callback(outgoing)
                else:
                    answer = callback(outgoing)
                    if inspect.isawaitable(answer):
                        answer = await answer
        except BaseException as error:
            raise attempt.provider_failed(error) from None
        plain, carried = attempt.recorded(answer)
        attempt.tell_flags()
        result = answer
        return carried

    try:
        out = await attempt.started_by(attempt.relay.llm.execute, provider)
    except Exception as error:
        if result is not _UNANSWERED:
            log.warning("Relay failed after the provider had answered: %s", error)
            attempt.complete("success")
            return result
        attempt.blocked(error)
        raise attempt.original_error(error) from None
    except BaseException:
        exits.note_cancelled()
        raise
    attempt.complete("success")
    if result is _UNANSWERED:
        return attempt.answered(out)
    return attempt.delivered(result, plain, carried, out)


def stream(
    request: Request, stream_factory: Callback, *, session_id: str, **arguments: Unpack[StreamArguments]
) -> ManagedLlmStream:
    """Make one streamed attempt in a session; gives an iterator over the provider's own chunks.

    Args:
        request, session_id: As in `execute`.
        stream_factory: Called with the request; gives the provider's stream.

    Raises:
        As `execute`; errors of the provider also while iterating.
    """
    return _stream(session_id, request, stream_factory, StreamOptions(**arguments))


def stream_current(request: Request, stream_factory: Callback, **arguments: Unpack[StreamArguments]) -> Any:
    """`stream` in the live turn of this context; unmanaged where there is none.

    With a predicate the first step is taken at once: a complete response is given back itself, and an error of the
    provider surfaces here. On a thread that runs an event loop the provider's own result is given back.
    """
    options = StreamOptions(**arguments)
    if loops.has_running_loop():
        return stream_factory(request)
    opened = _stream(None, request, stream_factory, options)
    return opened.settled() if options.completed_response_predicate is not None else opened


def _stream(session_id: str | None, request: Request, factory: Callback, options: StreamOptions) -> ManagedLlmStream:
    attempt = _begin(session_id, request, options, loop_refused="stream")
    if attempt is None:
        return ManagedLlmStream.bypass(request, factory, options)
    return ManagedLlmStream.open(attempt, factory, options)


async def stream_async(
    request: Request, stream_factory: Callback, *, session_id: str, **arguments: Unpack[StreamArguments]
) -> AsyncManagedLlmStream:
    """`stream` on a running event loop: an async iterator; the factory may be a coroutine function."""
    return await _stream_async(session_id, request, stream_factory, StreamOptions(**arguments))


async def stream_current_async(request: Request, stream_factory: Callback, **arguments: Unpack[StreamArguments]) -> Any:
    """`stream_async` in the live turn of this context; unmanaged where there is none. Predicate: `stream_current`."""
    options = StreamOptions(**arguments)
    opened = await _stream_async(None, request, stream_factory, options)
    return await opened.settled() if options.completed_response_predicate is not None else opened


async def _stream_async(
    session_id: str | None, request: Request, factory: Callback, options: StreamOptions
) -> AsyncManagedLlmStream:
    attempt = await _begin_async(session_id, request, options)
    if attempt is None:
        return await AsyncManagedLlmStream.bypass(request, factory, options)
    return await AsyncManagedLlmStream.open(attempt, factory, options)


def complete_logical_call(api_request_id: str, *, outcome: str, ended_at: datetime | None = None) -> None:
    """Close the logical call of that id in the live turn of this context; nothing happens where there is none.

    `ended_at`, with a time zone, is for a caller that knows only later that the call was over. The default is now.
    """
    turn = active_turn()
    call = turn.calls.get(api_request_id) if turn is not None and api_request_id else None
    if turn is not None and call is not None:
        turn.complete(call, outcome, ended_at=ended_at)


def describe_logical_call(api_request_id: str, **output: Any) -> None:
    """Say what the output of a logical call shall hold besides its outcome, before it is closed."""
    turn = active_turn()
    call = turn.calls.get(api_request_id) if turn is not None and api_request_id else None
    if call is not None:
        call.output.update(escape(to_json(output))[0])


__all__ = [
    "AnthropicStreamAccumulator",
    "AsyncManagedLlmStream",
    "CallBlocked",
    "CallCut",
    "CallFault",
    "ChatStreamAccumulator",
    "ManagedLlmStream",
    "ResponsesStreamAccumulator",
    "complete_logical_call",
    "describe_logical_call",
    "execute",
    "execute_async",
    "execute_current",
    "execute_current_async",
    "stream",
    "stream_async",
    "stream_current",
    "stream_current_async",
]
