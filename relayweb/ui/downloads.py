"""A recorded turn as a file: the formats of `relayweb export`, one press away from where it is read."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from itertools import islice
from uuid import UUID

from asgiref.sync import sync_to_async
from django.contrib.auth.decorators import login_required, permission_required
from django.http import Http404, HttpRequest, StreamingHttpResponse
from django.views.decorators.http import require_GET

from relayweb.ingest import export
from relayweb.ingest.export_atif import atif
from relayweb.ingest.export_otlp import otlp

FORMATS = {"atof": export.atof, "otlp": otlp, "atif": atif}
LINES = 100
"""Lines read for one piece of the answer."""


@require_GET
@login_required
@permission_required("access.view_record", raise_exception=True)
def turn(request: HttpRequest, turn: UUID, form: str) -> StreamingHttpResponse:
    """The turn with its sub-agents as JSON lines, sent as it is read, so that no size of turn fills the memory."""
    write = FORMATS.get(form)
    if write is None:
        raise Http404(f"turns are written as {', '.join(FORMATS)}, not as {form}")
    try:
        lines = write(export.turn(turn))
    except export.NothingThere:
        raise Http404(f"There is no turn {turn} on record.") from None
    answer = StreamingHttpResponse(_pieces(lines), content_type="application/jsonl")
    answer["Content-Disposition"] = f'attachment; filename="turn-{turn}.{form}.jsonl"'
    answer["Cache-Control"] = "private, no-store"
    return answer


async def _pieces(lines: Iterator[bytes]) -> AsyncIterator[bytes]:
    read = sync_to_async(lambda: b"".join(islice(lines, LINES)))
    while piece := await read():
        yield piece
