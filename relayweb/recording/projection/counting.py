"""The sums of turns and logical calls, the numbers of attempts, and which scopes outlast their parents."""

from __future__ import annotations

from relayweb.recording.projection.homes import Homes, check_success
from relayweb.recording.projection.nodes import (
    FLAG,
    NOTHING,
    Logical,
    Node,
    Part,
    add_name,
    began,
    call_contribution,
    contribution,
    contribution_up,
    names,
)
from relayweb.recording.store.tables import Tables

_LATER = 1 << 62  # an auxiliary call's words stand for the turn only if there are no others


class Counting(Homes):
    """Each scope adds to the turn that counts it, and takes its part along when that is another one."""

    def __init__(self, tables: Tables) -> None:
        super().__init__(tables)
        self._recount: set[bytes] = set()
        self._renumber: set[bytes] = set()
        self._ended: dict[bytes, Node] = {}

    def clear(self) -> None:
        super().clear()
        self._recount, self._renumber, self._ended = set(), set(), {}

    def ended(self, node: Node) -> None:
        self._ended[node.uuid] = node

    def recount(self, node: Node) -> None:
        """What a turn shows of this scope may no longer be so."""
        self._recount.add(node.turn_uuid)

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
            if node.added_up_to is not None and node.added_up_to != node.parent_turn_uuid:
                self._recount.add(node.added_up_to)
            self._add_sums(node.added_up_to, node.added_up, -1)
            self._add_sums(node.parent_turn_uuid, up, 1)
            node.added_up, node.added_up_to = up, node.parent_turn_uuid
        if node.role == "attempt":
            self._offer(node)
        parent = self._linked_parent(node)
        at = max(node.end_us or 0, node.start_us or 0)
        node.flag(FLAG.LATE_CHILD, parent is not None and _outlasts(at, parent))
        if node.is_home:
            self._homes[node.uuid] = node
        if node.role == "logical_call":
            state = node.logical_state = node.logical_state or Logical()
            node.attempts, node.retries = state.attempts, max(state.attempts - 1, 0)
            check_success(node)

    def _add(self, node: Node, adds: Part, named: tuple[str | None, str | None]) -> None:
        if adds == node.added and named == node.added_names and node.turn_uuid == node.added_to:
            return
        if node.added_to is not None and node.added_to != node.turn_uuid:
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

    def take_leave(self, home: Node) -> None:
        """This home goes for good, with all that is inside: what it told those around it is to be forgotten."""
        self._add_sums(home.added_up_to, home.added_up, -1)
        around = self.find(home.parent_turn_uuid)
        if around is not None:
            self._homes[around.uuid] = self._dirty[around.uuid] = around
            self._recount.add(around.uuid)
            self._untold[around.uuid] = around

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
        check_success(call)

    # First words, first chunk, last failure

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
            elif state.asked_by == node.uuid and state.asked_at != at:  # its end told what its start did not
                self._recount.add(home.uuid)
            elif state.asked_by == node.uuid and home.role != "attempt" and home.asked != node.asked:
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
        if parent.end_us is None or parent.end_seq is None or home is None or home.saved_last_us <= parent.end_us:
            return  # nothing on record is later, and what came now has been looked at
        for child in self._children(parent):
            at = max(child.end_us or 0, child.start_us or 0)
            late = not child.top and _outlasts(at, parent)  # a circle opens at one of them
            if late != bool(child.flags & FLAG.LATE_CHILD):
                child.flag(FLAG.LATE_CHILD, late)
                self._dirty[child.uuid] = child


def _outlasts(at: int, parent: Node) -> bool:
    return parent.end_seq is not None and parent.end_us is not None and at > parent.end_us


def _end(node: Node) -> int:
    return node.end_us if node.end_us is not None else node.last_us
