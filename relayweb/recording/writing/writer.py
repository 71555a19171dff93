"""The one writer of the record: a thread with a connection of its own that commits whatever is waiting.

Doors wait for the commit (`submit`); events of this process are taken without ever waiting (`offer`). Each has a queue
of its own, bounded in bytes, so neither can crowd out the other. A batch is what has gathered while the last one was
written: small when little comes, large under load.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

from django.db import connections

from relayweb import conf
from relayweb.recording.store.tables import Tables
from relayweb.recording.writing.copies import RunRecorder
from relayweb.recording.writing.recorder import Line, Recorder
from relayweb.recording.writing.submissions import Full, Job, Receipt

log = logging.getLogger(__name__)

BATCH_EVENTS, BATCH_BYTES = 2_000, 4 * 1024 * 1024
LANE_BYTES = 64 * 1024 * 1024
HOLD = 2.0  # seconds a full door is held open before its sender is sent away
LINGER = 0.03  # seconds between commits for events of this process, whose commit nobody waits for
GIVE_UP = 5.0  # seconds an answer waits for a database that does not take anything
_TRIED = 8  # events with which a database that took nothing is tried again


class Writer:
    """Takes events from anywhere and records them, in one thread. All methods may be called from any thread."""

    def __init__(self) -> None:
        self._doors: deque[Job] = deque()
        self._ending: list[Job] = []
        """Jobs whose last lines are in the batch in hand."""
        self._offered: deque[tuple[bytes, int]] = deque()
        self._door_bytes = self._offered_bytes = 0
        self._lock = threading.Lock()
        self._work = threading.Event()
        self._urgent = threading.Event()
        self._progress = threading.Condition()
        self._put = Counter[str]()
        self._done = Counter[str]()
        self._counts = Counter[str]()
        self._subscribers: list[Callable[[int], None]] = []
        self._thread: threading.Thread | None = None
        self._closing = False
        self._trouble: str | None = None
        self._seq = 0
        self._files = False

    # Lifecycle

    def start(self) -> None:
        """Start the thread, unless it runs."""
        with self._lock:
            if self._thread is not None and self._thread.is_alive():
                return
            # Parsed events held in queues made full collections stall the event loop for 100 ms; frozen, 13 ms.
            if not gc.get_freeze_count():  # once: what is frozen is never collected
                gc.collect()
                gc.freeze()
            gc.set_threshold(20_000, 5, 10)
            self._closing = False
            self._thread = threading.Thread(target=self._run, name="relayweb-writer", daemon=True)
            self._thread.start()

    def close(self, timeout: float = 10.0) -> None:
        """Record what is waiting, for at most `timeout` seconds, and stop. May be called again, and started again."""
        thread = self._thread
        if thread is None:
            return
        self._closing = True
        self._work.set()
        self._urgent.set()
        thread.join(timeout)
        if not thread.is_alive():
            self._thread = None

    # Taking events

    async def submit(self, data: bytes, *, source: str = "post", arrived_ns: int | None = None) -> Receipt:
        """Record NDJSON, or one event; resolves after the commit.

        Args:
            data: lines of ATOF.
            source: post, websocket, …; what comes from a "file" counts as silent at once.
            arrived_ns: when it arrived, in ns since 1970; now, unless given.

        Raises:
            Full: the queue stayed full for two seconds, or the database takes nothing.
        """
        deadline = time.monotonic() + HOLD
        while self._is_full(len(data)):
            if time.monotonic() > deadline:
                raise self._full()
            await asyncio.sleep(0.02)
        return await asyncio.wrap_future(self._enqueue(data, source, arrived_ns).done)

    def submit_sync(self, data: bytes, *, source: str = "file", arrived_ns: int | None = None) -> Receipt:
        """As `submit`, for a caller without an event loop."""
        deadline = time.monotonic() + HOLD
        while self._is_full(len(data)):
            if time.monotonic() > deadline:
                raise self._full()
            time.sleep(0.02)
        return self._enqueue(data, source, arrived_ns).done.result()

    def offer(self, event_json: str | bytes) -> None:
        """Take one event of this process: never waits, never raises. What finds no room is counted as dropped."""
        try:
            data = event_json.encode("utf-8", "replace") if isinstance(event_json, str) else event_json
            if self._thread is None:
                self.start()
            if self._offered_bytes + len(data) > LANE_BYTES:
                self._counts["dropped"] += 1
                return
            with self._lock:
                self._offered_bytes += len(data)
                self._put["offered"] += 1
                self._offered.append((data, time.time_ns() // 1000))
            if not self._work.is_set():
                self._work.set()
        except Exception:
            self._counts["dropped"] += 1

    def _is_full(self, size: int) -> bool:
        return self._door_bytes > 0 and self._door_bytes + size > LANE_BYTES

    def _full(self) -> Full:
        self._counts["refused"] += 1
        return Full(5 if self._trouble else 1, self._trouble or "the record is busy: its queue has been full for 2 s")

    def _enqueue(self, data: bytes, source: str, arrived_ns: int | None) -> Job:
        self.start()
        arrived_us = 0 if source == "file" else (arrived_ns or time.time_ns()) // 1000
        self._files = self._files or source == "file"
        job = Job(data, arrived_us)
        with self._lock:
            self._door_bytes += job.size
            self._put["doors"] += 1
            self._doors.append(job)
        self._work.set()
        self._urgent.set()
        return job

    # Waiting and watching

    def flush_sync(self, timeout: float = 30.0) -> bool:
        """Wait until everything taken so far is recorded; False if that took longer than `timeout` seconds."""
        with self._lock:
            want = dict(self._put)
        self._urgent.set()
        with self._progress:
            return self._progress.wait_for(lambda: all(self._done[k] >= n for k, n in want.items()), timeout)

    async def flush(self) -> bool:
        return await asyncio.to_thread(self.flush_sync)

    def subscribe(self, callback: Callable[[int], None]) -> Callable[[], None]:
        """Have `callback` called in the writer's thread after each commit, with the newest number.

        Returns:
            a function that ends it.
        """
        self._subscribers.append(callback)

        def unsubscribe() -> None:
            with contextlib.suppress(ValueError):
                self._subscribers.remove(callback)

        return unsubscribe

    def counters(self) -> dict[str, int]:
        """events, duplicates, rejected, batches, dropped, refused, errors, interrupted, queued_bytes, seq."""
        names = ("events", "duplicates", "rejected", "batches", "dropped", "refused", "errors", "interrupted")
        counts = {name: self._counts[name] for name in names}
        return {**counts, "queued_bytes": self._door_bytes + self._offered_bytes, "seq": self._seq}

    def state(self) -> dict[str, Any]:
        """`status` ok or degraded, with the `reason` and the counters."""
        dropped = self._counts["dropped"]
        reason = self._trouble or (
            f"{dropped} events of this process found no room and were dropped" if dropped else None
        )
        status = "degraded" if self._trouble else "ok"
        return {"status": status, "reason": reason, **self.counters()}

    # The thread

    def _run(self) -> None:
        connection = connections["default"]
        recorder = RunRecorder(Tables(connection))
        swept = begun = 0.0
        try:
            while True:
                if 0 < len(self._offered) < BATCH_EVENTS and not self._doors and not self._closing:
                    self._urgent.wait(max(0.0, begun + LINGER - time.monotonic()))
                self._urgent.clear()
                begun = time.monotonic()
                closing = self._closing  # asked first: what came before it was said is in the batch then
                batch, offered = self._gather()
                if batch:
                    self._write(recorder, batch)
                    self._finish(offered)
                    continue
                if closing:
                    break
                if time.monotonic() - swept > _sweep_every():
                    self._sweep(recorder, force=False)
                    swept = time.monotonic()
                self._work.wait(min(_sweep_every(), self._clear_up(recorder)))
                self._work.clear()
            if self._files:
                self._sweep(recorder, force=True)
        except Exception:
            log.exception("the writer stopped")
            self._trouble = "the writer stopped; see the log"
        finally:
            self._abort_doors("the writer has stopped")
            connection.close()

    def _gather(self) -> tuple[list[Line], int]:
        """The next batch: lines of both lanes, and how many of them were offered.

        Only this thread takes anything out of the queues, so the lock, for which senders wait, is held for the counts.
        """
        batch: list[Line] = []
        size = 0
        share, most = (2, BATCH_BYTES // 2) if self._doors else (1, BATCH_BYTES)
        while self._offered and len(batch) < BATCH_EVENTS // share and size < most:
            data, arrived_us = self._offered.popleft()
            batch.append(Line(data, arrived_us))
            size += len(data)
        offered, offered_bytes = len(batch), size
        while self._doors and len(batch) < BATCH_EVENTS and size < BATCH_BYTES:
            job = self._doors[0]
            job.open()
            while job.at < len(job.lines) and len(batch) < BATCH_EVENTS and size < BATCH_BYTES:
                line = job.lines[job.at]
                job.at += 1
                if line.error is None:
                    batch.append(line)
                    size += len(line.text)
            if job.at < len(job.lines):
                break
            self._ending.append(self._doors.popleft())
        with self._lock:
            self._offered_bytes -= offered_bytes
            if not batch:  # only blank lines, or none
                self._settle_ending()
        return batch, offered

    def _write(self, recorder: Recorder, batch: list[Line]) -> None:
        """Record a batch, however long the database refuses; an event that cannot be recorded is rejected alone.

        What the database refused is tried again with a few lines, so that trying costs the agent next to nothing.
        """
        pause, since = 0.1, time.monotonic()
        refused, at = False, 0
        while at < len(batch):
            some = batch[at : at + _TRIED] if refused else batch[at:]
            try:
                self._seq = self._record(recorder, some)
                if self._trouble:
                    log.warning("the record takes events again")
                self._trouble, refused = None, False
                at += len(some)
                continue
            except recorder.tables.unavailable as error:
                refused = True
                self._counts["errors"] += 1
                if self._trouble is None:
                    log.error("the record cannot be written: %s", error)
                self._trouble = recorder.tables.explain(error)
            if time.monotonic() - since > GIVE_UP:
                self._abort_doors(self._trouble)
            if self._closing:
                break
            time.sleep(pause)
            pause = min(pause * 2, 2.0)
        self._tell_subscribers()

    def _tell_subscribers(self) -> None:
        for callback in list(self._subscribers):
            try:
                callback(self._seq)
            except Exception:
                log.exception("a subscriber of the record failed")

    def _record(self, recorder: Recorder, lines: list[Line]) -> int:
        try:
            seq = recorder.record(lines)
        except recorder.tables.unavailable:
            raise
        except Exception as error:
            if len(lines) > 1:
                half = len(lines) // 2
                self._record(recorder, lines[:half])
                return self._record(recorder, lines[half:])
            log.exception("an event could not be recorded")
            lines[0].error = f"could not be recorded: {type(error).__name__}"
            seq = self._seq
        self._counts["batches"] += 1
        for line in lines:
            self._counts["rejected" if line.error else "duplicates" if line.duplicate else "events"] += 1
        return seq

    def _finish(self, offered: int) -> None:
        with self._lock:
            self._settle_ending()
            self._done["offered"] += offered
        with self._progress:
            self._progress.notify_all()

    def _settle_ending(self) -> None:
        for job in self._ending:
            self._settle(job, self._trouble)
        self._ending = []

    def _settle(self, job: Job, trouble: str | None) -> None:
        """Answer a job. Its sender may have gone meanwhile."""
        self._door_bytes -= job.size
        self._done["doors"] += 1
        if job.done.set_running_or_notify_cancel():
            if trouble:
                job.done.set_exception(Full(5, trouble))
            else:
                job.done.set_result(job.receipt())

    def _abort_doors(self, reason: str | None) -> None:
        """Send waiting senders away, those of the batch in hand too: nothing of theirs has been acknowledged.

        What is in hand is tried further; sent again, it is a duplicate.
        """
        with self._lock:
            for job in (*self._ending, *self._doors):
                self._settle(job, reason or "the record cannot be written")
            self._ending = []
            self._doors.clear()

    def _sweep(self, recorder: Recorder, *, force: bool) -> None:
        now_us = time.time_ns() // 1000
        silent_us = 1 if force else now_us - conf.INTERRUPT_AFTER * 1_000_000
        try:
            count = recorder.sweep(now_us, silent_us, 0 if force else int(_sweep_every() * 900_000))
        except recorder.tables.unavailable as error:
            self._trouble = recorder.tables.explain(error)
            return
        except Exception:
            log.exception("the sweep for interrupted calls failed")
            return
        self._trouble = None
        self._counts["interrupted"] += count
        if recorder.newest != self._seq:
            self._seq = recorder.newest
            self._tell_subscribers()

    def _clear_up(self, recorder: RunRecorder) -> float:
        """Tell anew what is in doubt, if it is time; returns after how many seconds to look again."""
        rest = recorder.clear_up_soon()
        if recorder.newest != self._seq:
            self._seq = recorder.newest
            self._tell_subscribers()
        return _sweep_every() if rest is None else rest


def _sweep_every() -> float:
    """Seconds between sweeps: a tenth of the silence that counts, between half a second and half a minute."""
    return min(max(conf.INTERRUPT_AFTER / 10, 0.5), 30.0)


_writer: Writer | None = None
_writer_lock = threading.Lock()


def writer() -> Writer:
    """The process's one writer, started on first use."""
    global _writer
    if _writer is None:
        with _writer_lock:
            if _writer is None:
                _writer = Writer()
    _writer.start()
    return _writer
