"""Where scopes hang: parents, turns, logical calls, sessions; and the sums that follow."""

from __future__ import annotations

import uuid as uuids
from collections.abc import Iterable
from typing import Any

from relayweb.recording import joining
from relayweb.recording.nodes import (
    FLAG,
    INNER,
    NOTHING,
    Home,
    Logical,
    Node,
    Part,
    add_name,
    began,
    call_contribution,
    contribution,
    contribution_up,
    names,
    set_error,
    show_sums,
    told_at,
)
from relayweb.recording.recent import Recent
from relayweb.recording.tables import Tables
from relayweb.recording.usage import FIELDS as TOKENS

BY_PLACE = 1 << 20  # a hidden flag: where this agent hangs decides its role
_HOME_ROLES = frozenset(("session", "turn", "subagent"))
_COARSE_US = 1_000_000  # around a turn it is enough to know to the second that something came in
_HOMES_DEEP = 1_000
_LATER = 1 << 62  # an auxiliary call's words stand for the turn only if there are no others


class Linking:
    """Scopes in memory, and all that depends on more than one of them."""

    def __init__(self, tables: Tables, remember: int = 20_000) -> None:
        self.tables = tables
        self.nodes: Recent[bytes, Node] = Recent(remember)
        self.rewrites: list[tuple[Any, ...]] = []
        self._absent: set[bytes] = set()
        self._dirty: dict[bytes, Node] = {}
        self._to_link: dict[bytes, Node] = {}
        self._homes: dict[bytes, Node] = {}
        self._recount: set[bytes] = set()
        self._renumber: set[bytes] = set()
        self._ended: dict[bytes, Node] = {}
        self._came: dict[bytes, list[Node]] = {}
        """What this batch brought, by parent."""
        self._told: list[tuple[Node, int, str]] = []
        self._untold: dict[bytes, Node] = {}
        """Scopes whose homes may show a session that nothing inside tells any more."""
        self._rejoin: set[bytes] = set()
        self._touched: dict[bytes, tuple[Node, int, int]] = {}
        self._waited: set[bytes] = set()

    # Memory

    def prefetch(self, wanted: Iterable[bytes]) -> None:
        """Load these scopes, and those they are counted by, in few queries."""
        missing = {u for u in wanted if u not in self._absent and self.nodes.get(u) is None}
        while missing:
            found = [self._remember(row) for row in self.tables.scopes(missing)]
            self._absent |= missing - {node.uuid for node in found}
            around = {u for n in found for u in (n.turn_uuid, n.parent_turn_uuid, n.logical_uuid, n.parent_uuid) if u}
            missing = {u for u in around if u not in self._absent and self.nodes.get(u) is None}

    def _remember(self, row: list[Any]) -> Node:
        node = self.nodes.get(row[0])
        if node is None:
            node = Node.of(row)
            self.nodes.put(node.uuid, node)
        return node

    def find(self, uuid: bytes | None) -> Node | None:
        if uuid is None:
            return None
        node = self.nodes.get(uuid)
        if node is None and uuid not in self._absent:
            self.prefetch((uuid,))
            node = self.nodes.get(uuid)
        return node

    def create(self, uuid: bytes) -> Node:
        node = Node.fresh(uuid)
        self._absent.discard(uuid)
        self.nodes.put(uuid, node)
        self.needs_link(node)
        return node

    def revive(self, node: Node) -> None:
        """Make sure that `end`, `stream` and `failed` are known. The writer knows how."""
        raise NotImplementedError

    def tell_marked_sessions(self, nodes: Iterable[Node]) -> None:
        """Tell again what the marks of these scopes said of their session. The writer knows them."""
        raise NotImplementedError

    def recall(self, node: Node) -> None:
        """Make sure that `told_session` and `told_turn` are known. The writer knows how."""
        raise NotImplementedError

    def own_last_us(self, node: Node) -> int:
        """The time of the last event of this scope itself. The writer knows."""
        raise NotImplementedError

    # What happened to a scope

    def changed(self, node: Node) -> None:
        self._dirty[node.uuid] = node

    def needs_link(self, node: Node) -> None:
        self._to_link[node.uuid] = node
        self._dirty[node.uuid] = node

    def ended(self, node: Node) -> None:
        self._ended[node.uuid] = node

    def recount(self, node: Node) -> None:
        """What a turn shows of this scope may no longer be so."""
        self._recount.add(node.turn_uuid)

    def untell(self, node: Node) -> None:
        """What this scope told of its session may no longer be so."""
        for each in (node, self.find(node.turn_uuid), self.find(node.parent_turn_uuid)):
            if each is not None:
                self._untold[each.uuid] = each

    def tell_session(self, scope: Node, at: int, session_id: str) -> None:
        self._told.append((scope, at, session_id))

    def touch(self, node: Node, seq: int, at_us: int, arrived_us: int) -> None:
        """An event of this scope came in: it, its parent and its turn were alive then."""
        node.last_us = max(node.last_us, at_us)
        before = self._touched.get(node.uuid)
        if before is not None:
            seq, arrived_us = max(seq, before[1]), max(arrived_us, before[2])
        self._touched[node.uuid] = (node, seq, arrived_us)

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

    def _linked_parent(self, node: Node) -> Node | None:
        return None if node.top or node.parent_uuid == node.uuid else self.find(node.parent_uuid)

    # The end of a batch

    def finish(self) -> list[Node]:
        """Link, count and number; returns the scopes whose rows changed."""
        self._link_all()
        self._join_turns()
        for node, seq, arrived_us in list(self._touched.values()):
            self._touch_around(node, seq, arrived_us)
        for node in list(self._dirty.values()):
            self._count(node)
        self._join_calls()
        for home in list(self._homes.values()):
            if home.flags & BY_PLACE:
                self._settle_role(home)
        self._retell_sessions()
        for scope, at, session_id in self._told:
            around = self.find(scope.turn_uuid)
            if around is not None:
                self._offer_session(around, at, session_id)
        self._recount_homes()
        for uuid in self._renumber:
            self._number_attempts(uuid)
        for node in list(self._ended.values()):
            self._check_children(node)
        self._tell_sessions_up()
        for home in list(self._homes.values()):
            self._show_home(home)
        self._tell_sessions_down()
        changed = list(self._dirty.values())
        self._clear()
        return changed

    def _clear(self) -> None:
        self._dirty, self._to_link, self._homes, self._ended = {}, {}, {}, {}
        self._recount, self._renumber, self._absent = set(), set(), set()
        self._came = {}
        self._told = []  # rewrites stay until the recorder has written them
        self._touched, self._waited = {}, set()
        self._untold, self._rejoin = {}, set()

    def abandon(self) -> None:
        """The batch failed: believe the database."""
        self._clear()
        self.nodes.clear()

    # Linking

    def _link_all(self) -> None:
        for node in self._dirty.values():
            self._came.setdefault(node.parent_uuid or b"", []).append(node)
        new = [node.uuid for node in self._to_link.values() if node.new]
        for row in self.tables.waiting(new):
            child = self._remember(row)
            if child.top:
                self._waited.add(child.parent_uuid or b"")
                self.needs_link(child)
        while self._to_link:
            self._link_upward(next(iter(self._to_link.values())))

    def _link_upward(self, node: Node) -> None:
        """Link a scope after its parents. Explicit, because chains may be thousands long."""
        chain = [node]
        seen = {node.uuid}
        while True:
            parent = self._to_link.get(chain[-1].parent_uuid or b"")
            if parent is None or parent.uuid in seen:
                break
            seen.add(parent.uuid)
            chain.append(parent)
        for each in reversed(chain):
            self._link_down(each)

    def _link_down(self, node: Node) -> None:
        """Link a scope, and what hangs below it when that changes anything for them."""
        stack: list[Node] = [node]
        above: set[bytes] | None = None  # what hangs below can be its own ancestor only through one of these
        while stack:
            node = stack.pop()
            self._to_link.pop(node.uuid, None)
            before, was_new = node.linked, node.new
            self._link(node, above)
            node.linked = node.place()
            if not was_new and before != node.linked:
                above = self._ancestors(node) if above is None else above
                above.add(node.uuid)
                stack += self._children(node)
            node.new = False

    def _ancestors(self, node: Node) -> set[bytes]:
        found: set[bytes] = set()
        above = None if node.top else self.find(node.parent_uuid)
        while above is not None and above.uuid not in found:
            found.add(above.uuid)
            above = None if above.top else self.find(above.parent_uuid)
        return found

    def _children(self, node: Node) -> list[Node]:
        """The scopes below this one, those of this batch included. Asked for it alone: turns may be large."""
        rows = self.tables.children((node.uuid,))
        found = {row[0]: self._dirty.get(row[0]) or self._remember(row) for row in rows}
        found.update((child.uuid, child) for child in self._came.get(node.uuid, ()))
        return [n for n in found.values() if n.parent_uuid == node.uuid and n is not node]

    def _inside(self, homes: set[bytes], *, homes_too: bool = False) -> list[Node]:
        """The scopes that these homes count, and with `homes_too` the homes below them; as of this batch."""
        rows = [*self.tables.members(homes), *(self.tables.inner_homes(homes) if homes_too else ())]
        found = {row[0]: self._remember(row) for row in rows}
        for node in self._dirty.values():
            if node.turn_uuid in homes or (homes_too and node.parent_turn_uuid in homes):
                found[node.uuid] = node
        return list(found.values())

    def _link(self, node: Node, above: set[bytes] | None) -> None:
        parent = self._parent(node, above)
        if not node.told:
            self.recall(node)
        node.top = parent is None
        if parent is not None or node.new or node.root is not None:  # what the database says of a missing one holds
            implicit = node.parent_uuid is None or node.root in (None, node.uuid, node.parent_uuid)
            node.flag(FLAG.MISSING_PARENT, parent is None and not implicit)
        if node.flags & BY_PLACE:
            nested = node.told_session is not None and parent is not None
            node.role = "turn" if parent is None else "subagent" if nested else "scope"
        node.is_home = parent is None or node.role in _HOME_ROLES
        node.is_session = node.role in ("session", "subagent") or (parent is None and bool(node.flags & BY_PLACE))
        if parent is None:
            node.turn_uuid, node.parent_turn_uuid, node.logical_uuid = node.uuid, None, None
        elif node.is_home:
            node.turn_uuid, node.parent_turn_uuid, node.logical_uuid = node.uuid, parent.turn_uuid, None
        else:
            node.turn_uuid, node.parent_turn_uuid = parent.turn_uuid, None
            node.logical_uuid = _logical_of(parent)
        if node.role not in ("turn", "logical_call"):
            node.joined_uuid = None
        if node.role == "turn" and node.joined_uuid is not None:
            node.turn_uuid = node.joined_uuid
        synthetic = node.role == "attempt" and node.logical_uuid is None
        node.flag(FLAG.SYNTHETIC, synthetic)
        if synthetic:
            node.logical_uuid = node.uuid
        if node.is_home:
            if node.home_state is None and not node.new:
                self.tell_marked_sessions((node,))
            home = node.home()
            if home.own_session is not None and node.told_session is None:
                self._untold[node.uuid] = node
            home.own_session, node.turn_id = node.told_session, node.told_turn
            self._homes[node.uuid] = node
        elif node.home_state is not None:
            state, node.home_state = node.home_state, None
            if node.linked is None or node.linked[3] in _HOME_ROLES or node.flags & FLAG.CONFLICT:
                self._untold[node.uuid] = node
            elif state.session_told is not None:
                self.tell_session(node, state.session_at, state.session_told)
            self.revive(node)
            node.last_us = self.own_last_us(node)
            _own_columns(node)
        if node.role != "logical_call":
            if node.logical_state is not None and not node.is_home:
                node.attempts = node.retries = None
            node.logical_state = None
        elif node.logical_state is None:
            node.logical_state = Logical()
        if node.told_session is not None and not node.is_home:
            self.tell_session(node, told_at(node), node.told_session)
        if node.uuid not in self._touched:
            self._touched[node.uuid] = (node, node.seq, node.arrived_us)
        self._dirty[node.uuid] = node

    def _parent(self, node: Node, above: set[bytes] | None) -> Node | None:
        """The parent on record; none for a scope that would be its own ancestor."""
        parent = self.find(node.parent_uuid)
        if parent is None or parent is node:
            return None
        if node.new and node.uuid not in self._waited:
            return parent  # nothing hangs below it yet
        if above is not None and node.uuid not in above:
            return parent  # the way down to it led from a top: in long chains too long to go up again for each
        ancestor: Node | None = parent
        while ancestor is not None and ancestor is not node:
            ancestor = None if ancestor.top else self.find(ancestor.parent_uuid)
        return None if ancestor is node else parent

    # One turn, several processes

    def _join_turns(self) -> None:
        def known(turn_ids: set[str]) -> Iterable[Node]:
            yield from [self._remember(row) for row in self.tables.turns_of(turn_ids)]
            yield from [node for node in self._dirty.values() if node.turn_id in turn_ids]

        may = [node for node in self._dirty.values() if node.role == "turn" or node.turn_key is not None]
        changed = joining.join_turns(may, known)
        for node in changed:
            for uuid in (node.uuid, node.turn_uuid, node.joined_uuid):
                if uuid is not None:
                    self._recount.add(uuid)
                    self._rejoin.add(uuid)
        self._relink(changed)

    def _join_calls(self) -> None:
        shared = {n.turn_uuid for n in self._dirty.values() if n.role == "turn" and n.joined_uuid is not None}
        shared |= {home.uuid for home in self._homes.values() if home.home_state and home.home_state.shared}
        shared |= self._rejoin
        for uuid in sorted(shared):
            home = self.find(uuid)
            # A hidden turn's calls are looked at where they count, beside those they may be joined to.
            if home is not None and home.is_home and home.joined_uuid is None:
                home.home().shared = True
                self._relink(joining.join_calls(self._inside({uuid})))
        if shared:
            for node in list(self._dirty.values()):
                self._count(node)

    def _relink(self, nodes: list[Node]) -> None:
        for node in nodes:
            node.linked = None  # whatever comes out, what hangs below must be looked at
            self.needs_link(node)
        while self._to_link:
            self._link_upward(next(iter(self._to_link.values())))

    # Counting

    def _count(self, node: Node) -> None:
        """Bring what a scope adds to its turn, the turn around that, and its logical call up to date."""
        calls = call_contribution(node)
        to = node.logical_uuid if node.role == "attempt" else None
        if calls != node.added_call or to != node.added_call_to:
            self._add_call(node.added_call_to, node, node.added_call, -1)
            self._add_call(to, node, calls, 1)
            node.added_call, node.added_call_to = calls, to
        self._add(node, contribution(node), names(node))
        up = contribution_up(node)
        if up != node.added_up or node.parent_turn_uuid != node.added_up_to:
            self._leave(node.added_up_to, node)
            self._add_sums(node.added_up_to, node.added_up, -1)
            self._add_sums(node.parent_turn_uuid, up, 1)
            node.added_up, node.added_up_to = up, node.parent_turn_uuid
        if node.role == "attempt":
            self._offer(node)
        parent = self._linked_parent(node)
        at = max(node.end_us or 0, node.start_us or 0)
        node.flag(FLAG.LATE_CHILD, parent is not None and parent.end_us is not None and at > parent.end_us)
        if node.is_home:
            self._homes[node.uuid] = node
        if node.role == "logical_call":
            state = node.logical_state = node.logical_state or Logical()
            node.attempts, node.retries = state.attempts, max(state.attempts - 1, 0)
            self._check_success(node)

    def _add(self, node: Node, adds: Part, named: tuple[str | None, str | None]) -> None:
        if adds == node.added and named == node.added_names and node.turn_uuid == node.added_to:
            return
        if node.added_to is not None and node.added_to != node.turn_uuid:
            if node.added != NOTHING:
                self._recount.add(node.added_to)
            self._leave(node.added_to, node)
            self._add_sums(node.added_to, node.added, -1)
            self._add_names(node.added_to, node.added_names, -1)
            node.added, node.added_names = NOTHING, (None, None)
        if adds != node.added:
            self._add_sums(node.turn_uuid, node.added, -1)
            self._add_sums(node.turn_uuid, adds, 1)
        if named != node.added_names:
            self._add_names(node.turn_uuid, node.added_names, -1)
            self._add_names(node.turn_uuid, named, 1)
        node.added, node.added_names, node.added_to = adds, named, node.turn_uuid

    def _leave(self, uuid: bytes | None, node: Node) -> None:
        """A scope counts for another home: what it told the one before is to be forgotten there, and told here."""
        home = self.find(uuid) if uuid != node.uuid else None
        if home is not None and home.is_home:
            self._untold[home.uuid], self._untold[node.uuid] = home, node

    def _home_node(self, uuid: bytes | None) -> Node | None:
        node = self.find(uuid)
        if node is None or not node.is_home:
            return None
        self._homes[node.uuid] = node
        self._dirty[node.uuid] = node
        return node

    def _add_sums(self, to: bytes | None, adds: Part, sign: int) -> None:
        if not adds:
            return
        node = self._home_node(to)
        if node is not None:
            sums = node.home().sums
            for i, value in adds:
                sums[i] += sign * value

    def _add_names(self, to: bytes, named: tuple[str | None, str | None], sign: int) -> None:
        if named == (None, None):
            return
        node = self._home_node(to)
        if node is not None:
            node.model_names = add_name(node.model_names, named[0], sign)
            node.provider_names = add_name(node.provider_names, named[1], sign)

    def _add_call(self, to: bytes | None, node: Node, adds: tuple[int, int, int, int], sign: int) -> None:
        if to is None or to == node.uuid or not adds[0]:
            if sign > 0 and node.role == "attempt" and to == node.uuid:
                node.attempt = 1
            return
        call = self.find(to)
        if call is None or call.role != "logical_call":
            return
        state = call.logical_state = call.logical_state or Logical()
        state.attempts += sign * adds[0]
        state.ok += sign * adds[1]
        state.open += sign * adds[2]
        if call.calls is not None and adds[0]:
            if sign > 0:
                call.calls[node.uuid] = began(node)
            else:
                call.calls.pop(node.uuid, None)
        call.attempts, call.retries = state.attempts, max(state.attempts - 1, 0)
        self._renumber.add(to)
        self._dirty[call.uuid] = call
        self._add(call, contribution(call), names(call))
        self._check_success(call)

    def _check_success(self, call: Node) -> None:
        state = call.logical_state
        bad = bool(state and call.end_us is not None and call.status == "ok" and state.attempts)
        call.flag(FLAG.NO_SUCCESSFUL_ATTEMPT, bad and state is not None and not state.ok and not state.open)

    def _offer(self, node: Node) -> None:
        """An attempt's words, first chunk and failure may be those that its turn shows."""
        home = self.find(node.turn_uuid)
        if home is None or home.home_state is None or node.joined_uuid is not None:
            return
        state = home.home_state
        changed = False
        if node.asked is not None:
            at = began(node) + (_LATER if (node.call_role or "").startswith("auxiliary") else 0)
            if state.asked_at is None or (at, node.uuid) < (state.asked_at, state.asked_by):
                state.asked_at, state.asked_by = at, node.uuid
                if home.role != "attempt":
                    home.asked = node.asked
                changed = True
        if node.ttft_us is not None and node.start_us is not None:
            first = node.start_us + node.ttft_us
            if state.first_chunk_us is None or first < state.first_chunk_us:
                state.first_chunk_us = first
                changed = True
        if node.status == "failed":
            key = (_end(node), node.uuid)
            if state.failed_at is None or key > (state.failed_at, state.failed_by):
                state.failed_at, state.failed_by = key
                changed = True
        elif state.failed_by == node.uuid:
            self._recount.add(home.uuid)
        call = self.find(node.logical_uuid) if node.logical_uuid != node.uuid else None
        told = node.api_request_id
        if call is not None and told is not None and (call.api_request_id is None or told < call.api_request_id):
            call.api_request_id = told
            self._dirty[call.uuid] = call
        if changed:
            self._homes[home.uuid] = home
            self._dirty[home.uuid] = home

    def _recount_homes(self) -> None:
        todo = list(self._recount)
        while todo:
            home = self.find(todo.pop())
            if home is not None and home.is_home:
                before = home.last_us
                self._recount_home(home)
                if home.last_us < before and home.parent_turn_uuid is not None:
                    todo.append(home.parent_turn_uuid)

    def _recount_home(self, home: Node) -> None:
        """Look at a home's scopes from the beginning: what it shows of one of them may be gone."""
        uuid = home.uuid
        state = home.home()
        state.asked_at, state.asked_by, state.first_chunk_us, state.failed_at, state.failed_by = (
            None,
            b"",
            None,
            None,
            b"",
        )
        if home.role != "attempt":
            home.asked = None
        home.last_us = self.own_last_us(home)
        for node in self._inside({uuid}, homes_too=True):
            if node is not home and (node.turn_uuid == uuid or node.parent_turn_uuid == uuid):
                home.last_us = max(home.last_us, node.last_us)
            if node.turn_uuid == uuid and node.role == "attempt":
                self._offer(node)
        self._homes[uuid] = home
        self._dirty[uuid] = home

    # Attempt numbers

    def _number_attempts(self, uuid: bytes) -> None:
        """Number a logical call's attempts 1, 2, … by start, then uuid."""
        call = self.find(uuid)
        if call is None:
            return
        if call.calls is None:
            inside = self._inside({call.turn_uuid})
            call.calls = {n.uuid: began(n) for n in inside if n.role == "attempt" and n.logical_uuid == uuid}
        for i, (_, attempt) in enumerate(sorted((start, u) for u, start in call.calls.items())):
            node = self.nodes.get(attempt)
            if node is None and i < len(call.calls) - 1:
                continue
            node = node or self.find(attempt)
            if node is not None and node.attempt != i + 1:
                node.attempt = i + 1
                self._dirty[attempt] = node

    # Late children

    def _check_children(self, parent: Node) -> None:
        home = self.find(parent.turn_uuid)
        if parent.end_us is None or home is None or home.saved_last_us <= parent.end_us:
            return  # nothing on record is later, and what came now has been looked at
        for child in self._children(parent):
            at = max(child.end_us or 0, child.start_us or 0)
            late = at > parent.end_us
            if late != bool(child.flags & FLAG.LATE_CHILD):
                child.flag(FLAG.LATE_CHILD, late)
                self._dirty[child.uuid] = child

    # Sessions and what a home shows

    def _offer_session(self, home: Node, at: int, session_id: str) -> None:
        """A session id told inside a home counts for it, and for a session around it that has none of its own."""
        state = home.home()
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
            for node in inside:
                if node.is_home:
                    self._homes[node.uuid] = node
                    continue
                if not node.told:
                    self.recall(node)
                if node.told_session is not None:
                    self.tell_session(node, told_at(node), node.told_session)
            self._homes[home.uuid] = self._dirty[home.uuid] = home
            if home.parent_turn_uuid is not None:
                todo.append(home.parent_turn_uuid)

    def _settle_role(self, home: Node) -> None:
        sums = home.home().sums
        calls = sums[0] + sums[2] + sums[4]
        inner = sums[23]
        if home.joined_uuid is not None:
            home.is_turn = False
        elif home.role == "turn" and not home.flags & BY_PLACE:
            home.is_turn = True
        elif home.flags & BY_PLACE or (home.top and home.role not in _HOME_ROLES):
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
        if home.role != "attempt":
            first = state.first_chunk_us
            home.ttft_us = None if first is None or home.start_us is None else max(first - home.start_us, 0)
            self._show_error(home, state)

    def _show_error(self, home: Node, state: Home) -> None:
        if home.end_seq is not None:
            self.revive(home)
        if home.end is not None and home.end.error is not None:
            return
        failed = self.find(state.failed_by) if state.failed_by and home.status in ("failed", "blocked") else None
        home.error_type = failed.error_type if failed else None
        home.error_status = failed.error_status if failed else None
        home.error_message = failed.error_message if failed else None

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
                inside = self._inside({home.uuid}, homes_too=True)
                todo += [n for n in inside if n.is_home and n.parent_turn_uuid == home.uuid]


def _logical_of(parent: Node) -> bytes | None:
    if parent.role == "logical_call":
        return parent.joined_uuid or parent.uuid
    if parent.role in ("attempt", "session", "turn", "subagent"):
        return None
    return parent.logical_uuid


def _end(node: Node) -> int:
    return node.end_us if node.end_us is not None else node.last_us


def _own_columns(node: Node) -> None:
    """A scope that counts nothing any more shows its own values only."""
    for column in ("logical_calls", "tools", "subagents", "model_names", "provider_names", "session_id", "turn_id"):
        setattr(node, column, None)
    node.is_turn = False
    call = node.logical_state
    node.attempts = call.attempts if call else None
    node.retries = max(call.attempts - 1, 0) if call else None
    if node.role != "attempt":
        for column in ("chunk_count", "asked", "ttft_us", "usage_complete", "cost_pusd", "wasted_pusd", *TOKENS):
            setattr(node, column, None)
        set_error(node, node.end.error if node.end else None)
