"""What tools were called with, in a few words, for the rows of a tree that are in sight."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

from django.contrib.auth.decorators import login_required, permission_required
from django.http import HttpRequest, JsonResponse
from django.views.decorators.http import require_GET

from relayweb.recording.models import Scope
from relayweb.recording.reading import bodies, queries
from relayweb.recording.store import stored

ASKED_AT_ONCE = 60
LONGEST = 80


@require_GET
@login_required
@permission_required("access.view_record", raise_exception=True)
def hints(request: HttpRequest, turn: UUID) -> JsonResponse:
    """`{"hints": {uuid: words}}` for the tools among `?scope=` (uuids with commas), "" where nothing can be said."""
    wanted = [
        uuid for text in request.GET.get("scope", "").split(",")[:ASKED_AT_ONCE] if (uuid := queries.as_uuid(text))
    ]
    homes = queries.turn_uuids(turn)
    tools = Scope.objects.filter(uuid__in=wanted, role="tool", turn_uuid__in=homes).values_list("uuid", flat=True)
    answer = JsonResponse({"hints": {str(uuid): _hint(uuid) for uuid in tools}})
    answer["Cache-Control"] = "private, no-cache"
    return answer


def _hint(uuid: UUID) -> str:
    found = (bodies.request(uuid) or {}).get("request")
    value = stored.load(found) if isinstance(found, bytes) else found
    said = " ".join(_words(value))
    return said if len(said) <= LONGEST else f"{said[: LONGEST - 1]}…"


def _words(value: Any) -> Iterator[str]:
    """The plain values of the arguments in their order, without their names: `read_file` explains itself."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for inner in value[:8]:
            if isinstance(inner, (str, int, float)) and not isinstance(inner, bool):
                yield from _words(inner)
    elif isinstance(value, (str, int, float)):
        yield " ".join(str(value)[: 4 * LONGEST].split())
