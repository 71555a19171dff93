"""Turns that go on in several processes: what others have seen of them, and what those that stop leave of theirs."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from typing import TYPE_CHECKING

from adapters.relay_runtime import SESSION_COORDINATOR
from adapters.sessions import PRIMARY
from relayweb import shared
from relayweb.gateway.conversation import Question
from relayweb.gateway.headers import Caller
from relayweb.gateway.state import Call, Patience, Turn, cancel
from relayweb.gateway.turns import Registry
from relayweb.gateway.words import Away, Began, Lead, Leaving, Left, Open, Word

if TYPE_CHECKING:
    from relayweb.gateway.sharing import Sharing

_ON_ITS_WAY = 0.03


class SharedRegistry(Registry):
    """Turns of one event loop, of which others may have the same open. `sharing` is set before the first call."""

    def __init__(self, patience: Patience | None = None) -> None:
        super().__init__(patience)
        # What is told of a turn while it is not known yet who inherits it.
        self._inheriting: dict[tuple[str, str], list[Word]] = {}
        self._closing = False

    async def recall(self, caller: Caller, question: Question, digest: bytes, tenant: Hashable, platform: str) -> None:
        """Before `begin`: learns what other processes have seen of a conversation, where its turn is not known here.

        Takes a moment at most, and nothing where the turn is open here.
        """
        if self.sharing is None or shared.health.resting:
            return
        try:
            found = await self._recall(self.sharing, caller, question, digest, tenant, platform)
            if not found and not question.asks_anew:  # what leads to its turn may be on its way still
                await asyncio.sleep(_ON_ITS_WAY)
                await self._recall(self.sharing, caller, question, digest, tenant, platform)
        except Away:
            pass

    async def _recall(
        self, sharing: Sharing, caller: Caller, question: Question, digest: bytes, tenant: Hashable, platform: str
    ) -> bool:
        key = self.key(caller, question, digest, tenant)
        tools: dict[str, Lead] = {}
        if key is None or (question.tool_results and self.open_turn(key) is None):
            response, tools, prefixes = await sharing.leads(question, tenant)
            if response is not None:
                self._by_response[tenant, question.previous_response_id] = response.session, response.key
            for prefix, session in prefixes.items():
                self._by_prefix.setdefault((tenant, prefix), session)
            key = self.key(caller, question, digest, tenant)
            if not caller.turn_id:
                lead = next((lead for lead in tools.values() if key is None or lead.session == key[1]), None)
                key = (tenant, lead.session, lead.key) if lead else key
        if key is None:
            return False
        if self.open_turn(key) is not None:
            return True
        place = await sharing.place(key)
        left = await sharing.inherit(key[1], place.turn) if place is not None and place.left else None
        if left is not None:
            self._take_up(left)
        if place is None or (key[1], place.turn) in self.by_id or self.open_turn(key) is not None:
            return place is not None
        turn = self._begin_turn(self._session(key[1], platform, question.model), key, place.turn, place.named)
        turn.shared, turn.goes_on = True, place.goes_on
        for call in place.calls:
            self._elsewhere(turn, call)
        self._by_tool |= {(tenant, id): turn for id, lead in tools.items() if (lead.session, lead.key) == key[1:]}
        turn.timer = asyncio.get_running_loop().call_later(self.patience.idle, self._end, turn, True)
        return True

    def hear(self, word: Word) -> None:
        """What another process tells of a turn, which may be open here, too."""
        where = word.session, word.turn
        if isinstance(word, Leaving):
            if where not in self._inheriting and not self._closing:
                self._inheriting[where] = []
                self._until_closed(asyncio.ensure_future(self._inherit(where)))
            return
        if where in self._inheriting:
            self._inheriting[where].append(word)
            return
        turn = self.by_id.get(where)
        if turn is None or turn.ended:
            return
        turn.shared = True
        if isinstance(word, Began):
            for id in turn.tools.finish(word.results):
                self._by_tool.pop((turn.key[0], id), None)
            self._elsewhere(turn, word.call)
        else:
            call = turn.elsewhere.get(word.call) or turn.calls.get(word.call)
            if call is None or (call.id in turn.calls and call.running):
                return
            call.running = 0
            call.over_at = word.at
            if word.closed:
                self._close(call, word.outcome, quietly=True, told=True)
                if turn.over_at == word.at:
                    turn.goes_on = word.goes_on
        self._settle(turn, told=True)

    # -- what those leave that stop -------------------------------------------------------------------------------

    async def close(self) -> None:
        self._closing = True
        if self._endings:  # what is being inherited now is left once more
            await asyncio.wait(set(self._endings), timeout=1)
        await super().close()

    def _leave(self, turn: Turn) -> None:
        """Leaves a turn open that waits: for results of tools, for a retry, or for a call in another process."""
        if self.sharing is None or shared.health.error or any(call.running for call in turn.calls.values()):
            super()._leave(turn)
            return
        self.sharing.left(turn, _estate(turn))
        self._forget(turn)
        self._in_thread(SESSION_COORDINATOR.leave_turn_open, turn.relay)

    async def _inherit(self, where: tuple[str, str]) -> None:
        left = None
        try:
            if self.sharing is not None:
                left = await self.sharing.inherit(*where)
        except Away:
            pass
        finally:
            words = self._inheriting.pop(where)
        if left is not None:
            self._take_up(left)
        for word in words:
            self.hear(word)

    def _take_up(self, left: Left) -> None:
        """From here on this process waits in place of the one that stopped."""
        tenant = tuple(left.tenant) if isinstance(left.tenant, list) else left.tenant
        turn = self.by_id.get((left.session, left.turn))
        if turn is None:
            session = self._session(left.session, left.platform, left.model)
            turn = self._begin_turn(session, (tenant, left.session, left.key), left.turn, left.named)
            for call in left.elsewhere:
                self._elsewhere(turn, call)
        turn.shared = True
        if left.over_at is not None and (turn.over_at is None or left.over_at >= turn.over_at):
            turn.over_at, turn.outcome, turn.goes_on = left.over_at, left.outcome, left.goes_on
        turn.tools.inherit(left.tools)
        self._by_tool |= {(tenant, tool.id): turn for tool in left.tools}
        for there in left.calls:
            self._hold_on(turn, there)
        self._settle(turn)

    def _hold_on(self, turn: Turn, there: Open) -> None:
        """Waits for the retry of a call that failed in the process that stopped, unless it was retried since."""
        known = turn.calls.get(there.id) or turn.elsewhere.get(there.id)
        if known is not None and (known.id in turn.calls or known.running):
            return
        self._elsewhere(turn, there)
        call = turn.calls[there.id] = turn.elsewhere.pop(there.id)
        turn.relay.logical_call(call.id, PRIMARY)  # so that its end is told
        self._hold(call, there.outcome, self.patience.hangup if there.outcome == "cancelled" else self.patience.retry)
        call.over_at = there.over_at

    @staticmethod
    def _elsewhere(turn: Turn, there: Open) -> None:
        """Another process has this call now, unless attempts of it also run here."""
        call = turn.calls.get(there.id) or turn.elsewhere.get(there.id)
        if call is None:
            call = Call(there.id, turn, there.digest, there.asks, there.named)
        elif call.id in turn.calls and call.running:
            return
        cancel(call)
        turn.calls.pop(call.id, None)
        turn.elsewhere[call.id] = call
        call.attempts, call.running = max(call.attempts, there.attempts), int(there.running)


def _estate(turn: Turn) -> Left:
    tenant, session, key = turn.key
    lease = turn.session.lease
    return Left(
        session,
        lease.platform,
        lease.model,
        tenant,
        key,
        turn.id,
        turn.named,
        turn.goes_on,
        turn.outcome,
        turn.over_at,
        [call.told for call in turn.calls.values()],
        [call.told for call in turn.elsewhere.values()],
        turn.tools.running,
    )
