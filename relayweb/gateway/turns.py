"""Which session, turn and logical call a request belongs to, and when each of them ends.

Everything here lives on one event loop. The scopes themselves are the core's; what could block (closing them) runs
in a thread of its own, in order.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import uuid
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from adapters import relay_llm, relay_runtime
from adapters.relay_runtime import SESSION_COORDINATOR
from relayweb import conf
from relayweb.gateway.conversation import Answer, Question
from relayweb.gateway.headers import Caller
from relayweb.gateway.tools import ToolScopes

log = logging.getLogger(__name__)

CONSUMER = "relayweb.gateway"
PROFILE = "gateway"
_REMEMBERED = 10_000


TurnKey = tuple[Hashable, str, Hashable]
"""Whose turn (tenant), its session's id, and what tells it from the session's other turns."""


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds to wait for what may still come."""

    retry: float = conf.RETRY_WINDOW
    """A failed call for its retry."""
    hangup: float = 10.0
    """A call whose client hung up before an answer began, for the retry of an SDK that ran out of time."""
    idle: float = 120.0
    """A turn whose tools run, for the call with their results."""
    failed: float = 5.0
    """A turn whose last call failed for good, for an agent that tries something else."""
    named: float = 3.0
    """A turn that the client named, for its next call: only the client knows when it is over."""
    session: float = 600.0
    """A session without a turn, before it is closed; a later call opens it again."""


@dataclass(eq=False)
class Session:
    id: str
    lease: relay_runtime.ConversationLease
    turns: set[Turn] = field(default_factory=set)
    timer: asyncio.TimerHandle | None = None


@dataclass(eq=False)
class Turn:
    """An open turn: the core's own, its calls that are not closed, its tools that run."""

    key: TurnKey
    session: Session
    relay: relay_runtime.RelayTurnContext
    tools: ToolScopes
    named: bool
    calls: dict[str, Call] = field(default_factory=dict)
    goes_on: bool = False
    outcome: str = "success"
    ended: bool = False
    over_at: datetime | None = None
    """When its last closed call was over: its end, should nothing more come."""
    timer: asyncio.TimerHandle | None = None

    @property
    def is_over(self) -> bool:
        """Whether a call with the same key is another turn: all was said, only the closing is not done."""
        said_all = all(call.final for call in self.calls.values()) and not self.goes_on
        return self.ended or (bool(self.calls) and said_all and not self.named)


@dataclass(eq=False)
class Call:
    """A logical call: attempts of one wanted answer. `final` from when its last bytes say that no tool will follow."""

    id: str
    turn: Turn
    digest: bytes
    asks: tuple[Any, ...]
    named: bool
    attempts: int = 0
    running: int = 0
    final: bool = False
    closed: bool = False
    over_at: datetime | None = None
    """When its last attempt was over: its end, should no retry come."""
    timer: asyncio.TimerHandle | None = None

    @property
    def retry_count(self) -> int:
        return self.attempts - 1


class Registry:
    """All sessions, turns and calls the gateway has open."""

    def __init__(self, patience: Patience | None = None) -> None:
        self.patience = patience or Patience()
        self._sessions: dict[str, Session] = {}
        self._turns: dict[TurnKey, Turn] = {}
        self._by_tool: dict[Hashable, Turn] = {}
        # What was seen leads later calls to their session (and turn): prefixes of conversations, ids of responses.
        self._by_prefix: _Memory = _Memory()
        self._by_response: _Memory = _Memory()
        self._thread = ThreadPoolExecutor(1, "relayweb-gateway-turns")
        self._endings: set[asyncio.Future[Any]] = set()
        self.losses: Counter[str] = Counter()
        """What went through without being recorded: `calls`, `streams` (in part), `chunks`."""

    def begin(self, caller: Caller, question: Question, digest: bytes, tenant: Hashable, platform: str) -> Call:
        """Places a request: opens what is not open yet, and counts one more attempt.

        `digest` is of the request's bytes, `tenant` keeps conversations of different clients apart. Every begin needs
        one of `answered`, `failed` or `cancelled`.
        """
        known: tuple[str, Hashable] | None = self._by_response.get((tenant, question.previous_response_id))
        waiting = next((t for i in question.tool_results if (t := self._by_tool.get((tenant, i)))), None)
        session = self._session(self._session_id(caller, question, tenant, known, waiting), platform, question.model)
        key = self._turn_key(caller, question, digest, known)
        if waiting is not None and waiting.session is session and not caller.turn_id:
            key = waiting.key[-1]
        for prefix in question.prefixes:
            self._by_prefix[tenant, prefix] = session.id
        turn = self._turn(session, (tenant, session.id, key), caller.turn_id)
        for id in turn.tools.finish(question.tool_results):
            self._by_tool.pop((tenant, id), None)
        call = self._call(turn, caller, question, digest)
        _cancel(turn)
        _cancel(call)
        call.attempts += 1
        call.running += 1
        return call

    def answered(self, call: Call, answer: Answer, tenant: Hashable) -> None:
        """The first acceptable answer: it closes the call, and the turn unless that goes on."""
        turn = call.turn
        call.running -= 1
        if answer.response_id:
            self._by_response[tenant, answer.response_id] = (turn.session.id, turn.key[-1])
        turn.goes_on = answer.goes_on
        self._close(call, "success", quietly=True)
        if not turn.ended:
            for tool in answer.tool_calls:
                if turn.tools.start(tool, turn.over_at):
                    self._by_tool[tenant, tool.id] = turn
        self._settle(turn)

    def failed(self, call: Call, *, retryable: bool, outcome: str = "failed") -> None:
        """An attempt failed, or was `blocked`; a call that may be retried stays open for the next one."""
        call.running -= 1
        self._hold(call, outcome, self.patience.retry if retryable or call.named else 0.0)

    def cancelled(self, call: Call, *, retryable: bool) -> None:
        """The client hung up; some SDKs do so when their time is up, and try again."""
        call.running -= 1
        self._hold(call, "cancelled", self.patience.hangup if retryable or call.named else 0.0)

    async def close(self) -> None:
        """Ends everything that is open, as cancelled where a call still runs."""
        for turn in list(self._turns.values()):
            if any(call.running for call in turn.calls.values()):
                turn.outcome = "cancelled"
            self._end(turn)
        for session in list(self._sessions.values()):
            self._finalize(session)
        if self._endings:
            await asyncio.wait(set(self._endings), timeout=10)
        self._thread.shutdown(wait=False)

    def counts(self) -> dict[str, int]:
        calls = sum(call.running for turn in self._turns.values() for call in turn.calls.values())
        return {"sessions": len(self._sessions), "turns": len(self._turns), "calls": calls}

    # -- finding and opening ---------------------------------------------------------------------------------------

    def _session_id(
        self,
        caller: Caller,
        question: Question,
        tenant: Hashable,
        known: tuple[str, Hashable] | None,
        waiting: Turn | None,
    ) -> str:
        if caller.session_id:
            return caller.session_id
        if known:
            return known[0]
        if question.session_hint:
            return question.session_hint
        if waiting is not None:
            return waiting.session.id
        for prefix in reversed(question.prefixes):
            if found := self._by_prefix.get((tenant, prefix)):
                return str(found)
        return f"conversation-{uuid.uuid4().hex[:12]}"

    @staticmethod
    def _turn_key(caller: Caller, question: Question, digest: bytes, known: tuple[str, Hashable] | None) -> Hashable:
        if caller.turn_id:
            return ("named", caller.turn_id)
        if known and not question.asks_anew:
            return known[1]
        return question.prefixes[-1] if question.prefixes else digest

    def _session(self, id: str, platform: str, model: str | None) -> Session:
        session = self._sessions.get(id)
        if session is None:
            lease = contextvars.Context().run(
                SESSION_COORDINATOR.acquire_conversation,
                profile_key=PROFILE,
                session_id=id,
                platform=platform,
                model=model or "",
            )
            lease.host.retain_managed_execution(CONSUMER)
            session = self._sessions[id] = Session(id, lease)
        _cancel(session)
        return session

    def _turn(self, session: Session, key: TurnKey, named: str | None) -> Turn:
        turn = self._turns.get(key)
        if turn is not None and not turn.is_over:
            return turn
        relay = contextvars.Context().run(
            SESSION_COORDINATOR.begin_turn, session.lease, turn_id=named or f"turn-{uuid.uuid4().hex[:12]}"
        )
        turn = self._turns[key] = Turn(key, session, relay, ToolScopes(relay), named is not None)
        session.turns.add(turn)
        return turn

    def _call(self, turn: Turn, caller: Caller, question: Question, digest: bytes) -> Call:
        if caller.request_id:
            if call := turn.calls.get(caller.request_id):
                return call
            call = Call(caller.request_id, turn, digest, question.asks, named=True)
        else:
            held = [c for c in turn.calls.values() if c.digest == digest and not c.running and not c.named]
            if held and caller.retry_count != 0:
                return next((c for c in held if c.attempts == caller.retry_count), held[-1])
            for call in held:  # the SDK gave up and the application asks again: that is another call
                self._close(call, "failed", quietly=True)
            if not held and (call := self._fallen_back(turn, caller, question)):
                call.digest = digest
                return call
            call = Call(f"call-{uuid.uuid4().hex[:16]}", turn, digest, question.asks, named=False)
        turn.calls[call.id] = call
        return call

    @staticmethod
    def _fallen_back(turn: Turn, caller: Caller, question: Question) -> Call | None:
        """The failed call whose question this request asks another model; a stated fallback may change its form."""
        stated = caller.call_role == "fallback"
        alike = 2 if stated else None
        for call in reversed(turn.calls.values()):
            held = call.attempts and not call.running and (stated or not call.named)
            if held and call.asks and call.asks[:alike] == question.asks[:alike]:
                return call
        return None

    # -- closing ---------------------------------------------------------------------------------------------------

    def _hold(self, call: Call, outcome: str, seconds: float) -> None:
        if call.running or call.closed:
            return
        call.over_at = datetime.now(UTC)
        if seconds <= 0:
            self._close(call, outcome)
        else:
            call.timer = asyncio.get_running_loop().call_later(seconds, self._close, call, outcome)

    def _close(self, call: Call, outcome: str, quietly: bool = False) -> None:
        _cancel(call)
        turn = call.turn
        if call.closed:
            return
        call.closed = True
        if turn.calls.get(call.id) is call:
            del turn.calls[call.id]
        ended_at = None if outcome == "success" else call.over_at
        with turn.relay.activate():
            relay_llm.complete_logical_call(call.id, outcome=outcome, ended_at=ended_at)
        over_at = ended_at or datetime.now(UTC)
        if (
            turn.over_at is None or over_at >= turn.over_at
        ):  # a call that was given up late does not undo a later answer
            turn.over_at, turn.outcome = over_at, outcome
            if outcome != "success":
                turn.goes_on = False
        if not quietly:
            self._settle(turn)

    def _settle(self, turn: Turn) -> None:
        """Ends a turn, or says how long it may stay without a call."""
        _cancel(turn)
        if turn.ended or turn.calls:
            return
        wait = self.patience.idle if turn.goes_on else self.patience.named if turn.named else 0.0
        if turn.outcome in ("failed", "blocked"):
            wait = self.patience.failed
        if wait > 0:
            turn.timer = asyncio.get_running_loop().call_later(wait, self._end, turn, True)
        else:
            self._end(turn)

    def _end(self, turn: Turn, waited: bool = False) -> None:
        """Closes a turn. What was waited for in vain is not part of its time."""
        _cancel(turn)
        if turn.ended:
            return
        turn.ended = True
        for call in turn.calls.values():
            _cancel(call)
            call.closed = True
        turn.calls.clear()
        ended_at = turn.over_at if waited else None
        for id in turn.tools.abandon():
            self._by_tool.pop((turn.key[0], id), None)
        if self._turns.get(turn.key) is turn:
            del self._turns[turn.key]
        self._in_thread(SESSION_COORDINATOR.end_turn, turn.relay, outcome=turn.outcome, ended_at=ended_at)
        session = turn.session
        session.turns.discard(turn)
        if not session.turns:
            _cancel(session)
            session.timer = asyncio.get_running_loop().call_later(self.patience.session, self._finalize, session)

    def _finalize(self, session: Session) -> None:
        _cancel(session)
        if session.turns:
            return
        if self._sessions.get(session.id) is session:
            del self._sessions[session.id]
        SESSION_COORDINATOR.release_conversation(session.lease)
        self._in_thread(SESSION_COORDINATOR.finalize_conversation, profile_key=PROFILE, session_id=session.id)

    def _in_thread(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        def work() -> None:
            try:
                function(*args, **kwargs)
            except Exception:
                log.exception("closing a scope of the gateway failed")

        ending = asyncio.get_running_loop().run_in_executor(self._thread, work)
        self._endings.add(ending)
        ending.add_done_callback(self._endings.discard)


def _cancel(holder: Session | Turn | Call) -> None:
    if holder.timer is not None:
        holder.timer.cancel()
        holder.timer = None


class _Memory(OrderedDict[Hashable, Any]):
    """The newest things remembered."""

    def __setitem__(self, key: Hashable, value: Any) -> None:
        super().__setitem__(key, value)
        self.move_to_end(key)
        if len(self) > _REMEMBERED:
            self.popitem(last=False)
