"""Tool calls through Relay: one tool scope each, arguments and results the caller's own objects where unchanged."""

from __future__ import annotations

import inspect
import json
import logging
from collections.abc import Callable, Mapping
from typing import Any

from adapters import exits, loops
from adapters.attempt import ProviderInterrupted
from adapters.failures import is_wrapper
from adapters.json_values import escape, overlay, same, to_json
from adapters.places import Place, managed, place

log = logging.getLogger("adapters")

Arguments = Mapping[str, Any]

_UNANSWERED = object()


def execute(
    name: str,
    arguments: Arguments,
    callback: Callable[[Any], Any],
    *,
    session_id: str | None = None,
    tool_call_id: str = "",
    metadata: Mapping[str, Any] | None = None,
) -> tuple[Any, Any]:
    """Run a tool; gives its result and the arguments it really got.

    Args:
        name: The tool's name.
        arguments: Its arguments; intercepts may change what `callback` gets.
        callback: Called once with the arguments; its result is the tool's.
        session_id: The session; without it the live turn of this context.
        tool_call_id: The provider's id of the call, recorded in the tool scope.

    Raises:
        RuntimeError: On a thread with a running event loop; use `execute_async` there.
        Exception: What the tool raised, the same object; or what refused the call in Relay.
    """
    where = place(session_id)
    if where is None:
        return callback(arguments), arguments
    if loops.has_running_loop():
        raise RuntimeError("this thread runs an event loop: await relay_tools.execute_async() instead")
    if not where.host.begin_operation():
        return callback(arguments), arguments
    try:
        return loops.run(_run(where, name, arguments, callback, tool_call_id, metadata, blocking=True))
    finally:
        where.host.end_operation()


async def execute_async(
    name: str,
    arguments: Arguments,
    callback: Callable[[Any], Any],
    *,
    session_id: str | None = None,
    tool_call_id: str = "",
    metadata: Mapping[str, Any] | None = None,
) -> tuple[Any, Any]:
    """`execute` on a running event loop; `callback` may be a coroutine function."""
    where = place(session_id)
    if where is None or not where.host.begin_operation():
        result = callback(arguments)
        return (await result if inspect.isawaitable(result) else result), arguments
    try:
        return await _run(where, name, arguments, callback, tool_call_id, metadata, blocking=False)
    finally:
        where.host.end_operation()


async def _run(
    where: Place,
    name: str,
    arguments: Arguments,
    callback: Callable[[Any], Any],
    tool_call_id: str,
    metadata: Mapping[str, Any] | None,
    *,
    blocking: bool,
) -> tuple[Any, Any]:
    relay = where.host.relay
    plain = to_json(arguments)
    carried, _ = escape(plain)
    used: Any = arguments
    result: Any = _UNANSWERED
    passed_on: Any = None
    error: BaseException | None = None

    async def tool(passed: Any) -> Any:
        nonlocal used, result, passed_on, error
        result, error = _UNANSWERED, None
        used = arguments if same(passed, carried) else overlay(plain, carried, passed)
        try:
            with managed():
                if blocking:
                    with loops.hidden_loop():
                        value = callback(used)
                else:
                    value = callback(used)
                    value = await value if inspect.isawaitable(value) else value
        except BaseException as raised:
            error = raised
            ordinary = isinstance(raised, Exception) and not isinstance(raised, (StopIteration, StopAsyncIteration))
            if ordinary or type(raised).__name__ == "CancelledError":
                raise
            raise ProviderInterrupted(raised) from None
        passed_on, _ = escape(to_json(value))
        result = value
        return relay.ToolExecutionResult(passed_on)

    try:
        with where.parent.entered():
            future = relay.tools.execute(
                name,
                carried,
                tool,
                handle=where.parent.handle,
                metadata=_metadata(where, metadata),
                tool_call_id=tool_call_id or None,
            )
        out = await future
    except Exception as raised:
        if result is not _UNANSWERED:
            log.warning("Relay failed after tool %s had returned: %s", name, raised)
            return result, used
        if isinstance(raised, ProviderInterrupted):
            raise raised.cause from None
        if error is not None and (raised is error or is_wrapper(raised, error)):
            raise error from None
        raise
    except BaseException:
        exits.note_cancelled()
        raise
    value = getattr(out, "result", out)
    if result is not _UNANSWERED and same(value, passed_on):
        return result, used
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), used


def _metadata(where: Place, given: Mapping[str, Any] | None) -> dict[str, Any]:
    metadata = {"session_id": where.session.session_id, **(given or {})}
    if where.turn is not None:
        metadata.setdefault("turn_id", where.turn.turn_id)
    escaped: dict[str, Any] = escape(to_json(metadata))[0]
    return escaped


def rewritten_arguments(name: str, arguments: Arguments, *, session_id: str | None = None) -> Arguments:
    """What Relay's request intercepts make of a tool's arguments, before it runs: for a host that asks a person first.

    Gives `arguments` itself when nothing changes it, when it is not managed, and on a result that is no object. Raises
    what an intercept raises.
    """
    where = place(session_id)
    if where is None or loops.has_running_loop():
        return arguments
    plain = to_json(arguments)
    carried, _ = escape(plain)
    with where.parent.entered():
        passed = where.host.relay.tools.request_intercepts(name, carried)
    if not isinstance(passed, dict) or same(passed, carried):
        return arguments
    changed: Arguments = overlay(plain, carried, passed)
    return changed


async def rewritten_arguments_async(name: str, arguments: Arguments, *, session_id: str | None = None) -> Arguments:
    """`rewritten_arguments` on a running event loop."""
    where = place(session_id)
    if where is None:
        return arguments
    plain = to_json(arguments)
    carried, _ = escape(plain)
    with where.parent.entered():
        passed = where.host.relay.tools.request_intercepts(name, carried)
    if inspect.isawaitable(passed):
        passed = await passed
    if not isinstance(passed, dict) or same(passed, carried):
        return arguments
    changed: Arguments = overlay(plain, carried, passed)
    return changed
