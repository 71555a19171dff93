"""Marks `relay.chunks`: the content of streamed chunks, a few at a time, while they arrive."""

from __future__ import annotations

import threading
import time
from typing import Any

from adapters import faults, marks
from adapters.scopes import emit
from adapters.secret_arguments import SecretArguments

INTERVAL = 0.04
"""Seconds after which a chunk is shown at the latest."""
MOST = 64
"""Chunks in one mark."""


class ChunkMarks:
    """Collects the chunks of one stream and emits them under its llm scope, 64 chunks or 40 ms at a time.

    `context` is the propagation context of the llm scope. With `redacted` the marks hold the length of each chunk, not
    its content. Never raises.
    """

    def __init__(self, relay: Any, context: Any, *, redacted: bool = False) -> None:
        self._relay = relay
        self._context = context
        self._redacted = redacted
        self._secrets = SecretArguments()
        self._lock = threading.Lock()
        self._chunks: list[Any] = []
        self._escaped: list[str] = []
        self._first = 0
        self.due = 0.0

    def add(self, chunk: Any, escaped: list[str] = ()) -> None:  # type: ignore[assignment]
        """Take one chunk, JSON that Relay can hold; `escaped` are the pointers within it that are not literal."""
        with self._lock:
            if escaped:
                self._escaped += [f"/{len(self._chunks)}{pointer}" for pointer in escaped]
            self._chunks.append({"length": _length(chunk)} if self._redacted else self._secrets.hide(chunk))
            count = len(self._chunks)
        if count >= MOST:
            self.flush()
        elif count == 1:
            self.due = time.monotonic() + INTERVAL
            _FLUSHER.watch(self)

    def flush(self) -> None:
        """Emit what is held, if anything."""
        with self._lock:
            if not self._chunks:
                return
            data: dict[str, Any] = {"first": self._first, "chunks": self._chunks}
            if self._escaped:
                data["escaped"] = self._escaped
            if self._redacted:
                data["redacted"] = True
            self._first += len(self._chunks)
            self._chunks, self._escaped = [], []
        # Not under the lock: Relay takes its time with many chunks, and the next ones must not wait for it.
        try:
            emit(self._relay, self._context, marks.CHUNKS, data)
        except Exception as error:
            faults.note("mark", error)


def _length(chunk: Any) -> int:
    """Characters of text in a chunk: all its strings but identifiers are short, so all of them are counted."""
    if isinstance(chunk, str):
        return len(chunk)
    if isinstance(chunk, dict):
        return sum(_length(value) for value in chunk.values())
    if isinstance(chunk, list):
        return sum(_length(value) for value in chunk)
    return 0


class _Flusher:
    """One thread that flushes what is due, so that a consumer that blocks delays nothing. It ends when idle."""

    def __init__(self) -> None:
        self._lock = threading.Condition()
        self._watched: list[ChunkMarks] = []
        self._thread: threading.Thread | None = None

    def watch(self, chunks: ChunkMarks) -> None:
        with self._lock:
            self._watched.append(chunks)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="relay-chunks", daemon=True)
                self._thread.start()
            elif len(self._watched) == 1:
                self._lock.notify()

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._watched and not self._lock.wait_for(lambda: self._watched, timeout=5.0):
                    self._thread = None
                    return
                pause = self._watched[0].due - time.monotonic()
                due = [self._watched.pop(0)] if pause <= 0 else []
            if due:
                due[0].flush()
            else:
                time.sleep(pause)


_FLUSHER = _Flusher()
