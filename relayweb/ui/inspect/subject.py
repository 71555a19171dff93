"""The scope that the inspector shows, and what is recorded about it, each read once and only when asked for."""

from __future__ import annotations

from functools import cached_property
from typing import Any
from uuid import UUID

from relayweb.live.frames import CALL_PREFIX
from relayweb.recording.models import Scope
from relayweb.recording.reading import bodies, queries, rows
from relayweb.ui.inspect import jsonview

Node = dict[str, Any]

LOOKED_BACK = 200
"""Attempts among which that of the call before is looked for; a turn may hold many side calls."""
_PLACE = ("uuid", "logical_uuid")


class Subject:
    """One node of a turn.

    Args:
        turn: the turn it is shown in.
        node: as `queries.scope` gives it; a synthetic logical call has the uuid of its attempt and its own role.
    """

    def __init__(self, turn: UUID, node: Node, ident: str) -> None:
        self.turn, self.node, self.ident = turn, node, ident
        self.uuid = UUID(node["uuid"])

    @classmethod
    def find(cls, turn: UUID, ident: str) -> Subject | None:
        """The scope with this uuid, or with `call:` before it the call above an attempt that has none of its own."""
        uuid = queries.as_uuid(ident.removeprefix(CALL_PREFIX))
        if uuid is None:
            return None
        if ident.startswith(CALL_PREFIX):
            row = next(queries.read_rows(Scope.objects.filter(uuid=uuid)), None)
            return None if row is None else cls(turn, rows.synthetic_call(row), ident)
        node = queries.scope(uuid)
        return None if node is None else cls(turn, node, ident)

    @property
    def role(self) -> str:
        return str(self.node["role"])

    @property
    def is_attempt(self) -> bool:
        return self.role == "attempt"

    @property
    def final(self) -> bool:
        """Nothing more is expected of it."""
        return bool(self.node["status"] != "running")

    @cached_property
    def request(self) -> dict[str, Any]:
        """`bodies.request` with its texts read."""
        return _read(bodies.request(self.uuid))

    @cached_property
    def response(self) -> dict[str, Any]:
        return _read(bodies.response(self.uuid))

    @cached_property
    def rewrites(self) -> dict[str, Any]:
        return bodies.rewrites(self.uuid) or {"stages": [], "rewrites": []}

    @cached_property
    def chunks(self) -> list[dict[str, Any]]:
        found = queries.chunks(self.uuid, limit=100_000)
        return found["chunks"] if found else []

    @cached_property
    def siblings(self) -> list[Node]:
        """The attempts of the same logical call, in order."""
        row = Scope.objects.filter(uuid=self.uuid).values_list("logical_uuid", flat=True).first()
        if self.role == "logical_call" and not self.ident.startswith(CALL_PREFIX):
            row = self.uuid
        if row is None:
            return [self.node] if self.is_attempt else []
        found = queries.read_rows(
            Scope.objects.filter(logical_uuid=row, role="attempt").order_by("attempt", "start_us")
        )
        return [rows.node(r) for r in found]

    @cached_property
    def earlier(self) -> Node | None:
        """The attempt before this one, else the last one of the call before, of the same role."""
        before = None
        for node in self.siblings:
            if node["uuid"] == str(self.uuid):
                break
            before = node
        return before or self._of_the_call_before()

    def _of_the_call_before(self) -> Node | None:
        own = Scope.objects.filter(uuid=self.uuid).values("turn_uuid", "logical_uuid", "start_us").first()
        if own is None or own["start_us"] is None:
            return None
        near = Scope.objects.filter(turn_uuid=own["turn_uuid"], role="attempt", joined_uuid__isnull=True)
        before = list(
            near.filter(start_us__lt=own["start_us"]).order_by("-start_us").values_list(*_PLACE)[:LOOKED_BACK]
        )
        calls = {own["logical_uuid"], *(call for _, call in before)}
        roles = dict(Scope.objects.filter(uuid__in=calls).values_list("uuid", "call_role"))
        wanted = roles.get(own["logical_uuid"])
        found = next((uuid for uuid, call in before if roles.get(call) == wanted), None)
        return None if found is None else queries.scope(found)

    @property
    def earlier_name(self) -> str:
        """What `earlier` is called."""
        of_this_call = any(node["uuid"] == (self.earlier or {}).get("uuid") for node in self.siblings)
        return f"Attempt {(self.earlier or {}).get('attempt') or '?'}" if of_this_call else "Call before"

    @cached_property
    def tools(self) -> dict[str, Node]:
        """The tool scopes of the same turn by tool call id."""
        home = Scope.objects.filter(uuid=self.uuid).values_list("turn_uuid", flat=True).first()
        found = queries.read_rows(Scope.objects.filter(turn_uuid=home, role="tool", tool_call_id__isnull=False))
        return {row.tool_call_id: rows.node(row) for row in found if row.tool_call_id}

    @cached_property
    def children(self) -> list[Node]:
        found = queries.read_rows(Scope.objects.filter(parent_uuid=self.uuid).order_by("start_us")[:200])
        return queries.nodes_of(found)

    @cached_property
    def child_count(self) -> int:
        """Of `children`, which are the first 200, all there are."""
        known = len(self.children)
        return known if known < 200 else Scope.objects.filter(parent_uuid=self.uuid).count()

    def document(self, of: str) -> Any:
        """A recorded document by the name that addresses of `value` use.

        Raises:
            LookupError: there is no such document.
        """
        kind, _, number = of.partition(":")
        if kind == "stage":
            return self.rewrites["stages"][int(number) if number.isdecimal() else -1]["body"]
        key = {"input": "request", "output": "response"}.get(kind, kind)
        holder = {"request": self.request, "app": self.request, "response": self.response}[key]
        return holder[key]


def _read(texts: dict[str, Any] | None) -> dict[str, Any]:
    return {name: jsonview.read(text) if isinstance(text, bytes) else text for name, text in (texts or {}).items()}
