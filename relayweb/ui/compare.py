"""Two attempts, calls or turns side by side: their figures, and what differs in request and answer by structure."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_GET

from relayweb.recording.models import Role, Scope
from relayweb.recording.reading import queries
from relayweb.ui import formats
from relayweb.ui.inspect import jsonview, structure
from relayweb.ui.inspect.subject import Subject
from relayweb.ui.shown import render

OFFERED = 12
PARTS = {"request": "Request", "response": "Answer", "error": "Error"}


@dataclass
class Side:
    """One of the two. Of a turn or a call with several attempts its first request and its last answer stand for it."""

    uuid: UUID
    facts: dict[str, Any]
    role: str
    turn: UUID

    @classmethod
    def find(cls, text: str) -> Side | None:
        """What the id names; None if nothing on record does."""
        uuid = queries.as_uuid(text)
        if uuid is None:
            return None
        turn = queries.turn_summary(uuid)
        if turn is not None:
            return cls(uuid, turn, "turn", uuid)
        node = queries.scope(uuid)
        return None if node is None else cls(uuid, node, node["role"], UUID(node["turn_uuid"]))

    @cached_property
    def attempts(self) -> list[UUID]:
        if self.role == "attempt":
            return [self.uuid]
        within = {"logical_uuid": self.uuid} if self.role == "logical_call" else {"turn_uuid": self.turn}
        found = Scope.objects.filter(role=Role.ATTEMPT, joined_uuid__isnull=True, **within)
        return list(found.order_by("start_us", "uuid").values_list("uuid", flat=True))

    def part(self, name: str) -> Any:
        """A document of it; None where nothing is recorded."""
        if not self.attempts:
            return None
        subject = Subject.find(self.turn, str(self.attempts[0 if name == "request" else -1]))
        if subject is None:
            return None
        if name == "error":
            return subject.node.get("error")
        return subject.document(name)

    @property
    def title(self) -> str:
        return label(self.facts)


def label(facts: dict[str, Any]) -> str:
    return str(facts.get("asked") or facts.get("model") or facts.get("name") or facts.get("uuid"))


@require_GET
def compare(request: HttpRequest) -> HttpResponse:
    asked = {name: request.GET.get(name, "").strip() for name in ("a", "b")}
    sides = {name: Side.find(text) for name, text in asked.items()}
    part = request.GET.get("part", "")
    part = part if part in PARTS else "request"
    a, b = sides["a"], sides["b"]
    context: dict[str, Any] = {
        "asked": asked,
        "sides": sides,
        "missing": [text for name, text in asked.items() if text and sides[name] is None],
        "part": part,
        "parts": PARTS,
    }
    if a is None or b is None:
        offered = [{**offer, "label": label(offer)} for offer in offers(a or b)]
        context |= {"offers": offered, "free": "b" if a else "a"}
        return render(request, "compare.html", context)
    found = structure.difference(a.part(part), b.part(part))
    context |= {
        "rows": figures(a.facts, b.facts),
        "difference": found,
        "difference_html": jsonview.to_html(found.lines),
    }
    return render(request, "compare.html", context)


def offers(one: Side | None) -> list[dict[str, Any]]:
    """What the other side could be: attempts of the same call, else the newest turns, of its session first."""
    if one is not None and one.role == "attempt":
        node = queries.scope(one.uuid) or {}
        near = Scope.objects.filter(role=Role.ATTEMPT, turn_uuid=one.turn, joined_uuid__isnull=True).exclude(
            uuid=one.uuid
        )
        same_call = near.filter(parent_uuid=queries.as_uuid(node.get("parent_uuid") or "")).order_by("start_us")
        same = list(queries.read_rows(same_call[:OFFERED]))
        others = same or list(queries.read_rows(near.order_by("-start_us")[:OFFERED]))
        return sorted(queries.nodes_of(others), key=lambda node: node["start_us"] or 0, reverse=not same)
    session = one.facts.get("session_id") if one is not None else None
    found: list[dict[str, Any]] = (
        queries.turns(f'session:"{session}"', limit=OFFERED)["turns"] if _plain(session) else []
    )
    found += queries.turns(limit=OFFERED)["turns"]
    unique = {turn["uuid"]: turn for turn in found if one is None or turn["uuid"] != str(one.uuid)}
    return list(unique.values())[:OFFERED]


def _plain(session: Any) -> bool:
    return isinstance(session, str) and '"' not in session and bool(session)


FIGURES: tuple[tuple[str, str, Any], ...] = (
    ("Status", "status", str),
    ("Model", "model", str),
    ("Models", "models", lambda names: ", ".join(names) or formats.UNKNOWN),
    ("Duration", "duration_us", formats.duration),
    ("First token after", "ttft_us", formats.duration),
    ("Calls", "logical_calls", formats.count),
    ("Attempts", "attempts", formats.count),
    ("Retries", "retries", formats.count),
    ("Rewrites", "rewrites", lambda n: str(n if isinstance(n, int) else sum(run["changed"] for run in n))),
    ("Tools", "tools", formats.count),
    ("Chunks", "chunks", formats.count),
    ("Chunks", "chunk_count", formats.count),
    ("Finish reason", "finish_reason", str),
    ("Read", "usage.input_tokens", formats.count),
    ("Of it cached", "usage.cached_tokens", formats.count),
    ("Written", "usage.output_tokens", formats.count),
    ("Cost", "cost_usd", formats.cost),
    ("Wasted", "wasted_usd", formats.cost),
)


def figures(a: dict[str, Any], b: dict[str, Any]) -> list[dict[str, Any]]:
    """Rows of label, both values in words, and how much the second is more than the first where both are numbers."""
    rows = []
    for label, name, say in FIGURES:
        left, right = _value(a, name), _value(b, name)
        if left is None and right is None:
            continue
        rows.append(
            {
                "label": label,
                "a": formats.UNKNOWN if left is None else say(left),
                "b": formats.UNKNOWN if right is None else say(right),
                "same": left == right,
                "delta": _delta(left, right),
            }
        )
    return rows


def _value(facts: dict[str, Any], name: str) -> Any:
    found: Any = facts
    for step in name.split("."):
        found = found.get(step) if isinstance(found, dict) else None
    return found


def _delta(left: Any, right: Any) -> str:
    numbers = [n for n in (left, right) if isinstance(n, (int, float)) and not isinstance(n, bool)]
    if len(numbers) < 2 or not left or left == right:
        return ""
    share = 100 * (right - left) / left
    if abs(share) >= 1000:
        return f"× {right / left:.0f}"
    return f"{'+' if share > 0 else '−'}{abs(share):.0f} %"
