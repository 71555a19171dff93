"""Conversations and turns across all runtimes of the process."""

from __future__ import annotations

import importlib
import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from adapters import faults
from adapters.runtime_host import NoopRelayRuntime, RelayRuntime
from adapters.scopes import Scope
from adapters.sessions import (
    _PROFILE,
    _TURN,
    EXECUTION_SURFACE_KEY,
    SCOPE_ROLE_KEY,
    TURN_SCOPE,
    ConversationLease,
    RelaySession,
    RelayTurnContext,
    enter_turn,
    leave_turn,
)

log = logging.getLogger("adapters")

Runtime = RelayRuntime | NoopRelayRuntime

_lock = threading.RLock()
_runtimes: dict[str, Runtime] = {}


def canonical_profile(profile_key: str | None) -> str:
    """One spelling for each profile: a path is resolved, a plain name stays as it is."""
    key = profile_key or "default"
    return os.path.realpath(os.path.expanduser(key)) if os.sep in key or key.startswith("~") else key


def current_profile_key() -> str:
    """The profile of this context (`use_profile`), else of the process: RELAY_PROFILE, name or path; or `default`."""
    return _PROFILE.get() or canonical_profile(os.environ.get("RELAY_PROFILE"))


@contextmanager
def use_profile(profile_key: str) -> Iterator[str]:
    """Work for one profile in the body of a `with` block, in a process that serves several."""
    key = canonical_profile(profile_key)
    token = _PROFILE.set(key)
    try:
        yield key
    finally:
        _PROFILE.reset(token)


def get_runtime(profile_key: str | None = None) -> Runtime:
    """The runtime of a profile, made on first use; a no-op one, kept for good, when Relay cannot run here."""
    key = canonical_profile(profile_key or current_profile_key())
    with _lock:
        runtime = _runtimes.get(key)
        if runtime is None:
            try:
                importlib.import_module("nemo_relay")
                runtime = RelayRuntime(profile_key=key)
            except Exception as error:
                log.warning("Relay cannot run here, calls go through unrecorded: %s", error)
                runtime = NoopRelayRuntime(profile_key=key, reason=str(error))
            _runtimes[key] = runtime
        return runtime


def install_runtime(runtime: Runtime) -> Runtime | None:
    """Make `runtime` the one of its profile (a host that wants plugins builds its own); returns the one it replaces."""
    with _lock:
        key = canonical_profile(runtime.profile_key)
        previous = _runtimes.get(key)
        _runtimes[key] = runtime
        return previous


def existing_runtime(profile_key: str | None = None) -> Runtime | None:
    """The runtime of a profile if it was made before; never makes one."""
    return _runtimes.get(canonical_profile(profile_key or current_profile_key()))


class SessionCoordinator:
    """Hands out conversations and turns. Safe from any thread; nothing here raises into the agent but misuse."""

    def acquire_conversation(
        self,
        *,
        profile_key: str | None = None,
        session_id: str,
        platform: str = "",
        parent_session_id: str = "",
        model: str = "",
        cwd: str | None = None,
    ) -> ConversationLease:
        """A lease on a session, opened when it is not open yet; with a parent it is a sub-agent's session."""
        key = canonical_profile(profile_key or current_profile_key())
        host = get_runtime(key)
        session: RelaySession | None = None
        if isinstance(host, RelayRuntime):
            try:
                if parent_session_id and parent_session_id != session_id:
                    session = host.register_subagent(
                        session_id, parent_session_id, platform=platform or "subagent", model=model
                    )
                if session is None:
                    session = host.ensure_session(session_id, platform=platform, model=model, cwd=cwd)
            except Exception as error:
                faults.note("session", error)
        return ConversationLease(key, session_id, platform, host, session, model=model)

    def begin_turn(
        self, lease: ConversationLease, *, turn_id: str, task_id: str = "", cwd: str | None = None
    ) -> RelayTurnContext:
        """Open a turn and make it the current one of this context. RuntimeError on a released lease."""
        if lease.released:
            raise RuntimeError(
                f"the lease on session {lease.session_id!r} was released; acquire the conversation again"
            )
        turn = RelayTurnContext(lease, turn_id, task_id)
        session = lease.session
        if session is not None and isinstance(lease.host, RelayRuntime):
            if lease.host.get_session(lease.session_id) is not session:  # closed meanwhile: leases are resumable
                session = lease.session = lease.host.ensure_session(
                    lease.session_id, platform=lease.platform, model=lease.model
                )
            try:
                self._open(turn, session, cwd)
            except Exception as error:
                faults.note("turn", error)
        enter_turn(turn)
        return turn

    def _open(self, turn: RelayTurnContext, session: RelaySession | None, cwd: str | None) -> None:
        if session is None:
            return
        relay = session.host.relay
        metadata: dict[str, Any] = {
            **session.host.identity,
            EXECUTION_SURFACE_KEY: session.metadata[EXECUTION_SURFACE_KEY],
            "session_id": session.session_id,
            "turn_id": turn.turn_id,
            SCOPE_ROLE_KEY: "turn",
        }
        if turn.task_id:
            metadata["task_id"] = turn.task_id
        turn.scope = Scope(
            relay,
            TURN_SCOPE,
            relay.ScopeType.Function,
            parent=session.scope,
            metadata=metadata,
            input={"cwd": cwd} if cwd else {},
        )
        session.turns[turn.turn_id] = turn

    def end_turn(self, turn: RelayTurnContext, *, outcome: str, ended_at: datetime | None = None) -> None:
        """Close a turn, its open logical calls first, all with `outcome`. Ending it again does nothing.

        `ended_at`, with a time zone, is for a caller that knows only later that the turn was over. The default is now.
        """
        with turn.finalize_lock:
            if turn.closed:
                return
            turn.closed, turn.outcome = True, outcome
            turn.complete_remaining(outcome)
            if turn.scope is not None:
                turn.scope.drain({"outcome": outcome}, ended_at)
        self._forget(turn)

    def leave_turn_open(self, turn: RelayTurnContext) -> None:
        """Forget a turn and tell no end of it, nor of its calls: another process goes on with it."""
        with turn.finalize_lock:
            if turn.closed:
                return
            turn.closed = True
        self._forget(turn)

    def _forget(self, turn: RelayTurnContext) -> None:
        session = turn.lease.session
        if session is not None:
            if session.turns.get(turn.turn_id) is turn:
                del session.turns[turn.turn_id]
            if not session.turns and (session.is_subagent or session.close_wanted):
                session.host.close_session(session.session_id)
        leave_turn(turn)

    def release_conversation(self, lease: ConversationLease) -> None:
        """Give a lease back. The session stays open for the next one."""
        lease.released = True

    def finalize_conversation(self, *, profile_key: str | None = None, session_id: str) -> None:
        """Close a session for good: at once, or when its last live turn ends."""
        runtime = existing_runtime(profile_key)
        session = runtime.get_session(session_id) if runtime is not None else None
        if runtime is None or session is None:
            return
        if session.turns:
            session.close_wanted = True
        else:
            runtime.close_session(session_id)


SESSION_COORDINATOR = SessionCoordinator()


def shutdown_all() -> None:
    """Shut all runtimes of the process down and forget them."""
    with _lock:
        runtimes = list(_runtimes.values())
        _runtimes.clear()
    for runtime in runtimes:
        runtime.shutdown()


def reset_for_tests() -> None:
    """Forget all runtimes, after their shutdown, and the current turn."""
    shutdown_all()
    _TURN.set(None)


__all__ = [
    "SESSION_COORDINATOR",
    "SessionCoordinator",
    "canonical_profile",
    "current_profile_key",
    "existing_runtime",
    "get_runtime",
    "install_runtime",
    "reset_for_tests",
    "shutdown_all",
    "use_profile",
]
