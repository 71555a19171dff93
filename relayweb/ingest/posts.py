"""`POST /ingest/atof`: one event, a batch of lines, or an upload without end.

Complete lines are committed while the rest is on its way, so an agent that keeps one request open for its whole life is
watched live. Sending anything twice is harmless.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from django.db import DatabaseError

from relayweb.access.answers import Headers, Receive, Scope, Send, answer
from relayweb.ingest.reading import BodyError, Decoder, Disconnected, Lines, body, decoder, unpacked, whole_body
from relayweb.ingest.tally import Tally
from relayweb.recording.writing.submissions import Full


async def atof(scope: Scope, receive: Receive, send: Send) -> None:
    """Take ATOF 0.1 events, one a line, and answer `{"accepted", "duplicates", "rejected"}` once they are committed."""
    headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
    tally = Tally("post")
    async with refusals(send, tally):
        content_type = _content_type(headers.get(b"content-type", ""))
        decode = decoder(headers.get(b"content-encoding", ""))
        if content_type == "application/json":
            await _document(receive, decode, tally)
        else:
            await _lines(receive, decode, tally, patient=b"content-length" not in headers)
        await answer(send, 200, tally.answer())


Tell = Callable[[Send, int, dict[str, Any], Headers | None], Awaitable[None]]
"""Sends what a body came to, `error` among its members, with a status and headers."""


@contextlib.asynccontextmanager
async def refusals(send: Send, tally: Tally, *, full_status: int = 429, tell: Tell = answer) -> AsyncIterator[None]:
    """Answer what keeps a body from being taken whole, with the counts of what was taken of it."""
    try:
        yield
    except BodyError as error:
        await tell(send, error.status, tally.answer(str(error)), None)
    except Full as full:
        wait = math.ceil(full.retry_after)
        text = f"{full}; send this again in {wait} s"
        await tell(send, full_status, tally.answer(text), [(b"retry-after", str(wait).encode())])
    except Disconnected:
        text = "the server is stopping; lines after those counted here were not read"
        await tell(send, 503, tally.answer(text), None)
    except (DatabaseError, OSError) as error:
        text = f"the record cannot be written now: {error}"
        await tell(send, 503, tally.answer(text), [(b"retry-after", b"5")])


def _content_type(header: str) -> str:
    found = header.partition(";")[0].strip().lower()
    if found.startswith("multipart/") or found == "application/x-protobuf":
        mend = "application/x-ndjson or application/json here, traces to /v1/traces"
        raise BodyError(415, f"content-type {found} is not taken; send {mend}")
    return found


async def _lines(receive: Receive, decode: Decoder, tally: Tally, *, patient: bool) -> None:
    lines = Lines()
    async for piece, more in body(receive):
        whole = b""
        for part in unpacked(decode, piece):
            await tally.submit(whole, patient=patient)
            whole = lines.feed(part)
        if not more:
            decode.end()
            whole += lines.rest()
        await tally.submit(whole, patient=patient)
        tally.reject_too_long(lines)


async def _document(receive: Receive, decode: Decoder, tally: Tally) -> None:
    """One event, which people may have indented, or lines after all."""
    await tally.submit(await whole_body(receive, decode), patient=False)
