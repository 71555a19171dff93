"""The live list of turns: rows, facets, histogram, and the peek beside them."""

from __future__ import annotations

import re
from typing import Any
from uuid import UUID

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_GET

from relayweb.recording.reading import queries
from relayweb.recording.reading.query_language import Query, QueryError, parse
from relayweb.recording.reading.turn_filter import turns_matching
from relayweb.ui import facets, search, start
from relayweb.ui.models import SavedView

PAGE = 50
MAX_CHANGED = 100


@require_GET
def turns(request: HttpRequest) -> HttpResponse:
    q = request.GET.get("q", "").strip()
    if added := request.GET.get("add", "").strip():
        return redirect(reverse("ui:turns") + search.href(f"{q} {added}".strip()))
    if not q and queries.latest_seq() == 0:
        return render(request, "turns/start.html", {**start.context(request), "empty": True, "seq": 0})
    cursor = request.GET.get("cursor") or None
    context: dict[str, Any] = {"q": q, "seq": queries.latest_seq(), "first_page": cursor is None, **views(request, q)}
    try:
        query = parse(q)
        page = queries.turns(query, limit=PAGE, cursor=cursor)
    except QueryError as error:
        context |= broken(q, error)
        return render(request, "turns/list.html", context)
    except queries.CursorError:
        return redirect(reverse("ui:turns") + search.href(q))
    found = page["turns"]
    context |= {
        "chips": search.chips(q),
        "turns": found,
        "notes": page["notes"],
        "largest": largest(found),
        "next": search.href(q, cursor=page["next"]) if page["next"] else "",
        "newest": search.href(q),
        "drops": drops(q) if not found else [],
        **facets.context(q, query),
    }
    return render(request, "turns/list.html", context)


def views(request: HttpRequest, q: str) -> dict[str, Any]:
    """The reader's saved searches, and whether the present one is among them."""
    kept = [
        {"view": view, "href": search.href(view.q), "on": view.q == q}
        for view in SavedView.objects.filter(owner=request.user.pk)
    ]
    return {"views": kept, "saved": any(view["on"] for view in kept)}


def broken(q: str, error: QueryError) -> dict[str, Any]:
    """What the page shows of a query that cannot be read: the place underlined, and what to write instead."""
    mended = search.href(search.mended(q, error.column, error.suggestion)) if error.suggestion else ""
    message = re.sub(r" Did you mean \S+\?$", "", error.message)
    shown = {"message": message, "suggestion": error.suggestion, "mended": mended}
    return {"chips": search.chips(q, error.column), "error": shown, "turns": []}


def drops(q: str) -> list[dict[str, str]]:
    """For a query that nothing fits: which term to leave out, and how many turns that gives."""
    chips, offers = search.chips(q), []
    for index, chip in enumerate(chips):
        rest = search.joined(chips, leave=index)
        fitting = turns_matching(parse(rest))[: PAGE + 1]
        if count := len(fitting.values_list("uuid", flat=True)):
            many = f"More than {PAGE}" if count > PAGE else str(count)
            note = f"{many} fit{'' if count > 1 else 's'} without it."
            offers.append({"text": chip.text, "href": search.href(rest), "note": note})
    return offers[:2]


def largest(found: list[dict[str, Any]]) -> int:
    """What the bars of durations are drawn against: the largest, unless all are much alike."""
    lengths = sorted(turn["duration_us"] or 0 for turn in found)
    return max(lengths[-1], 4 * lengths[len(lengths) // 2]) if lengths else 0


@require_GET
def changed_rows(request: HttpRequest) -> HttpResponse:
    """Rows of the given turns as they are now, newest first; those the query does not fit are left out.

    Query: `q`, `uuid` (up to 100), `largest` (µs, what the bars are drawn against), `peeked`.
    """
    try:
        query = parse(request.GET.get("q", ""))
    except QueryError:
        query = Query()
    uuids = [uuid for text in request.GET.getlist("uuid")[:MAX_CHANGED] if (uuid := queries.as_uuid(text))]
    found = turns_of(query, uuids)
    asked = request.GET.get("largest", "")
    longest = max(largest(found), int(asked) if asked.isdecimal() else 0)
    context = {"turns": found, "largest": longest, "peeked": request.GET.get("peeked", "")}
    return render(request, "turns/_rows.html", context)


def turns_of(query: Query, uuids: list[UUID]) -> list[dict[str, Any]]:
    matching = turns_matching(query).filter(uuid__in=uuids, start_us__isnull=False)
    return queries.as_turns(list(queries.read_rows(matching.order_by("-start_us", "-uuid"))))


@require_GET
def jump(request: HttpRequest) -> HttpResponse:
    """Go to whatever an id names, or search the turns for anything else."""
    to = request.GET.get("to", "").strip()
    uuid = queries.as_uuid(to)
    if uuid is not None:
        if queries.turn_row(uuid) is not None:
            return redirect("ui:turn", uuid)
        node = queries.scope(uuid)
        if node is None:
            raise Http404(f"Nothing with the id {to} is on record.")
        return redirect(reverse("ui:turn", args=[node["turn_uuid"]]) + f"?s={uuid}")
    if to and queries.session(to, limit=1) is not None:
        return redirect("ui:session", to)
    return redirect(reverse("ui:turns") + search.href(to))
