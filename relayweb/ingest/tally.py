"""What a sender is told about its events, summed over the pieces they came in."""

from __future__ import annotations

import time
from typing import Any

from relayweb.recording.writer import Full, writer

MAX_REJECTIONS = 1000
"""Lines named in an answer. More are counted in `rejected_more`."""


class Tally:
    """Submits lines piece by piece and counts lines from the first piece on."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.accepted = self.duplicates = self.rejected_more = 0
        self.rejected: list[dict[str, Any]] = []
        self._lines = 0

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
        self.add(receipt)
        self._lines += lines.count(b"\n")

    def add(self, receipt: Any) -> None:
        """Count one receipt of the writer."""
        self.accepted += receipt.accepted
        self.duplicates += receipt.duplicates
        for rejection in receipt.rejected:
            if len(self.rejected) < MAX_REJECTIONS:
                self.rejected.append({"line": self._lines + rejection.line, "error": rejection.error})
            else:
                self.rejected_more += 1

    def answer(self, error: str | None = None) -> dict[str, Any]:
        """The answer as the doors give it; `error` says why not everything was taken."""
        told: dict[str, Any] = {"accepted": self.accepted, "duplicates": self.duplicates, "rejected": self.rejected}
        if self.rejected_more:
            told["rejected_more"] = self.rejected_more
        return told if error is None else {"error": error, **told}
