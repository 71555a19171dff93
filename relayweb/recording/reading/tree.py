"""The tree of a turn, built without recursion: a chain of any length is a chain, not a stack overflow."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from relayweb.recording.reading import rows
from relayweb.recording.reading.rows import Row

NESTING = 200
"""Levels of nested JSON that every parser can read. Deeper nodes hang, flagged `flattened`, under their ancestor at
this level; `parent_uuid` and `depth` still say where they belong."""

Node = dict[str, Any]


def flat(found: Iterable[Row], root: UUID) -> list[Node]:
    """The nodes of a turn in order of display (parents before children, siblings by time), each with its `depth`.

    An attempt without a logical call gets a synthetic one above it, with the same uuid. Rows seen by a second process
    (`joined_uuid`) are hidden and their children shown under the first. What cannot be reached from the root (a parent
    that never came, a circle) hangs under the root with the flag `missing_parent`, so that nothing is lost.
    """
    by_uuid = {row.uuid: row for row in found}
    children: dict[UUID, list[Row]] = {}
    calls = rows.same_calls(by_uuid.values())
    for row in by_uuid.values():
        if row.joined_uuid is None and row.uuid != root and not _is_retry(row, by_uuid):
            children.setdefault(_parent(row, by_uuid, root), []).append(row)
    for siblings in children.values():
        siblings.sort(key=_in_time)
    ordered: list[Node] = []
    reached: set[UUID] = set()
    if root in by_uuid:
        _walk(by_uuid[root], 0, children, calls, ordered, reached)
    for row in sorted(by_uuid.values(), key=_in_time):
        if row.uuid not in reached and row.joined_uuid is None:
            at = len(ordered)
            _walk(row, 1, children, calls, ordered, reached)
            if "missing_parent" not in ordered[at]["flags"]:
                ordered[at]["flags"].append("missing_parent")
    _sum_calls(ordered, by_uuid)
    return ordered


def _sum_calls(ordered: list[Node], by_uuid: dict[UUID, Row]) -> None:
    """Give each logical call what its attempts used and cost together."""
    attempts: dict[str, list[Row]] = {}
    for row in by_uuid.values():
        if row.role == "attempt" and row.logical_uuid is not None and row.joined_uuid is None:
            attempts.setdefault(str(row.logical_uuid), []).append(row)
    for node in ordered:
        if node["role"] == "logical_call" and (of := attempts.get(node["uuid"])):
            node |= rows.sums(of)


def _parent(row: Row, by_uuid: dict[UUID, Row], root: UUID) -> UUID:
    parent = by_uuid.get(row.parent_uuid) if row.parent_uuid else None
    hops = 0
    while parent is not None and parent.joined_uuid is not None and hops < 8:
        parent, hops = by_uuid.get(parent.joined_uuid), hops + 1
    return root if parent is None else parent.uuid


def _in_time(row: Row) -> tuple[int, UUID]:
    return row.last_us if row.start_us is None else row.start_us, row.uuid


def _is_retry(row: Row, by_uuid: dict[UUID, Row]) -> bool:
    """Whether a synthetic call of another attempt holds this one."""
    return rows.in_synthetic_call(row) and row.logical_uuid != row.uuid and row.logical_uuid in by_uuid


def _walk(
    top: Row,
    depth: int,
    children: dict[UUID, list[Row]],
    calls: dict[UUID, list[Row]],
    ordered: list[Node],
    reached: set[UUID],
) -> None:
    stack = [(top, depth)]
    while stack:
        row, depth = stack.pop()
        if row.uuid in reached:
            continue
        reached.add(row.uuid)
        if row.role == "attempt" and row.logical_uuid == row.uuid:
            ordered.append(rows.synthetic_call(row, depth, calls.get(row.uuid, ())))
            depth += 1
            stack += [(other, depth) for other in reversed(calls.get(row.uuid, ())) if other is not row]
        ordered.append(rows.node(row, depth))
        stack += [(child, depth + 1) for child in reversed(children.get(row.uuid, ()))]


def nest(ordered: list[Node]) -> Node | None:
    """Nest what `flat` gave, by `depth`; at most `NESTING` levels."""
    path: list[Node] = []
    for node in ordered:
        node["children"] = []
        depth = min(node["depth"], len(path))
        del path[depth:]
        if path:
            path[min(depth - 1, NESTING)]["children"].append(node)
            if depth - 1 > NESTING:
                node["flags"].append("flattened")
        path.append(node)
    return ordered[0] if ordered else None
