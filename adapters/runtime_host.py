"""One Relay runtime of one profile: its sessions, who wants managed execution, what still runs, how it shuts down."""

from __future__ import annotations

import asyncio
import atexit
import contextvars
import importlib
import logging
import os
import threading
import uuid
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from adapters.plugins import PLUGINS
from adapters.scopes import Scope, bounded, emit, keep_an_exit_thread
from adapters.sessions import (
    EXECUTION_SURFACE_KEY,
    RUNTIME_INSTANCE_KEY,
    RUNTIME_SCHEMA_KEY,
    RUNTIME_SCHEMA_VERSION,
    SCOPE_ROLE_KEY,
    SESSION_SCOPE,
    RelaySession,
    RelayTurnContext,
    active_turn,
)

log = logging.getLogger("adapters")
T = TypeVar("T")

SessionInitializer = Callable[["RelayRuntime", str], None]

FLUSH_TIMEOUT = 5.0
"""Seconds the final flush of Relay's subscribers may take."""


def _profile(key: str) -> str:
    return os.path.basename(key.rstrip(os.sep)) or key


class RuntimeClosed(RuntimeError):
    """The runtime is shutting down, or the session does not exist."""


class RelayRuntime:
    """Relay for one profile.

    `relay` is the nemo_relay module (imported when not given); `profile_key` names the profile; `plugins_toml` is a
    Relay plugin configuration to activate for the life of this runtime, none otherwise.
    """

    is_real = True

    def __init__(
        self,
        relay: Any = None,
        *,
        profile_key: str | None = None,
        plugins_toml: str | os.PathLike[str] | None = None,
    ) -> None:
        self._relay = relay if relay is not None else importlib.import_module("nemo_relay")
        self.profile_key = profile_key or "default"
        self.runtime_id = uuid.uuid4().hex
        self.profile = _profile(self.profile_key)
        self.identity = {
            RUNTIME_SCHEMA_KEY: RUNTIME_SCHEMA_VERSION,
            RUNTIME_INSTANCE_KEY: self.runtime_id,
            "profile": self.profile,
        }
        self._lock = threading.RLock()
        self._sessions: dict[str, RelaySession] = {}
        self._consumers: set[str] = set()
        self._initializers: list[SessionInitializer] = []
        self._operations = 0
        self._closing = False
        self._finished = threading.Event()
        self.plugins_active = plugins_toml is not None and PLUGINS.join(self.runtime_id, self._relay, plugins_toml)
        keep_an_exit_thread()
        atexit.register(self._at_exit)

    @property
    def relay(self) -> Any:
        """The nemo_relay module. Always looked up anew, so its functions can be observed or replaced."""
        return self._relay

    # -- who wants managed execution

    def retain_managed_execution(self, consumer: str) -> None:
        """Let calls run through Relay for `consumer`, a name; twice is once."""
        if not consumer or not consumer.strip():
            raise ValueError("consumer must be a non-empty name")
        with self._lock:
            self._consumers.add(consumer)

    def release_managed_execution(self, consumer: str) -> None:
        """Withdraw what `retain_managed_execution` asked for; an unknown name is no error."""
        with self._lock:
            self._consumers.discard(consumer)

    def managed_execution_enabled(self) -> bool:
        return bool(self._consumers) and not self._closing

    # -- sessions

    def add_session_initializer(self, initializer: SessionInitializer) -> None:
        """Call `initializer(runtime, session_id)` before each session opens; adding it again changes nothing."""
        with self._lock:
            if initializer not in self._initializers:
                self._initializers.append(initializer)

    def get_session(self, session_id: str) -> RelaySession | None:
        """The open session of that id; None when there is none or shutdown has begun."""
        return None if self._closing else self._sessions.get(session_id)

    def ensure_session(
        self, session_id: str, *, platform: str = "", model: str = "", cwd: str | None = None
    ) -> RelaySession | None:
        """The open session of that id, opened when there is none; None for an empty id or once shutdown has begun."""
        return self._open_session(session_id, platform=platform, model=model, cwd=cwd)

    def _open_session(
        self,
        session_id: str,
        *,
        platform: str,
        model: str,
        cwd: str | None,
        parent: RelaySession | None = None,
        parent_scope: Scope | None = None,
    ) -> RelaySession | None:
        if not session_id or self._closing:
            return None
        with self._lock:
            session = self._sessions.get(session_id)
            if session is not None or self._closing:
                return session if not self._closing else None
            for initializer in list(self._initializers):
                try:
                    initializer(self, session_id)
                except Exception:
                    log.exception("session initializer failed for session %s", session_id)
            metadata = {
                **self.identity,
                EXECUTION_SURFACE_KEY: platform or ("subagent" if parent else "library"),
                "session_id": session_id,
                SCOPE_ROLE_KEY: "subagent" if parent else "session",
            }
            if parent is not None:
                metadata["parent_session_id"] = parent.session_id
            if model:
                metadata["model"] = model
            # In an empty context: a scope that happens to be open in the caller's must not become the parent.
            scope = contextvars.Context().run(
                lambda: Scope(
                    self.relay,
                    SESSION_SCOPE,
                    self.relay.ScopeType.Agent,
                    parent=parent_scope,
                    metadata=metadata,
                    input={"cwd": cwd} if cwd else {},
                )
            )
            session = RelaySession(self, session_id, scope, metadata, parent=parent, is_subagent=parent is not None)
            self._sessions[session_id] = session
            return session

    def run_in_session(self, session: RelaySession | str, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Call `function` in a copy of the caller's context whose current Relay scope is the session's."""
        return self._session_context(session).run(function, *args, **kwargs)

    async def run_in_session_async(
        self, session: RelaySession | str, function: Callable[..., Awaitable[T]], *args: Any, **kwargs: Any
    ) -> T:
        """Await `function(…)` in a copy of the caller's context whose current Relay scope is the session's."""

        async def call() -> T:
            return await function(*args, **kwargs)

        return await asyncio.get_running_loop().create_task(call(), context=self._session_context(session))

    def _session_context(self, wanted: RelaySession | str) -> contextvars.Context:
        session_id = wanted if isinstance(wanted, str) else wanted.session_id
        session = self.get_session(session_id)
        if session is None:
            raise RuntimeClosed(f"no open session {session_id!r} in this runtime")
        with session.scope.entered():
            return contextvars.copy_context()

    def emit_mark(self, session_id: str, name: str, data: Any = None, metadata: dict[str, Any] | None = None) -> bool:
        """Emit a mark on the live turn of the session, else on the session; False when there is no such session."""
        session = self.get_session(session_id)
        if session is None:
            return False
        turn = self.live_turn(session)
        scope = turn.scope if turn is not None and turn.scope is not None else session.scope
        emit(self.relay, scope.context, name, data, metadata)
        return True

    def live_turn(self, session: RelaySession) -> RelayTurnContext | None:
        """The turn of `session` this context runs in, else the newest one still open."""
        turn = active_turn(session.session_id)
        if turn is not None and turn.lease.session is session:
            return turn
        live = [turn for turn in list(session.turns.values()) if not turn.closed]
        return live[-1] if live else None

    def close_session(self, session_id: str, *, output: dict[str, Any] | None = None) -> None:
        """Close a session now; unknown ids and a runtime that shuts down are no error."""
        if not self._closing:
            self._close_session(session_id, output)

    def _close_session(self, session_id: str, output: dict[str, Any] | None = None) -> None:
        with self._lock:
            session = self._sessions.pop(session_id, None)
        if session is not None:
            session.closed = True
            session.scope.drain(output or {})

    # -- sub-agents

    def register_subagent(
        self, session_id: str, parent_session_id: str, *, platform: str = "subagent", model: str = ""
    ) -> RelaySession | None:
        """Open the session of a sub-agent under the turn that spawned it (else under its parent session).

        None when an id is empty, both are the same, or the parent is unknown.
        """
        if not session_id or not parent_session_id or session_id == parent_session_id:
            return None
        parent = self.get_session(parent_session_id)
        if parent is None:
            return None
        turn = self.live_turn(parent)
        scope = turn.scope if turn is not None and turn.scope is not None else parent.scope
        return self._open_session(
            session_id, platform=platform, model=model, cwd=None, parent=parent, parent_scope=scope
        )

    def unregister_subagent(self, session_id: str) -> None:
        """Close the session of a sub-agent; anything else is left alone."""
        session = self.get_session(session_id)
        if session is not None and session.is_subagent:
            self.close_session(session_id)

    # -- operations and shutdown

    def begin_operation(self) -> bool:
        """Announce a managed call; False once shutdown has begun. Each True needs one `end_operation`."""
        with self._lock:
            if self._closing:
                return False
            self._operations += 1
            return True

    def end_operation(self) -> None:
        with self._lock:
            self._operations -= 1
            last = self._closing and self._operations == 0
        if last:
            threading.Thread(target=self._finish, name="relay-shutdown", daemon=True).start()

    def shutdown(self) -> None:
        """Refuse new work at once, then close sessions, flush and release plugins.

        Running operations are not waited for: the rest happens in the background when the last of them ends.
        """
        with self._lock:
            if self._closing:
                return
            self._closing = True
            busy = self._operations > 0
        if not busy:
            self._finish()

    def wait_closed(self, seconds: float) -> bool:
        """Wait for a shutdown that goes on in the background; False when it has not finished in time."""
        return self._finished.wait(seconds)

    def _finish(self) -> None:
        from adapters.coordinator import SESSION_COORDINATOR

        with self._lock:
            if self._finished.is_set():
                return
            sessions = list(self._sessions.values())
        for session in reversed(sessions):
            for turn in reversed(list(session.turns.values())):
                SESSION_COORDINATOR.end_turn(turn, outcome="cancelled")
            self._close_session(session.session_id)
        flush(self.relay)
        PLUGINS.leave(self.runtime_id, self.relay)
        atexit.unregister(self._at_exit)
        self._finished.set()

    def _at_exit(self) -> None:
        # Relay's native library now and then crashes the interpreter when it exits with events queued.
        with self._lock:
            self._closing = True
        self._finish()


def flush(relay: Any) -> None:
    """Wait, but not for ever, until Relay's subscribers have seen all that was emitted."""
    try:
        bounded(relay.subscribers.flush, seconds=FLUSH_TIMEOUT)
    except Exception as error:
        log.warning("Relay's subscribers were not flushed: %s", error)


class NoopRelayRuntime:
    """Stands in where Relay cannot run: nothing is managed, everything goes through unchanged."""

    is_real = False
    relay = None
    plugins_active = False

    def __init__(self, *, profile_key: str | None = None, reason: str = "") -> None:
        self.profile_key = profile_key or "default"
        self.profile = _profile(self.profile_key)
        self.reason = reason
        self.runtime_id = "noop"

    def retain_managed_execution(self, consumer: str) -> None:
        if not consumer or not consumer.strip():
            raise ValueError("consumer must be a non-empty name")

    def release_managed_execution(self, consumer: str) -> None:
        return None

    def managed_execution_enabled(self) -> bool:
        return False

    def add_session_initializer(self, initializer: SessionInitializer) -> None:
        return None

    def get_session(self, session_id: str) -> None:
        return None

    def ensure_session(self, session_id: str, *, platform: str = "", model: str = "", cwd: str | None = None) -> None:
        return None

    def run_in_session(self, session: RelaySession | str, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        return function(*args, **kwargs)

    async def run_in_session_async(
        self, session: RelaySession | str, function: Callable[..., Awaitable[T]], *args: Any, **kwargs: Any
    ) -> T:
        return await function(*args, **kwargs)

    def register_subagent(
        self, session_id: str, parent_session_id: str, *, platform: str = "subagent", model: str = ""
    ) -> None:
        return None

    def unregister_subagent(self, session_id: str) -> None:
        return None

    def emit_mark(self, session_id: str, name: str, data: Any = None, metadata: dict[str, Any] | None = None) -> bool:
        return False

    def close_session(self, session_id: str, *, output: dict[str, Any] | None = None) -> None:
        return None

    def shutdown(self) -> None:
        return None
