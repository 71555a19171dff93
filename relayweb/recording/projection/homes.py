"""What turns, sessions and sub-agents show of what is inside them: session ids, life signs, roles and errors."""

from __future__ import annotations

import uuid as uuids
from typing import Any

from relayweb.recording.conventions import ErrorFacts
from relayweb.recording.projection import joining
from relayweb.recording.projection.memory import Memory
from relayweb.recording.projection.nodes import FLAG, INNER, Home, Node, set_error, show_sums, told_at
from relayweb.recording.store.tables import Tables

BY_PLACE = 1 << 20  # a hidden flag: where this agent hangs decides its role
HOME_ROLES = frozenset(("session", "turn", "subagent"))
_COARSE_US = 1_000_000  # around a turn it is enough to know to the second that something came in
_HOMES_DEEP = 1_000


class Homes(Memory):
    """Scopes that count others, and what these tell them."""

    def __init__(self, tables: Tables) -> None:
        super().__init__(tables)
        self._homes: dict[bytes, Node] = {}
        """Those whose rows this batch may change."""
        self._told: list[tuple[Node, int, str]] = []
        self._untold: dict[bytes, Node] = {}
        """Scopes whose homes may show a session that nothing inside tells any more."""
        self._touched: dict[bytes, tuple[Node, int, int]] = {}

    def clear(self) -> None:
        super().clear()
        self._homes, self._told, self._untold, self._touched = {}, [], {}, {}

    # Life signs

    def touch(self, node: Node, seq: int, at_us: int, arrived_us: int) -> None:
        """An event of this scope came in: it, its parent and its turn were alive then."""
        node.last_us = max(node.last_us, at_us)
        before = self._touched.get(node.uuid)
        if before is not None:
            seq, arrived_us = max(seq, before[1]), max(arrived_us, before[2])
        self._touched[node.uuid] = (node, seq, arrived_us)

    def _touch_homes_of(self) -> None:
        for node, seq, arrived_us in list(self._touched.values()):
            self._touch_around(node, seq, arrived_us)

    def _touch_around(self, node: Node, seq: int, arrived_us: int) -> None:
        parent, home = self._linked_parent(node), self.find(node.turn_uuid)
        for each in (node, parent, home):
            if each is not None:
                each.seq = max(each.seq, seq)
                each.arrived_us = max(each.arrived_us, arrived_us)
                self._dirty[each.uuid] = each
                if each.status == "interrupted" and each.end_seq is None:
                    each.status = "running"
        self._touch_homes(node, home, seq, arrived_us)
        if node.is_home and node.joined_uuid is not None:  # counted elsewhere than it hangs
            self._touch_homes(node, self.find(node.parent_turn_uuid), seq, arrived_us)

    def _touch_homes(self, below: Node, home: Node | None, seq: int, arrived_us: int) -> None:
        hops = 0
        while home is not None and hops < _HOMES_DEEP:
            alive = home.arrived_us <= arrived_us - _COARSE_US
            if hops and home.last_us >= below.last_us and not alive:
                break
            home.last_us = max(home.last_us, below.last_us)
            home.arrived_us = max(home.arrived_us, arrived_us)
            home.seq = max(home.seq, seq)
            self._dirty[home.uuid] = home
            below, home, hops = home, self.find(home.parent_turn_uuid), hops + 1

    # Sessions

    def untell(self, node: Node) -> None:
        """What this scope told of its session may no longer be so."""
        for each in (node, self.find(node.turn_uuid), self.find(node.parent_turn_uuid)):
            if each is not None:
                self._untold[each.uuid] = each

    def tell_session(self, scope: Node, at: int, session_id: str) -> None:
        self._told.append((scope, at, session_id))

    def _tell_sessions(self) -> None:
        """Let homes know the sessions that were told inside them in this batch."""
        self._retell_sessions()
        for scope, at, session_id in self._told:
            around = self.find(scope.turn_uuid)
            if around is not None:
                self._offer_session(around, at, session_id)

    def _offer_session(self, home: Node, at: int, session_id: str) -> None:
        """A session id told inside a home that has none of its own counts for it, and for a session around it."""
        state = home.home()
        if state.own_session is not None:
            return
        if state.session_told is None or (at, session_id) < (state.session_at, state.session_told):
            state.session_at, state.session_told = at, session_id
            self._homes[home.uuid] = home
            self._dirty[home.uuid] = home

    def _retell_sessions(self) -> None:
        """Look at what is inside these homes again: what one of them was told may be told no more."""
        todo = [node.turn_uuid for node in self._untold.values()]
        done: set[bytes] = set()
        while todo:
            home = self.find(todo.pop())
            if home is None or home.uuid in done or not home.is_home:
                continue
            done.add(home.uuid)
            state = home.home()
            state.session_at, state.session_told = 0, None
            inside = self._inside({home.uuid}, homes_too=True)
            self._told = [told for told in self._told if told[0].turn_uuid != home.uuid]
            members = {node.uuid: node for node in (home, *inside) if node.turn_uuid == home.uuid}
            self.tell_marked_sessions(members.values())
            self.recall_all(node for node in inside if not node.is_home)
            for node in inside:
                if node.is_home:
                    self._homes[node.uuid] = node
                    continue
                if node.told_session is not None:
                    self.tell_session(node, told_at(node), node.told_session)
            self._homes[home.uuid] = self._dirty[home.uuid] = home
            if home.parent_turn_uuid is not None:
                todo.append(home.parent_turn_uuid)

    def _tell_sessions_up(self) -> None:
        """A session that does not tell its id takes that of its first turn that does."""
        for home in list(self._homes.values()):
            state = home.home()
            session_id = state.own_session or state.session_told
            around = self.find(home.parent_turn_uuid) if session_id and home.role == "turn" else None
            if session_id and around is not None and around.role == "session":
                at = told_at(home) if state.own_session else state.session_at
                self._offer_session(around, at, session_id)

    def _tell_sessions_down(self) -> None:
        """A turn that does not tell its session is of the session around it, a sub-agent of that of its turn."""
        todo = list(self._homes.values())
        while todo:
            home = todo.pop()
            state = home.home()
            around = self.find(home.parent_turn_uuid)
            inherited = around.session_id if around is not None else None
            own = state.own_session or state.session_told
            session_id = own or inherited or str(uuids.UUID(bytes=home.uuid))
            if session_id == home.session_id:
                continue
            home.session_id = session_id
            self._dirty[home.uuid] = home
            if state.sums[INNER]:
                todo += self._inner_homes(home.uuid)

    # Roles, and the rows

    def _settle_role(self, home: Node) -> None:
        sums = home.home().sums
        calls = sums[0] + sums[2] + sums[4]
        inner = sums[23]
        if home.joined_uuid is not None:
            home.is_turn = False
        elif home.role == "turn" and not home.flags & BY_PLACE:
            home.is_turn = True
        elif home.flags & BY_PLACE or (home.top and home.role not in HOME_ROLES):
            home.is_turn = calls > 0 or not inner or home.turn_id is not None
            role = "turn" if home.is_turn else "session"
            if home.flags & BY_PLACE and home.top and role != home.role:
                home.role = role
                self._untold[home.uuid] = home
        else:
            home.is_turn = calls > 0

    def _show_home(self, home: Node) -> None:
        self._settle_role(home)
        state = home.home()
        show_sums(home, state.sums)
        ended_by = self._show_ends(home) if state.shared else None
        if home.role != "attempt":
            first = state.first_chunk_us
            home.ttft_us = None if first is None or home.start_us is None else max(first - home.start_us, 0)
            self._show_error(home, state, ended_by)

    def _show_ends(self, home: Node) -> Node | None:
        """Let a turn that several processes saw, and its calls, end as those of them told that were not killed.

        Returns:
            whose end stands for that of the turn, where its own is not told.
        """
        inside = self._inside({home.uuid}) if home.joined_uuid is None else []
        for call in inside:
            if call.role == "logical_call":
                self._show_end(call, joining.end_told_elsewhere(call, inside))
        ended_by = joining.end_told_elsewhere(home, inside) if home.role == "turn" else None
        self._show_end(home, ended_by)
        return ended_by

    def _show_end(self, node: Node, told: Node | None) -> None:
        if node.end_seq is not None or (told is None and node.end_us is None):
            return
        if told is None:
            shown: tuple[Any, ...] = ("running", None, None)
        else:
            shown = (told.status, told.outcome, max(told.end_us or 0, node.start_us or 0))
        if shown == (node.status, node.outcome, node.end_us):
            return
        node.status, node.outcome, node.end_us = shown
        self._dirty[node.uuid] = node
        if node.role == "logical_call":
            set_error(node, self._error_of(told))
            check_success(node)

    def _error_of(self, node: Node | None) -> ErrorFacts | None:
        """What the end of a scope told of an error."""
        if node is None or node.end_seq is None:
            return None
        self.revive(node)
        return node.end.error if node.end is not None else None

    def _show_error(self, home: Node, state: Home, ended_by: Node | None) -> None:
        if (told := self._error_of(ended_by or home)) is not None:
            set_error(home, told)
            return
        failed = self.find(state.failed_by) if state.failed_by and home.status in ("failed", "blocked") else None
        home.error_type = failed.error_type if failed else None
        home.error_status = failed.error_status if failed else None
        home.error_message = failed.error_message if failed else None


def check_success(call: Node) -> None:
    state = call.logical_state
    bad = bool(state and call.end_us is not None and call.status == "ok" and state.attempts)
    call.flag(FLAG.NO_SUCCESSFUL_ATTEMPT, bad and state is not None and not state.ok and not state.open)
