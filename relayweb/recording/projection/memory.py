"""The scopes that the writer has in memory: found by uuid, by parent and by the home that counts them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from relayweb.recording.projection.nodes import Node
from relayweb.recording.store.recent import Recent
from relayweb.recording.store.tables import Tables


class Memory:
    """Scopes on record as far as they were used lately, and those of this batch."""

    def __init__(self, tables: Tables, remember: int = 8_000) -> None:
        self.tables = tables
        self.nodes: Recent[bytes, Node] = Recent(remember, "scopes")
        self._absent: set[bytes] = set()
        self._dirty: dict[bytes, Node] = {}
        self._to_link: dict[bytes, Node] = {}
        self._came: dict[bytes, list[Node]] = {}
        """What this batch brought, by parent."""
        self.doubts: dict[bytes, bytes | None] = {}
        """Scopes whose rows may depend on the order of events; with the root of the run if it is a better copy's."""

    def clear(self) -> None:
        """The batch is over."""
        self._absent, self._dirty, self._to_link, self._came = set(), {}, {}, {}

    def abandon(self) -> None:
        """The batch failed: believe the database."""
        self.clear()
        self.doubts = {}
        self.nodes.clear()

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

    def changed(self, node: Node) -> None:
        self._dirty[node.uuid] = node

    def needs_link(self, node: Node) -> None:
        self._to_link[node.uuid] = node
        self._dirty[node.uuid] = node

    def doubt(self, *scopes: bytes | None) -> None:
        """What hangs where around these scopes was taken back: it is to be told anew."""
        for uuid in scopes:
            if uuid is not None:
                self.doubts.setdefault(uuid, None)

    # What hangs where

    def _linked_parent(self, node: Node) -> Node | None:
        return None if node.top or node.parent_uuid == node.uuid else self.find(node.parent_uuid)

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

    def _inner_homes(self, home: bytes) -> list[Node]:
        """The homes right below this one, as of this batch."""
        found = {row[0]: self._remember(row) for row in self.tables.inner_homes((home,))}
        found.update((node.uuid, node) for node in self._dirty.values() if node.parent_turn_uuid == home)
        return [node for node in found.values() if node.is_home and node.parent_turn_uuid == home]

    # What the recorder knows

    def revive(self, node: Node) -> None:
        """Make sure that `end`, `stream` and `failed` are known. The writer knows how."""
        raise NotImplementedError

    def revive_all(self, nodes: Iterable[Node]) -> None:
        """`revive` of many, with few queries."""
        raise NotImplementedError

    def tell_marked_sessions(self, nodes: Iterable[Node]) -> None:
        """Tell again what the marks of these scopes said of their session. The writer knows them."""
        raise NotImplementedError

    def recall(self, node: Node) -> None:
        """Make sure that `told_session` and `told_turn` are known. The writer knows how."""
        raise NotImplementedError

    def recall_all(self, nodes: Iterable[Node]) -> None:
        """`recall` of many, with few queries."""
        raise NotImplementedError

    def own_last_us(self, node: Node) -> int:
        """The time of the last event of this scope itself. The writer knows."""
        raise NotImplementedError
