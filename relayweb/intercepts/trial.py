"""A back-test as one answer that grows: lines that say how far it is, then the report. Going away stops it."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from asgiref.sync import sync_to_async
from django.http import StreamingHttpResponse

from relayweb.intercepts.backtest import Report

log = logging.getLogger(__name__)

PACE = 0.2
"""Seconds between two lines."""


def answer(steps: Iterator[Report], page: Callable[[Report], str]) -> StreamingHttpResponse:
    """NDJSON: `{"tried", "total", "matched", "changed", "stopped", "failed"}` lines, then one with `html`, or `error`.

    Args:
        steps: as backtest.steps gives them.
        page: draws the finished report.
    """
    response = StreamingHttpResponse(_lines(steps, page), content_type="application/x-ndjson")
    response["Cache-Control"] = "private, no-store"
    response["X-Accel-Buffering"] = "no"  # a proxy shall not keep the lines until the end
    return response


async def _lines(steps: Iterator[Report], page: Callable[[Report], str]) -> AsyncIterator[bytes]:
    report, more = Report(), True
    try:
        while more:
            report, more = await sync_to_async(_walk)(steps, report)
            yield _line(_progress(report))
        yield _line({"html": await sync_to_async(page)(report)})
    except Exception as error:
        log.exception("a back-test failed after %d requests", report.tried)
        yield _line({"error": f"The back-test stopped after {report.tried} requests: {error}"})


def _walk(steps: Iterator[Report], report: Report) -> tuple[Report, bool]:
    """Some steps, as many as go into the pace; the report, and whether there are more."""
    until = time.monotonic() + PACE
    for report in steps:
        if time.monotonic() >= until:
            return report, True
    return report, False


def _progress(report: Report) -> dict[str, int]:
    return {
        "tried": report.tried,
        "total": report.total,
        "matched": report.matched,
        "changed": report.changed,
        "stopped": report.stopped,
        "failed": report.failed,
    }


def _line(data: dict[str, Any]) -> bytes:
    return json.dumps(data).encode() + b"\n"
