"""Sessions, turns and logical calls as values: what is open, under which scope, and how it ends."""

from __future__ import annotations

import contextvars
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from adapters.marks import RUNTIME_SCHEMA_KEY as RUNTIME_SCHEMA_KEY
from adapters.scopes import Scope

if TYPE_CHECKING:
    from adapters.runtime_host import NoopRelayRuntime, RelayRuntime

log = logging.getLogger("adapters")

SESSION_SCOPE = "relay.session"
TURN_SCOPE = "relay.turn"
LOGICAL_LLM_SCOPE = "relay.logical_llm_call"
RUNTIME_SCHEMA_VERSION = "relay.runtime.v1"
RUNTIME_INSTANCE_KEY = "relay.runtime_instance"
EXECUTION_SURFACE_KEY = "relay.execution_surface"
CALL_ROLE_KEY = "relay.call_role"
PROVIDER_KEY = "relay.provider"
SCOPE_ROLE_KEY = "nemo_relay_scope_role"
PRIMARY = "primary"

_PROFILE: contextvars.ContextVar[str | None] = contextvars.ContextVar("relay_profile", default=None)
_TURN: contextvars.ContextVar[RelayTurnContext | None] = contextvars.ContextVar("relay_turn", default=None)


@dataclass(eq=False)
class RelaySession:
    """One session scope of one runtime. `turns` holds its live turns by id."""

    host: RelayRuntime
    session_id: str
    scope: Scope
    metadata: dict[str, Any]
    parent: RelaySession | None = None
    turns: dict[str, RelayTurnContext] = field(default_factory=dict)
    closed: bool = False
    close_wanted: bool = False
    is_subagent: bool = False

    @property
    def handle(self) -> Any:
        return self.scope.handle


@dataclass(eq=False)
class LogicalCall:
    """One wanted answer: the scope that groups its attempts, and what is known about it besides its outcome."""

    api_request_id: str
    scope: Scope
    attempts: int = 0
    output: dict[str, Any] = field(default_factory=dict)
    closed: bool = False


@dataclass(eq=False)
class ConversationLease:
    """The right to begin turns in a session. Releasing it leaves the session open."""

    profile_key: str
    session_id: str
    platform: str
    host: RelayRuntime | NoopRelayRuntime
    session: RelaySession | None
    model: str = ""
    released: bool = False


@dataclass(eq=False)
class RelayTurnContext:
    """One user request and all that it causes. Without a real runtime it has no scope and records nothing."""

    lease: ConversationLease
    turn_id: str
    task_id: str = ""
    scope: Scope | None = None
    previous: RelayTurnContext | None = None
    closed: bool = False
    outcome: str | None = None
    calls: dict[str, LogicalCall] = field(default_factory=dict)
    # Turn end takes `finalize_lock`, then `logical_lock`; so does the creation of a logical call.
    finalize_lock: threading.RLock = field(default_factory=threading.RLock)
    logical_lock: threading.RLock = field(default_factory=threading.RLock)

    @property
    def logical_llm_calls(self) -> dict[str, Any]:
        """Relay's handles of the logical calls still open, by api_request_id, oldest first."""
        return {key: call.scope.handle for key, call in list(self.calls.items())}

    @property
    def handle(self) -> Any:
        return self.scope.handle if self.scope else None

    @property
    def failed_to_open(self) -> bool:
        """Whether it is live and it or its session has no scope, because Relay could not run or failed to open one."""
        lease = self.lease
        lacks = self.scope is None or lease.session is None
        return lacks and bool(lease.session_id) and not self.closed and not lease.released

    def is_active(self, session_id: str | None = None, profile_key: str | None = None) -> bool:
        """Whether calls may still be recorded under this turn (of that session, of that profile, if asked for)."""
        lease = self.lease
        session = lease.session
        if self.scope is None or session is None or self.closed or lease.released:
            return False
        if session_id is not None and session_id != lease.session_id:
            return False
        if profile_key is not None and profile_key != lease.profile_key:
            return False
        return lease.host.get_session(lease.session_id) is session

    @contextmanager
    def activate(self) -> Iterator[RelayTurnContext]:
        """Make this the current turn for the body of a `with` block, in whatever thread or task it runs."""
        token = _TURN.set(self)
        try:
            yield self
        finally:
            _TURN.reset(token)

    def logical_call(self, api_request_id: str, call_role: str) -> LogicalCall | None:
        """The open logical call of that id, opened when there is none; None once the turn is closed."""
        lease = self.lease
        with self.finalize_lock, self.logical_lock:
            if not self.is_active() or self.scope is None or lease.session is None:
                return None
            call = self.calls.get(api_request_id)
            if call is None:
                scope = Scope(
                    self.scope.relay,
                    LOGICAL_LLM_SCOPE,
                    self.scope.relay.ScopeType.Function,
                    parent=self.scope,
                    metadata={
                        **lease.session.host.identity,
                        CALL_ROLE_KEY: call_role or PRIMARY,
                        "api_request_id": api_request_id,
                        "session_id": lease.session_id,
                        "turn_id": self.turn_id,
                    },
                    input={},
                )
                call = self.calls[api_request_id] = LogicalCall(api_request_id, scope)
            return call

    def complete(
        self, call: LogicalCall, outcome: str, *, bounded: bool = False, ended_at: datetime | None = None
    ) -> bool:
        """Close a logical call once. When Relay will not close it, it stays in the table and turn end tries again."""
        with self.logical_lock:
            if self.calls.get(call.api_request_id) is not call:
                return False
            output = {**call.output, "outcome": outcome}
            try:
                if bounded:
                    if not call.scope.drain(output, ended_at):
                        return False
                else:
                    call.scope.close(output, ended_at=ended_at)
            except Exception as error:
                log.warning("logical call %s did not close: %s", call.api_request_id, error)
                return False
            call.closed = True
            del self.calls[call.api_request_id]
            return True

    def complete_remaining(self, outcome: str) -> None:
        """Close what is still open, newest first; from the first that will not close on, all are kept for diagnosis."""
        with self.logical_lock:
            for call in reversed(list(self.calls.values())):
                if not self.complete(call, outcome, bounded=True):
                    return


def current_turn() -> RelayTurnContext | None:
    """The turn this context was started in, live or not."""
    return _TURN.get()


def active_turn(session_id: str | None = None) -> RelayTurnContext | None:
    """The turn this context runs in, if calls may still be recorded under it (and it is one of `session_id`)."""
    turn = _TURN.get()
    return turn if turn is not None and turn.is_active(session_id, _PROFILE.get()) else None


def enter_turn(turn: RelayTurnContext) -> None:
    """Make `turn` the current one of this context, above the live one that was."""
    turn.previous = _live(_TURN.get(), turn)
    _TURN.set(turn)


def leave_turn(turn: RelayTurnContext) -> None:
    """Restore the nearest live turn that came before `turn`, unless this context has moved on to another one."""
    if _TURN.get() is not turn:
        return
    _TURN.set(_live(turn.previous, turn))


def _live(turn: RelayTurnContext | None, above: RelayTurnContext) -> RelayTurnContext | None:
    """`turn`, or the first one below it that is not closed; a chain that comes back to where it was ends."""
    seen = {id(above)}
    while turn is not None and turn.closed and id(turn) not in seen:
        seen.add(id(turn))
        turn = turn.previous
    return turn if turn is not None and not turn.closed else None
