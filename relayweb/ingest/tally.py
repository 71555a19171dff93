"""What a sender is told about its events, summed over the pieces they came in."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

from relayweb import conf
from relayweb.ingest.reading import BodyError, Lines
from relayweb.recording.writing.submissions import Full, Receipt, is_one_event
from relayweb.recording.writing.writer import writer

MAX_REJECTIONS = 1000
"""Lines named in an answer. More are counted in `rejected_more`."""
MOST_REJECTED = 100_000
"""After so many, and more than were taken, nobody means to send events: sixty million may fit into a small body."""
PIECE_LINES, PIECE_BYTES = 4_000, 4 * 1024 * 1024
"""Handed to the writer at a time, so that neither many lines nor long ones fill the memory or hold others up."""


class Tally:
    """Submits lines piece by piece and counts lines from the first piece on."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.accepted = self.duplicates = self.rejected_more = 0
        self.rejected: list[dict[str, Any]] = []
        self.lines = 0

    async def submit(self, lines: bytes, *, patient: bool) -> None:
        """Commit some whole lines.

        Args:
            lines: whole lines; only the last may lack its LF.
            patient: wait for as long as the writer is full, instead of raising Full.

        Raises:
            Full: the writer stayed full. BodyError: there is hardly an event among all that was sent.
        """
        await asyncio.sleep(0)
        if not lines or lines.isspace():
            self.lines += lines.count(b"\n")
            return
        for piece in [lines] if is_one_event(lines) else pieces(lines):
            await self._submit(piece, patient)
            if self.rejected_more > max(MOST_REJECTED, self.accepted + self.duplicates):
                raise BodyError(400, f"too many lines are no events; those after line {self.lines} were not read")

    async def _submit(self, lines: bytes, patient: bool) -> None:
        arrived_ns = time.time_ns()
        while True:
            try:
                receipt = await writer().submit(lines, source=self.source, arrived_ns=arrived_ns)
                break
            except Full:
                if not patient:
                    raise
        self.count(receipt, lines)

    def count(self, receipt: Receipt, lines: bytes) -> None:
        """Count the writer's receipt for the next lines."""
        self.accepted += receipt.accepted
        self.duplicates += receipt.duplicates
        for rejection in receipt.rejected:
            self.reject(self.lines + rejection.line, rejection.error)
        self.lines += lines.count(b"\n")

    def count_as_one(self, receipt: Receipt) -> None:
        """Count the writer's receipt for events that all came from the next line."""
        self.accepted += receipt.accepted
        self.duplicates += receipt.duplicates
        for rejection in receipt.rejected:
            self.reject(self.lines + 1, rejection.error)

    def reject(self, line: int, error: str) -> None:
        """Count one line that was not taken."""
        if len(self.rejected) < MAX_REJECTIONS:
            self.rejected.append({"line": line, "error": error})
        else:
            self.rejected_more += 1

    def reject_too_long(self, lines: Lines) -> None:
        """Count the lines that were longer than a line may be."""
        for number in lines.too_long:
            self.reject(number, f"the line is longer than {conf.MAX_BODY} bytes")
        lines.too_long.clear()

    def answer(self, error: str | None = None) -> dict[str, Any]:
        """The answer as the doors give it; `error` says why not everything was taken."""
        told: dict[str, Any] = {
            "accepted": self.accepted,
            "duplicates": self.duplicates,
            "rejected": sorted(self.rejected, key=_line),
        }
        if self.rejected_more:
            told["rejected_more"] = self.rejected_more
        return told if error is None else {"error": error, **told}


def pieces(lines: bytes) -> Iterator[bytes]:
    """The same lines in pieces of at most PIECE_LINES lines and PIECE_BYTES, but for a line longer than that."""
    start = 0
    while start < len(lines):
        end, limit = start, start + PIECE_BYTES
        for _ in range(PIECE_LINES):
            found = lines.find(b"\n", end, limit)
            if found < 0:
                break
            end = found + 1
        if end == start:
            end = lines.find(b"\n", limit) + 1 or len(lines)
        yield lines[start:end]
        start = end


def _line(rejection: dict[str, Any]) -> int:
    return int(rejection["line"])
