"""`turn`: a session and a turn in it for the body of a `with` block."""

from __future__ import annotations

import uuid
from types import TracebackType

from adapters import failures
from adapters.coordinator import SESSION_COORDINATOR
from adapters.sessions import RelayTurnContext


class turn:
    """Record what is called inside as one turn of a session: `with turn(session="s1"): ...`; also `async with`.

    Args:
        session: The session's id; the same id again is the next turn of that session. Without one, a session of its own
            that ends with the turn.
        turn_id: An id for the turn, made up when not given.
        profile: The profile's name or path; default: the process's own.
        parent: The id of the session whose live turn spawned this one, for a sub-agent.
        platform: Where the agent runs, as it shall be recorded.

    Gives the RelayTurnContext. The turn ends with its `outcome` where that was set, else with `success`, with
    `cancelled` when it is cancelled or interrupted, or with `failed` on any other exception. Where Relay cannot run,
    nothing is recorded and everything else works.
    """

    def __init__(
        self,
        session: str | None = None,
        *,
        turn_id: str | None = None,
        profile: str | None = None,
        parent: str = "",
        platform: str = "library",
        model: str = "",
        cwd: str | None = None,
    ) -> None:
        self._once = session is None
        self._session = session or f"session-{uuid.uuid4().hex}"
        self._turn_id = turn_id or f"turn-{uuid.uuid4().hex}"
        self._profile, self._parent, self._platform = profile, parent, platform
        self._model, self._cwd = model, cwd
        self._turn: RelayTurnContext | None = None

    def __enter__(self) -> RelayTurnContext:
        lease = SESSION_COORDINATOR.acquire_conversation(
            profile_key=self._profile,
            session_id=self._session,
            platform=self._platform,
            parent_session_id=self._parent,
            model=self._model,
            cwd=self._cwd,
        )
        lease.host.retain_managed_execution(f"turn:{self._turn_id}")
        self._turn = SESSION_COORDINATOR.begin_turn(lease, turn_id=self._turn_id, cwd=self._cwd)
        return self._turn

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        current, self._turn = self._turn, None
        if current is None:
            return
        outcome = current.outcome or ("success" if error is None else failures.outcome(error))
        SESSION_COORDINATOR.end_turn(current, outcome=outcome)
        current.lease.host.release_managed_execution(f"turn:{self._turn_id}")
        SESSION_COORDINATOR.release_conversation(current.lease)
        if self._once:
            SESSION_COORDINATOR.finalize_conversation(
                profile_key=current.lease.profile_key, session_id=current.lease.session_id
            )

    async def __aenter__(self) -> RelayTurnContext:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)


__all__ = ["turn"]
