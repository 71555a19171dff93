"""Which session, turn and logical call a request belongs to, and when each of them ends.

Everything here lives on one event loop. The scopes themselves are the core's; what could block (closing them) runs
in a thread of its own, in order.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import uuid
from collections import Counter
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from adapters import relay_llm
from adapters.relay_runtime import SESSION_COORDINATOR
from relayweb.gateway.conversation import Answer, Question
from relayweb.gateway.headers import Caller
from relayweb.gateway.state import Call, Memory, Patience, Resting, Session, Turn, TurnKey, cancel
from relayweb.gateway.tools import ToolScopes
from relayweb.recording.projection.joining import GATEWAY

if TYPE_CHECKING:
    from relayweb.gateway.sharing import Sharing

log = logging.getLogger(__name__)

CONSUMER = "relayweb.gateway"


class Registry:
    """All sessions, turns and calls the gateway has open."""

    def __init__(self, patience: Patience | None = None) -> None:
        self.patience = patience or Patience()
        self._sessions: dict[str, Session] = {}
        self._resting = Resting()
        self._turns: dict[TurnKey, Turn] = {}
        self.by_id: dict[tuple[str, str], Turn] = {}
        """Open turns by the ids of their session and their own, which are the same in all processes."""
        self.sharing: Sharing | None = None
        """Is told what happens, where there are other processes."""
        self._by_tool: dict[Hashable, Turn] = {}
        # What was seen leads later calls to their session (and turn): prefixes of conversations, ids of responses.
        self._by_prefix: Memory = Memory()
        self._by_response: Memory = Memory()
        self._thread = ThreadPoolExecutor(1, "relayweb-gateway-turns")
        self._endings: set[asyncio.Future[Any]] = set()
        self.losses: Counter[str] = Counter()
        """What went through without being recorded: `calls`, `streams` (in part), `chunks`."""

    async def recall(self, caller: Caller, question: Question, digest: bytes, tenant: Hashable, platform: str) -> None:
        """Before `begin`: learns what is known elsewhere of a request's conversation."""

    def begin(self, caller: Caller, question: Question, digest: bytes, tenant: Hashable, platform: str) -> Call:
        """Places a request: opens what is not open yet, and counts one more attempt.

        `digest` is of the request's bytes, `tenant` keeps conversations of different clients apart. Every begin needs
        one of `answered`, `failed` or `cancelled`.
        """
        key = self.key(caller, question, digest, tenant) or self._new_key(caller, question, digest, tenant)
        session = self._session(key[1], platform, question.model)
        for prefix in question.prefixes:
            self._by_prefix[tenant, prefix] = session.id
        turn = self._turn(session, key, caller.turn_id)
        finished = turn.tools.finish(question.tool_results)
        for id in question.tool_results:
            self._by_tool.pop((tenant, id), None)
        call = self._call(turn, caller, question, digest)
        cancel(turn)
        self._resting.pop(turn, None)
        cancel(call)
        call.attempts += 1
        call.running += 1
        if self.sharing is not None:
            results = {id: found for id, found in question.tool_results.items() if id not in finished}
            self.sharing.began(call, question, results)
        return call

    def answered(self, call: Call, answer: Answer, tenant: Hashable) -> None:
        """The first acceptable answer: it closes the call, and the turn unless that goes on."""
        turn = call.turn
        call.running -= 1
        if answer.response_id:
            self._by_response[tenant, answer.response_id] = (turn.session.id, turn.key[-1])
        turn.goes_on = answer.goes_on
        if self.sharing is not None:
            self.sharing.answered(turn, answer)
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
            self._leave(turn)
        for session in list(self._sessions.values()):
            self._finalize(session)
        if self._endings:
            await asyncio.wait(set(self._endings), timeout=10)
        self._thread.shutdown(wait=False)

    def counts(self) -> dict[str, int]:
        calls = sum(call.running for turn in self._turns.values() for call in turn.calls.values())
        return {"sessions": len(self._sessions), "turns": len(self._turns), "calls": calls}

    # -- finding and opening ---------------------------------------------------------------------------------------

    def key(self, caller: Caller, question: Question, digest: bytes, tenant: Hashable) -> TurnKey | None:
        """What is known of the turn a request belongs to; None where nothing was seen of its session."""
        known: tuple[str, str] | None = self._by_response.get((tenant, question.previous_response_id))
        by_tool = (self._by_tool.get((tenant, id)) for id in question.tool_results)
        waiting = next((turn for turn in by_tool if turn is not None and not turn.ended), None)
        session = caller.session_id or (known[0] if known else question.session_hint)
        if not session and waiting is not None:
            session = waiting.session.id
        for prefix in reversed(question.prefixes):
            session = session or self._by_prefix.get((tenant, prefix))
        if not session:
            return None
        if caller.turn_id:
            return tenant, session, f"named {caller.turn_id}"
        if waiting is not None and waiting.session.id == session:
            return waiting.key
        if known and not question.asks_anew:
            return tenant, session, known[1]
        return tenant, session, question.prefixes[-1] if question.prefixes else digest.hex()

    def _new_key(self, caller: Caller, question: Question, digest: bytes, tenant: Hashable) -> TurnKey:
        named = f"named {caller.turn_id}" if caller.turn_id else None
        key = named or (question.prefixes[-1] if question.prefixes else digest.hex())
        return tenant, f"conversation-{uuid.uuid4().hex[:12]}", key

    def _session(self, id: str, platform: str, model: str | None) -> Session:
        session = self._sessions.get(id)
        if session is None:
            lease = contextvars.Context().run(
                SESSION_COORDINATOR.acquire_conversation,
                profile_key=GATEWAY,
                session_id=id,
                platform=platform,
                model=model or "",
            )
            lease.host.retain_managed_execution(CONSUMER)
            session = self._sessions[id] = Session(id, lease)
        cancel(session)
        self._resting.pop(session, None)
        return session

    def open_turn(self, key: TurnKey | None) -> Turn | None:
        """The turn of this key, unless a call with it is another turn."""
        turn = self._turns.get(key) if key is not None else None
        return turn if turn is not None and not turn.is_over else None

    def _turn(self, session: Session, key: TurnKey, named: str | None) -> Turn:
        id = named or f"turn-{uuid.uuid4().hex[:12]}"
        return self.open_turn(key) or self._begin_turn(session, key, id, named is not None)

    def _begin_turn(self, session: Session, key: TurnKey, id: str, named: bool) -> Turn:
        relay = contextvars.Context().run(SESSION_COORDINATOR.begin_turn, session.lease, turn_id=id)
        turn = self._turns[key] = self.by_id[session.id, id] = Turn(id, key, session, relay, ToolScopes(relay), named)
        session.turns.add(turn)
        return turn

    def _call(self, turn: Turn, caller: Caller, question: Question, digest: bytes) -> Call:
        if caller.request_id:
            if call := turn.calls.get(caller.request_id) or turn.elsewhere.get(caller.request_id):
                return _here(call)
            call = Call(caller.request_id, turn, digest, question.asks, named=True)
        else:
            held = [c for c in turn.all_calls if c.digest == digest and not c.running and not c.named]
            if held and caller.retry_count != 0:
                return _here(next((c for c in held if c.attempts == caller.retry_count), held[-1]))
            for call in held:  # the SDK gave up and the application asks again: that is another call
                self._close(call, "failed", quietly=True)
            if not held and (call := self._fallen_back(turn, caller, question)):
                call.digest = digest
                return _here(call)
            call = Call(f"call-{uuid.uuid4().hex[:16]}", turn, digest, question.asks, named=False)
        turn.calls[call.id] = call
        return call

    @staticmethod
    def _fallen_back(turn: Turn, caller: Caller, question: Question) -> Call | None:
        """The failed call whose question this request asks another model; a stated fallback may change its form."""
        stated = caller.call_role == "fallback"
        which = 0 if stated else 1
        for call in reversed(turn.all_calls):
            held = call.attempts and not call.running and (stated or not call.named)
            if held and call.asks and question.asks and call.asks[which] == question.asks[which]:
                return call
        return None

    # -- closing ---------------------------------------------------------------------------------------------------

    def _hold(self, call: Call, outcome: str, seconds: float) -> None:
        if call.running or call.closed:
            return
        call.outcome, call.over_at = outcome, datetime.now(UTC)
        if seconds <= 0:
            self._close(call, outcome)
        else:
            call.timer = asyncio.get_running_loop().call_later(seconds, self._close, call, outcome)
            if self.sharing is not None:
                self.sharing.over(call, outcome, call.over_at, closed=False)

    def _close(self, call: Call, outcome: str, quietly: bool = False, told: bool = False) -> None:
        """`told` by another process, where its last attempt was over at `over_at`."""
        cancel(call)
        turn = call.turn
        if call.closed:
            return
        call.closed = True
        for calls in (turn.calls, turn.elsewhere):
            if calls.get(call.id) is call:
                del calls[call.id]
        ended_at = None if outcome == "success" and not told else call.over_at
        with turn.relay.activate():
            relay_llm.complete_logical_call(call.id, outcome=outcome, ended_at=ended_at)
        over_at = ended_at or datetime.now(UTC)
        if (
            turn.over_at is None or over_at >= turn.over_at
        ):  # a call that was given up late does not undo a later answer
            turn.over_at, turn.outcome = over_at, outcome
            if outcome != "success":
                turn.goes_on = False
        if self.sharing is not None and not told:
            self.sharing.over(call, outcome, over_at, closed=True)
        if not quietly:
            self._settle(turn)

    def _settle(self, turn: Turn, told: bool = False) -> None:
        """Ends a turn, or says how long it may stay without a call."""
        cancel(turn)
        if turn.ended or turn.calls:
            return
        wait = self.patience.idle if turn.goes_on else self.patience.named if turn.named else 0.0
        if turn.outcome in ("failed", "blocked"):
            wait = self.patience.failed
        if turn.elsewhere:
            wait = self.patience.elsewhere
        if wait > 0:
            turn.timer = asyncio.get_running_loop().call_later(wait, self._end, turn, True)
            self._rest(turn)
        else:
            self._end(turn, told)

    def _leave(self, turn: Turn) -> None:
        """This process stops."""
        if any(call.running for call in turn.calls.values()):
            turn.outcome = "cancelled"
        self._end(turn)

    def _end(self, turn: Turn, waited: bool = False) -> None:
        """Closes a turn. What was waited for in vain is not part of its time."""
        if turn.ended:
            return
        for id in turn.tools.abandon():
            self._by_tool.pop((turn.key[0], id), None)
        if self._turns.get(turn.key) is turn and self.sharing is not None:
            self.sharing.ended(turn)
        self._forget(turn)
        ended_at = turn.over_at if waited else None
        self._in_thread(SESSION_COORDINATOR.end_turn, turn.relay, outcome=turn.outcome, ended_at=ended_at)

    def _forget(self, turn: Turn) -> None:
        cancel(turn)
        self._resting.pop(turn, None)
        turn.ended = True
        for call in turn.all_calls:
            cancel(call)
            call.closed = True
        turn.calls.clear()
        turn.elsewhere.clear()
        if self._turns.get(turn.key) is turn:
            del self._turns[turn.key]
        if self.by_id.get((turn.session.id, turn.id)) is turn:
            del self.by_id[turn.session.id, turn.id]
        session = turn.session
        session.turns.discard(turn)
        if not session.turns:
            cancel(session)
            session.timer = asyncio.get_running_loop().call_later(self.patience.session, self._finalize, session)
            self._rest(session)

    def _rest(self, holder: Session | Turn) -> None:
        """Of too many that wait for a call, the one that has waited longest is closed before its time."""
        oldest = self._resting.add(holder)
        if isinstance(oldest, Turn):
            self._end(oldest, True)
        elif oldest is not None:
            self._finalize(oldest)

    def _finalize(self, session: Session) -> None:
        cancel(session)
        self._resting.pop(session, None)
        if session.turns:
            return
        if self._sessions.get(session.id) is session:
            del self._sessions[session.id]
        SESSION_COORDINATOR.release_conversation(session.lease)
        self._in_thread(SESSION_COORDINATOR.finalize_conversation, profile_key=GATEWAY, session_id=session.id)

    def _in_thread(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        def work() -> None:
            try:
                function(*args, **kwargs)
            except Exception:
                log.exception("closing a scope of the gateway failed")

        self._until_closed(asyncio.get_running_loop().run_in_executor(self._thread, work))

    def _until_closed(self, ending: asyncio.Future[Any]) -> None:
        self._endings.add(ending)
        ending.add_done_callback(self._endings.discard)


def _here(call: Call) -> Call:
    """A call of this process, whoever had it before."""
    if call.turn.elsewhere.pop(call.id, None) is not None:
        call.running = 0
        call.turn.calls[call.id] = call
    return call
