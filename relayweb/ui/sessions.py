"""The list of sessions, and one session with its turns in order, sub-agents nested below the turn that called them."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote
from uuid import UUID

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_GET

from relayweb.recording.models import Scope
from relayweb.recording.reading import loose, queries
from relayweb.ui import search
from relayweb.ui.lists import broken, largest

PAGE = 50
TURNS = 200
EVENTS = 100


@require_GET
def sessions(request: HttpRequest) -> HttpResponse:
    q = request.GET.get("q", "").strip()
    if added := request.GET.get("add", "").strip():
        return redirect(reverse("ui:sessions") + search.href(f"{q} {added}".strip()))
    context: dict[str, Any] = {"q": q, "seq": queries.latest_seq()}
    try:
        page = queries.sessions(q, limit=PAGE, cursor=request.GET.get("cursor") or None)
    except queries.QueryError as error:
        return render(request, "sessions/list.html", context | broken(q, error))
    except queries.CursorError:
        return redirect(reverse("ui:sessions") + search.href(q))
    partial = _partial([found["session_id"] for found in page["sessions"]])
    context |= {
        "loose": loose.exist(),
        "chips": search.chips(q),
        "sessions": [found | {"usage": {"complete": found["session_id"] not in partial}} for found in page["sessions"]],
        "next": search.href(q, cursor=page["next"]) if page["next"] else "",
    }
    return render(request, "sessions/list.html", context)


@require_GET
def events(request: HttpRequest) -> HttpResponse:
    """Events that belong to no session, turn or call, newest first."""
    before = request.GET.get("before", "")
    found = loose.events(limit=EVENTS + 1, before=int(before) if before.isdecimal() and len(before) < 19 else None)
    more = found[EVENTS - 1]["seq"] if len(found) > EVENTS else None
    return render(request, "sessions/events.html", {"events": found[:EVENTS], "next": more})


def _partial(names: list[str]) -> set[str]:
    """Of these sessions those of which an ended turn tells fewer tokens than it used."""
    partial = Scope.objects.filter(session_id__in=names, is_home=True, usage_complete=False, total_tokens__isnull=False)
    return {name for name in partial.exclude(status="running").values_list("session_id", flat=True) if name}


@require_GET
def session(request: HttpRequest, session_id: str) -> HttpResponse:
    seq = queries.latest_seq()
    try:
        found = queries.session(session_id, limit=TURNS, cursor=request.GET.get("cursor") or None)
    except queries.CursorError:
        return redirect("ui:session", session_id)
    if found is None:
        raise Http404(f"No session {session_id} is on record.")
    turns = found["turns"]
    inner = inner_turns(turns)
    shown = with_depth(turns, inner)
    context = {
        "seq": seq,
        "session": found,
        "turns": shown,
        "largest": largest(turns),
        "sums": sums(turns),
        "next": f"?cursor={quote(found['next'])}" if found["next"] else "",
    }
    return render(request, "sessions/session.html", context)


def inner_turns(turns: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Turns of sub-agents called by these turns, also those that ran in sessions of their own."""
    return queries.inner_turns([UUID(turn["uuid"]) for turn in turns])


def with_depth(turns: list[dict[str, Any]], inner: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """All turns in order of time, each followed by those of its sub-agents, with `depth`."""
    everyone = {turn["uuid"]: turn for turn in [*turns, *inner]}
    children: dict[str | None, list[dict[str, Any]]] = {}
    for turn in everyone.values():
        parent = turn["parent_turn_uuid"]
        children.setdefault(parent if parent in everyone else None, []).append(turn)
    ordered, stack = [], [(turn, 0) for turn in sorted(children.get(None, []), key=_start, reverse=True)]
    while stack:
        turn, depth = stack.pop()
        ordered.append({**turn, "depth": min(depth, 6)})
        stack += [(child, depth + 1) for child in sorted(children.get(turn["uuid"], []), key=_start, reverse=True)]
    return ordered


def _start(turn: dict[str, Any]) -> int:
    return turn["start_us"] or 0


def sums(turns: list[dict[str, Any]]) -> dict[str, Any]:
    """What the turns cost together; unknown where none of them says."""
    costs = [turn["cost_usd"] for turn in turns if turn["cost_usd"] is not None]
    tokens = [turn["usage"]["total_tokens"] for turn in turns if turn["usage"]["total_tokens"] is not None]
    return {
        "calls": sum(turn["logical_calls"] for turn in turns),
        "retries": sum(turn["retries"] for turn in turns),
        "tokens": sum(tokens) if tokens else None,
        "usage": {"complete": all(t["usage"]["complete"] is not False or t["status"] == "running" for t in turns)},
        "cost_usd": sum(costs) if costs else None,
        "cost_complete": all(turn["cost_complete"] for turn in turns),
        "models": sorted({model for turn in turns for model in turn["models"]}),
    }
