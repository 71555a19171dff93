"""Where scopes hang: parents, turns, logical calls; and in what order the rest follows from that."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from relayweb.recording.conventions.usage import FIELDS as TOKENS
from relayweb.recording.projection import joining
from relayweb.recording.projection.counting import Counting
from relayweb.recording.projection.homes import BY_PLACE, HOME_ROLES
from relayweb.recording.projection.nodes import FLAG, Logical, Node, began, request_key, set_error, told_at
from relayweb.recording.store.tables import Tables


class Linking(Counting):
    """All that depends on more than one scope."""

    def __init__(self, tables: Tables) -> None:
        super().__init__(tables)
        self.rewrites: list[tuple[Any, ...]] = []
        self._rejoin: set[bytes] = set()
        """Turns whose calls have to be looked at, because another one counts them now."""
        self._waited: set[bytes] = set()
        self._circled: set[bytes] = set()
        """New scopes whose parents may lead back to them."""

    def clear(self) -> None:
        super().clear()
        self._rejoin, self._waited, self._circled = (
            set(),
            set(),
            set(),
        )  # rewrites stay until the recorder has written them

    def finish(self) -> list[Node]:
        """Link, count and number; returns the scopes whose rows changed."""
        self._link_all()
        self._join_turns()
        self._touch_homes_of()
        for node in list(self._dirty.values()):
            self._count(node)
        self._join_calls()
        self._join_attempts()
        for home in list(self._homes.values()):
            if home.flags & BY_PLACE:
                self._settle_role(home)
        self._tell_sessions()
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
        self.clear()
        return changed

    # Linking

    def _link_all(self) -> None:
        for node in self._dirty.values():
            self._came.setdefault(node.parent_uuid or b"", []).append(node)
        new = [node.uuid for node in self._to_link.values() if node.new]
        waiting = [child for child in map(self._remember, self.tables.waiting(new)) if child.top]
        self.revive_all(waiting)
        for child in waiting:
            self._waited.add(child.parent_uuid or b"")
            self.needs_link(child)
        while self._to_link:
            self._link_upward(next(iter(self._to_link.values())))

    def _link_upward(self, node: Node) -> None:
        """Link a scope after its parents. Explicit, because chains may be thousands long."""
        chain = [node]
        at = {node.uuid: 0}
        while True:
            parent = self._to_link.get(chain[-1].parent_uuid or b"")
            if parent is None:
                break
            if parent.uuid in at:
                circle = chain[at[parent.uuid] :]
                self._circled |= {each.uuid for each in circle}
                opens = circle.index(min(circle, key=lambda each: each.uuid)) + 1
                chain[at[parent.uuid] :] = circle[opens:] + circle[:opens]
                break
            at[parent.uuid] = len(chain)
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
                children = self._children(node)
                self.recall_all(children)
                stack += children
            node.new = False

    def _ancestors(self, node: Node) -> set[bytes]:
        found: set[bytes] = set()
        above = None if node.top else self.find(node.parent_uuid)
        while above is not None and above.uuid not in found:
            found.add(above.uuid)
            above = None if above.top else self.find(above.parent_uuid)
        return found

    def _link(self, node: Node, above: set[bytes] | None) -> None:
        parent = self._parent(node, above)
        if not node.told:
            self.recall(node)
        node.top = parent is None
        there = parent is not None or self.find(node.parent_uuid) is not None  # a circle opens under one that is
        if there or node.new or node.root is not None:  # what the database says of a missing one holds
            implicit = node.parent_uuid is None or node.root in (None, node.uuid, node.parent_uuid)
            node.flag(FLAG.MISSING_PARENT, not there and not implicit)
        if node.flags & BY_PLACE:
            nested = node.told_session is not None and parent is not None
            node.role = "turn" if parent is None else "subagent" if nested else "scope"
        node.is_home = parent is None or node.role in HOME_ROLES
        node.is_session = node.role in ("session", "subagent") or (parent is None and bool(node.flags & BY_PLACE))
        _place(node, parent)
        self._take_home(node)
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

    def _take_home(self, node: Node) -> None:
        """Whether a scope counts others may have changed; so then does what it holds of them."""
        if node.is_home:
            if node.home_state is None and not node.new:
                self.tell_marked_sessions((node,))
            home = node.home()
            if home.own_session is not None and node.told_session is None:
                self._untold[node.uuid] = node
            home.own_session, node.turn_id = node.told_session, node.told_turn
            if home.own_session is not None:
                home.session_at, home.session_told = 0, None
            self._homes[node.uuid] = node
        elif node.home_state is not None:
            state, node.home_state = node.home_state, None
            if node.linked is None or node.linked[3] in HOME_ROLES or node.flags & FLAG.CONFLICT:
                self._untold[node.uuid] = node
            elif state.session_told is not None:
                self.tell_session(node, state.session_at, state.session_told)
            self.revive(node)
            node.last_us = self.own_last_us(node)
            _own_columns(node)

    def _parent(self, node: Node, above: set[bytes] | None) -> Node | None:
        """The parent on record; none for the scope at which a circle of parents opens."""
        parent = self.find(node.parent_uuid)
        if parent is None or parent is node:
            return None
        if node.new and node.uuid not in self._waited and node.uuid not in self._circled:
            return parent  # nothing hangs below it yet
        if above is not None and node.uuid not in above:
            return parent  # the way down to it led from a top: in long chains too long to go up again for each
        circle = {node.uuid}
        ancestor: Node | None = parent
        while ancestor is not None and ancestor.uuid not in circle:
            circle.add(ancestor.uuid)
            ancestor = self.find(ancestor.parent_uuid)
        if ancestor is not node:
            return parent
        first = self.find(min(circle))  # whichever came first, this one is where it opens
        if first is not None and first is not node and not first.top:
            self.needs_link(first)
        return None if first is node else parent

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

    def _join_attempts(self) -> None:
        """Let attempts of one request id that no logical call holds be attempts of the first one's call."""
        keys: set[tuple[bytes, str]] = set()
        for node in self._dirty.values():
            if node.role == "attempt" or node.request_key is not None:
                key = request_key(node)
                keys.update(k for k in (key, node.request_key) if k is not None)
                node.request_key = key
        for key in sorted(keys):
            found = {row[0]: self._remember(row) for row in self.tables.attempts_of(*key)}
            found.update((node.uuid, node) for node in self._dirty.values() if node.request_key == key)
            calls = sorted((n for n in found.values() if n.request_key == key), key=lambda n: (began(n), n.uuid))
            for i, node in enumerate(calls):
                if len(calls) > 1 or node.logical_uuid != node.uuid:  # each shows what has become of the others
                    node.logical_uuid = calls[0].uuid
                    self._dirty[node.uuid] = node
                    self._count(node)
                    node.attempt = i + 1

    def _relink(self, nodes: list[Node]) -> None:
        for node in nodes:
            node.linked = None  # whatever comes out, what hangs below must be looked at
            self.needs_link(node)
        while self._to_link:
            self._link_upward(next(iter(self._to_link.values())))


def _place(node: Node, parent: Node | None) -> None:
    """Which turn counts a scope, and which call it is of."""
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


def _logical_of(parent: Node) -> bytes | None:
    if parent.role == "logical_call":
        return parent.joined_uuid or parent.uuid
    if parent.role in ("attempt", "session", "turn", "subagent"):
        return None
    return parent.logical_uuid


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
