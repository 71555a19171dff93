"""The turn page and the fragments it loads. What they show is made in `relayweb.ui.inspect`."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from functools import wraps
from typing import Any
from uuid import UUID

from django.contrib.auth.decorators import login_required, permission_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.cache import patch_cache_control

from relayweb.live import frames
from relayweb.live.source import turn_frame
from relayweb.recording.reading import queries
from relayweb.ui.inspect import again as sending
from relayweb.ui.inspect import fragments, jsonview
from relayweb.ui.inspect import transcript as talk
from relayweb.ui.inspect.parts import PICTURES
from relayweb.ui.inspect.subject import Subject
from relayweb.ui.shown import render

View = Callable[..., HttpResponse]

SPANS = 200
"""Rows on a page of the table of spans."""
LOADED_AT_ONCE = 40
"""Attempts whose chunks one request may ask for."""
PARTS = {("request", "messages"): "turns/turn_history.html", ("raw", "events"): "turns/turn_tab_raw.html"}
"""What `?part=` asks for instead of the whole inspector."""


def _viewer(view: View) -> View:
    """Only for people who may see the record; what they see is nobody's to cache."""

    @wraps(view)
    @login_required
    @permission_required("access.view_record", raise_exception=True)
    def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        answer = view(request, *args, **kwargs)
        patch_cache_control(answer, private=True, no_cache=True)
        return answer

    return guarded


@_viewer
def page(request: HttpRequest, turn: UUID) -> HttpResponse:
    """The page itself: facts of the turn; scripts then load its frame."""
    facts = queries.turn_summary(turn)
    if facts is None:
        raise Http404(f"There is no turn {turn} on record.")
    if facts["uuid"] != str(turn):  # a part of one that several processes saw
        return redirect("ui:turn", facts["uuid"])
    return render(request, "turns/turn.html", {"turn": facts, "uuid": turn, "cut_title": _title(facts)})


def _title(facts: dict[str, Any]) -> str:
    asked = " ".join((facts.get("asked") or "").split())
    return asked or facts["name"] or "Turn"


@_viewer
def frame(request: HttpRequest, turn: UUID) -> HttpResponse:
    """The whole turn as one frame of docs/live.md, or what changed since `?since=`."""
    if queries.turn_row(turn) is None:
        raise Http404(f"no turn {turn} is on record")
    since = request.GET.get("since", "0")
    body = turn_frame(turn, since=int(since) if since.isdecimal() else 0)
    return HttpResponse(body, content_type="application/json")


@_viewer
def chunks(request: HttpRequest, turn: UUID) -> HttpResponse:
    """Chunks of some attempts in columns: times, kinds and sizes, and with `?text=1` what they say."""
    wanted = [queries.as_uuid(part) for part in request.GET.get("attempt", "").split(",")[:LOADED_AT_ONCE]]
    text = request.GET.get("text") == "1"
    names = [name for name in frames.CHUNK_COLUMNS if text or name != "text"]
    table: frames.Columns = {name: [] for name in names}
    for attempt in wanted:
        found = queries.chunks(attempt, limit=100_000) if attempt else None
        if attempt and found:
            for name, column in frames.chunk_rows(str(attempt), found["chunks"], text=text).items():
                table[name] += column
    return HttpResponse(frames.dumps({"chunks": table}), content_type="application/json")


@_viewer
def spans(request: HttpRequest, turn: UUID) -> HttpResponse:
    """The spans of the timeline as a table, 200 a page, in the order of the tree."""
    facts = queries.turn_summary(turn)
    if facts is None:
        raise Http404(f"no turn {turn} is on record")
    nodes = queries.turn_nodes(turn)
    number = request.GET.get("page", "1")
    pages = max(1, -(-len(nodes) // SPANS))
    at = min(max(1, int(number) if number.isdecimal() else 1), pages)
    shown = nodes[(at - 1) * SPANS : at * SPANS]
    context = {
        "uuid": turn,
        "nodes": [fragments.span_row(node, facts["start_us"]) for node in shown],
        "page": at,
        "pages": pages,
        "total": len(nodes),
        "first": (at - 1) * SPANS + 1,
        "last": (at - 1) * SPANS + len(shown),
    }
    return render(request, "turns/turn_spans.html", context)


@_viewer
def transcript(request: HttpRequest, turn: UUID) -> HttpResponse:
    """The turn as a conversation, some calls a page."""
    if queries.turn_row(turn) is None:
        raise Http404(f"no turn {turn} is on record")
    number = request.GET.get("page", "1")
    told = talk.transcript(turn, int(number) if number.isdecimal() else 1)
    return render(request, "turns/turn_transcript.html", {"uuid": turn, **told})


def _subject(turn: UUID, scope: str) -> Subject:
    found = Subject.find(turn, scope)
    if found is None:
        raise Http404(f"no scope {scope} is on record in turn {turn}")
    return found


@_viewer
def inspect(request: HttpRequest, turn: UUID, scope: str) -> HttpResponse:
    """The inspector of one scope, with the tab that `?tab=` names."""
    subject = _subject(turn, scope)
    context = fragments.inspector(subject, request.GET)
    part = PARTS.get((str(context["tab"]), request.GET.get("part", "")), "turns/turn_inspector.html")
    answer = render(request, part, {**context, "of": context["tab"]})
    if subject.final:
        answer["x-final"] = "1"
    return answer


@_viewer
def chunk_table(request: HttpRequest, turn: UUID, scope: str) -> HttpResponse:
    """All rows of the chunk table, for streams of which only some were shown."""
    return render(request, "turns/turn_chunk_rows.html", fragments.all_chunks(_subject(turn, scope)))


@_viewer
def value(request: HttpRequest, turn: UUID, scope: str) -> HttpResponse:
    """One recorded value in full: `?of=request|app|response|input|output|stage:3`, `&at=` a JSON pointer.

    Text is answered as plain text, everything else as JSON text; with `&as=image` a picture as itself.
    """
    subject = _subject(turn, scope)
    try:
        found = jsonview.resolve(subject.document(request.GET.get("of", "request")), request.GET.get("at", ""))
    except (LookupError, TypeError):
        raise Http404("nothing is recorded at this place") from None
    if request.GET.get("as") == "image":
        return _picture(found)
    return _plain(found if isinstance(found, str) else jsonview.dump(found, indent=2))


@_viewer
def again(request: HttpRequest, turn: UUID, scope: str, form: str) -> HttpResponse:
    """What the provider got, as lines that send it once more."""
    subject = _subject(turn, scope)
    text = sending.again(subject.request.get("request"), subject.node.get("api_mode"), form)
    if text is None:
        raise Http404("no request that could be sent again is recorded here")
    return _plain(text)


def _plain(text: str) -> HttpResponse:
    answer = HttpResponse(text.encode("utf-8", "backslashreplace"), content_type="text/plain; charset=utf-8")
    answer["X-Content-Type-Options"] = "nosniff"
    return answer


def _picture(block: Any) -> HttpResponse:
    """A picture inside a message. Only formats that can hold no script."""
    url = block.get("image_url") if isinstance(block, dict) else None
    if isinstance(url, dict):
        url = url.get("url")
    source = block.get("source") if isinstance(block, dict) else None
    if isinstance(source, dict):
        url = f"data:{source.get('media_type')};base64,{source.get('data')}"
    if not isinstance(url, str) or not url.startswith("data:"):
        raise Http404("no picture is recorded here")
    head, _, data = url[5:].partition(",")
    media = head.partition(";")[0].lower()
    try:
        content = base64.b64decode(data, validate=False)
    except (binascii.Error, ValueError):
        raise Http404("the picture is not valid base64") from None
    if media not in PICTURES:
        raise Http404(f"pictures of type {media[:40]} are not shown")
    answer = HttpResponse(content, content_type=media)
    answer["X-Content-Type-Options"] = "nosniff"
    answer["Content-Security-Policy"] = "default-src 'none'; sandbox"
    return answer
