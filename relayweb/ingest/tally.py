"""What a sender is told about its events, summed over the pieces they came in."""

from __future__ import annotations

import time
from typing import Any

from relayweb import conf
from relayweb.ingest.reading import Lines
from relayweb.recording.submissions import Full, Receipt
from relayweb.recording.writer import writer

MAX_REJECTIONS = 1000
"""Lines named in an answer. More are counted in `rejected_more`."""


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
        """
        if not lines:
            return
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


def _line(rejection: dict[str, Any]) -> int:
    return int(rejection["line"])
