"""What is handed to the writer, and the answer to it."""

from __future__ import annotations

import time
from concurrent.futures import Future
from dataclasses import dataclass, field

import msgspec

from relayweb.recording.writing.recorder import Line


class Full(Exception):
    """The record cannot take more now. `retry_after` is in seconds."""

    def __init__(self, retry_after: int, reason: str) -> None:
        super().__init__(reason)
        self.retry_after = retry_after


@dataclass
class Rejection:
    line: int
    """1-based physical line, split at LF only, blank lines counted."""
    error: str


@dataclass
class Receipt:
    accepted: int = 0
    duplicates: int = 0
    rejected: list[Rejection] = field(default_factory=list)


class Job:
    """One submission: its lines by number once it is its turn, and the promise of an answer."""

    __slots__ = ("_arrived_us", "_data", "at", "done", "lines", "numbers", "size", "started")

    def __init__(self, data: bytes, arrived_us: int) -> None:
        self._data, self._arrived_us, self.size = data, arrived_us, len(data)
        self.numbers: list[int] = []
        self.lines: list[Line] = []
        self.at = 0
        self.started = time.monotonic()
        self.done: Future[Receipt] = Future()

    def open(self) -> None:
        """Split it into lines, unless that is done: not earlier, so that what waits is held once."""
        if self._data:
            self.numbers, self.lines = split(self._data, self._arrived_us)
            self._data = b""

    def receipt(self) -> Receipt:
        receipt = Receipt()
        for number, line in zip(self.numbers, self.lines, strict=True):
            if line.error is not None:
                receipt.rejected.append(Rejection(number, line.error))
            elif line.duplicate:
                receipt.duplicates += 1
            else:
                receipt.accepted += 1
        return receipt


class _Object(msgspec.Struct):
    """Any JSON object; its members are checked and not kept."""


_check_object = msgspec.json.Decoder(_Object).decode


def is_one_event(data: bytes) -> bool:
    """Whether a body is one JSON object that is spread over several lines, as people write it."""
    end = data.find(b"\n")
    if end < 0 or data[:end].rstrip().endswith(b"}"):
        return False
    try:
        _check_object(data)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def split(data: bytes, arrived_us: int) -> tuple[list[int], list[Line]]:
    """The lines of a body that are not blank, with their numbers. One event may also be spread over several lines."""
    if is_one_event(data):
        return [1], [Line(data.strip(), arrived_us)]
    numbers, lines = [], []
    for number, part in enumerate(data.split(b"\n"), 1):
        text = part.strip(b" \t\r")
        if text:
            numbers.append(number)
            lines.append(Line(text, arrived_us))
    return numbers, lines
