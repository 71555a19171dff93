"""The peek: enough of a turn, beside the list, to decide whether to open it."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any
from uuid import UUID

from django.db.models import F
from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.http import require_GET

from relayweb.recording.models import Scope
from relayweb.recording.reading import queries, rows, search
from relayweb.recording.reading.query_language import QueryError, parse
from relayweb.ui.shown import render

WHOLE = 2_000  # scopes of a turn that are all looked at
LATEST = 200
LANES = 12
CHUNKS = 200
SPOKEN = 600
SAYING = 5
# Role → colour and icon.
LOOKS = {
    "logical_call": ("call", "call"),
    "attempt": ("llm", "llm"),
    "tool": ("tool", "tool"),
    "subagent": ("agent", "subagent"),
}
FAILED = ("failed", "interrupted")
UNCHANGED = ("miss", "error")


@require_GET
def peek(request: HttpRequest, uuid: str) -> HttpResponse:
    turn = queries.turn_summary(uuid)
    if turn is None:
        raise Http404(f"No turn {uuid} is on record.")
    nodes = looked_at(turn)
    drawn = lanes(turn, nodes)
    context = {
        "turn": turn,
        "lanes": drawn,
        "slowest": slowest(turn) if drawn["left_out"] else None,
        "failures": failures(nodes),
        "rewritten": rewritten(nodes),
        "spoken": spoken(nodes),
        "saying": [found for text in texts(request.GET.get("q", "")) if (found := saying(text, turn["uuid"]))],
        "blocked": [n for n in nodes if n["role"] == "attempt" and n["status"] == "blocked"],
    }
    return render(request, "turns/peek.html", context)


def texts(q: str) -> list[str]:
    """The words that a search looks for."""
    try:
        return [term.text for term in parse(q).texts if not term.negated and term.text.strip(" *")]
    except QueryError:
        return []


def saying(text: str, turn: str) -> dict[str, Any] | None:
    """The first steps of a turn in which this was said; None if it was in none."""
    own = search.steps_saying(text, UUID(turn)).filter(role__in=LOOKS)
    found = [rows.node(row) for row in queries.read_rows(own[: SAYING + 1])]
    steps = [
        {"node": node, "kind": LOOKS[node["role"]][0], "icon": LOOKS[node["role"]][1], "label": _label(node, None)}
        for node in found
    ]
    return {"text": text, "steps": steps[:SAYING], "more": len(steps) > SAYING} if steps else None


def looked_at(turn: dict[str, Any]) -> list[dict[str, Any]]:
    """The nodes of a turn; of a very large one the latest, and the latest that failed."""
    if turn["logical_calls"] + turn["attempts"] + turn["tools"] <= WHOLE:
        return queries.turn_nodes(turn["uuid"])
    own = Scope.objects.filter(turn_uuid=turn["uuid"], role__in=LOOKS, joined_uuid__isnull=True)
    latest = own.order_by("-start_us", "-uuid")[:LATEST]
    failed = own.filter(role="attempt", status__in=FAILED).order_by("-start_us", "-uuid")[:LATEST]
    rows = {row.uuid: row for found in (latest, failed) for row in queries.read_rows(found)}
    return sorted(queries.nodes_of(rows.values()), key=lambda node: node["start_us"] or 0)


def slowest(turn: dict[str, Any]) -> dict[str, Any] | None:
    """The attempt of a turn that took longest, which need not be among the steps drawn."""
    own = Scope.objects.filter(turn_uuid=turn["uuid"], role="attempt", joined_uuid__isnull=True, end_us__isnull=False)
    longest = own.annotate(length=F("end_us") - F("start_us")).filter(length__isnull=False).order_by("-length", "uuid")
    found = queries.nodes_of(queries.read_rows(longest[:1]))
    return found[-1] if found else None


def shown(nodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Calls with several attempts unfold; a call with one is that attempt, under the call's role."""
    attempts = Counter(n["parent_uuid"] for n in nodes if n["role"] == "attempt")
    found = []
    for node in nodes:
        if node["role"] == "logical_call" and attempts[node["uuid"]] == 1:
            continue
        if node["role"] in LOOKS:
            found.append(node)
    return found


def lanes(turn: dict[str, Any], nodes: list[dict[str, Any]]) -> dict[str, Any]:
    """The latest scopes as bars on one scale, in per mille of the span they cover together."""
    roles = {n["uuid"]: n.get("call_role") for n in nodes if n["role"] == "logical_call"}
    timed = [n for n in shown(nodes) if n["start_us"] is not None]
    latest = timed[-LANES:]
    if not latest:
        return {"rows": [], "left_out": 0, "span_us": None}
    unfolded = {n["uuid"] for n in timed if n["role"] == "logical_call"}
    now = int(time.time() * 1e6)
    ends = {n["uuid"]: _end(n, now) for n in latest}
    begin = min(n["start_us"] for n in latest)
    span = max(1, max(ends.values()) - begin)
    return {
        "left_out": len(timed) - len(latest),
        "span_us": span,
        "rows": [
            {
                **_lane(node, begin, ends[node["uuid"]], span, roles.get(node.get("parent_uuid"))),
                "child": node["role"] == "attempt" and node["parent_uuid"] in unfolded,
            }
            for node in latest
        ],
    }


def _end(node: dict[str, Any], now: int) -> int:
    if node["status"] == "running":
        return max(now, int(node["start_us"]))
    return int(node["end_us"] or node["last_us"] or node["start_us"])


def _lane(node: dict[str, Any], begin: int, end: int, span: int, call_role: str | None) -> dict[str, Any]:
    x = 1000 * (node["start_us"] - begin) / span
    width = max(4.0, 1000 * (end - node["start_us"]) / span)
    attempt = node["role"] == "attempt"
    ttft = node.get("ttft_us")
    kind, icon = LOOKS[node["role"]]
    return {
        "node": node,
        "kind": kind,
        "icon": icon,
        "label": _label(node, call_role),
        "thin": node["role"] in ("logical_call", "subagent"),
        "x": round(min(x, 996.0), 1),
        "width": round(min(width, 1000 - min(x, 996.0)), 1),
        "ttft": round(min(x + 1000 * ttft / span, 1000.0), 1) if attempt and ttft else None,
        "rewritten": any(run["changed"] for run in node.get("rewrites", [])),
        "length_us": end - node["start_us"],
    }


def _label(node: dict[str, Any], call_role: str | None) -> str:
    if node["role"] == "attempt":
        return str(node.get("model") or node["name"])
    if node["role"] == "logical_call":
        return str(node.get("call_role") or "call")
    return str(node["name"] or call_role or node["role"])


def failures(nodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Attempts that failed, with what the provider said."""
    failed = [n for n in nodes if n["role"] == "attempt" and n["status"] in FAILED]
    return [{"node": node, "said": said(node)} for node in failed]


def said(node: dict[str, Any]) -> str:
    error = node.get("error") or {}
    parts = [error.get("status"), error.get("type"), error.get("message")]
    return " ".join(str(part) for part in parts if part) or str(node.get("outcome") or node["status"])


def spoken(nodes: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The end of what the latest stream with text said; None if none did."""
    streams = [n for n in nodes if n["role"] == "attempt" and n.get("chunk_count")]
    for node in sorted(streams, key=lambda n: n["start_us"] or 0, reverse=True)[:3]:
        page = queries.chunks(node["uuid"], offset=max(0, node["chunk_count"] - CHUNKS), limit=CHUNKS)
        chunks = page["chunks"] if page else []
        text = "".join(chunk["text"] or "" for chunk in chunks if chunk["kind"] == "text")
        if text.strip():
            return {"node": node, "text": text[-SPOKEN:], "cut": len(text) > SPOKEN or node["chunk_count"] > CHUNKS}
    return None


def rewritten(nodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Which intercepts changed requests of this turn, and of how many attempts they saw."""
    looked: Counter[tuple[str, int | None, str]] = Counter()
    changed: Counter[tuple[str, int | None, str]] = Counter()
    for node in nodes:
        for run in node.get("rewrites", []):
            name = (run["key"], run["revision"], run["mode"])
            looked[name] += 1
            changed[name] += run["result"] not in UNCHANGED
    return [
        {"key": key, "revision": revision, "mode": mode, "changed": changed[key, revision, mode], "of": count}
        for (key, revision, mode), count in looked.items()
        if changed[key, revision, mode]
    ]
