"""Where a managed call belongs, and whether a call is to be managed at all."""

from __future__ import annotations

import contextvars
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from adapters import faults
from adapters.coordinator import existing_runtime
from adapters.runtime_host import RelayRuntime
from adapters.scopes import Scope
from adapters.sessions import _PROFILE, RelaySession, RelayTurnContext, current_turn
from adapters.unplaced import Unplaced

_MANAGED: contextvars.ContextVar[bool] = contextvars.ContextVar("relay_managed", default=False)


@contextmanager
def managed() -> Iterator[None]:
    """Whatever is called inside runs unmanaged, also from contexts copied here: the outer scope records it."""
    token = _MANAGED.set(True)
    try:
        yield
    finally:
        _MANAGED.reset(token)


def inside_managed() -> bool:
    return _MANAGED.get()


class Place(msgspec.Struct, frozen=True):
    """Where a managed call belongs."""

    host: RelayRuntime
    session: RelaySession
    parent: Scope
    turn: RelayTurnContext | None


def place(session_id: str | None) -> Place | None:
    """The place of a call made here and now, None when it must or has to run unmanaged."""
    try:
        return placed(session_id)
    except Unplaced:
        return None


def placed(session_id: str | None) -> Place | None:
    """The place of a call made here and now, None when it must run unmanaged.

    Without `session_id` only the live turn of this context counts. With it, a context copied from a turn of that
    session which has since closed still means unmanaged; no turn at all means the session itself.

    Raises:
        Unplaced: For a call that is to be managed, where a fault of ours left its session or turn without a scope.
    """
    if _MANAGED.get():
        return None
    turn = current_turn()
    if turn is not None and session_id in (None, turn.lease.session_id):
        host, session = turn.lease.host, turn.lease.session
        if isinstance(host, RelayRuntime):
            if not host.managed_execution_enabled():
                return None
            if turn.is_active(session_id, _PROFILE.get()) and session is not None and turn.scope is not None:
                return Place(host, session, turn.scope, turn)
        if turn.failed_to_open:
            raise Unplaced(host.profile, turn.lease.session_id)
        return None
    if session_id is None:
        return None
    runtime = existing_runtime()
    if not isinstance(runtime, RelayRuntime) or not runtime.managed_execution_enabled():
        return None
    try:
        session = runtime.ensure_session(session_id)
    except Exception as error:
        faults.note("session", error)
        raise Unplaced(runtime.profile, session_id) from error
    return Place(runtime, session, session.scope, None) if session is not None else None


def resolve_execution_context(session_id: str) -> tuple[RelayRuntime, RelaySession, Any] | tuple[None, None, None]:
    """Runtime, session and Relay's handle of the parent scope for a call of that session; all None when unmanaged."""
    where = place(session_id)
    return (where.host, where.session, where.parent.handle) if where is not None else (None, None, None)
