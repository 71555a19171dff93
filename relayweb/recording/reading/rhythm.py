"""The rhythm of streams: the gaps between their chunks, and which of those are stalls.

Each stream's figures are worked out once, by the thread that also keeps the word index, a moment after its chunks were
recorded, and again when more of them come. A sum over many streams then opens no chunks.
"""

from __future__ import annotations

import math
import sys
from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from uuid import UUID

from django.db import connection, transaction

from relayweb.recording.models import ChunkBlock, Ledger, Stream
from relayweb.recording.reading import chunks

STALL_FACTOR = 5
STALL_LEAST_US = 250_000
"""A gap is a stall over five times the median gap and a quarter of a second; timeline and strip say the same."""
STALL_GAPS = 4
"""Gaps a stream must have before one of them can stand out."""

BATCH = 100  # streams of one transaction
_LOCK = 0x72687974  # of the process that does it, on PostgreSQL
_LEAST_US, _STEP = 100, 1.065
"""Gaps are counted on a logarithmic scale from a tenth of a millisecond to a quarter of an hour."""
ERROR = math.sqrt(_STEP) - 1
"""How far a percentile of many streams may be off, as a share: half a step of that scale."""


def stall_us(gaps: Sequence[int]) -> int | None:
    """What a gap of this stream must exceed to be a stall; None where there are too few gaps to say."""
    if len(gaps) < STALL_GAPS:
        return None
    return max(STALL_FACTOR * sorted(gaps)[math.ceil(len(gaps) / 2) - 1], STALL_LEAST_US)


# Many gaps as counts on a logarithmic scale ---------------------------------------------------------------------------


def pack(gaps: Sequence[int]) -> bytes:
    """How many gaps lie in each step of the scale: pairs of a step and a count, one byte each."""
    out = bytearray()
    for step, count in sorted(Counter(map(_step, gaps)).items()):
        while count:
            out += bytes((step, min(count, 255)))
            count -= min(count, 255)
    return bytes(out)


def _step(us: int) -> int:
    return 0 if us < _LEAST_US else min(255, 1 + int(math.log(us / _LEAST_US) / math.log(_STEP)))


def counts(packed: bytes | bytearray) -> Counter[int]:
    """How many gaps lie in each step, of what `pack` gave of many streams, one behind the other."""
    pairs = array("H", bytes(packed))
    if sys.byteorder == "big":
        pairs.byteswap()
    found: Counter[int] = Counter()
    for pair, times in Counter(pairs).items():
        found[pair & 0xFF] += (pair >> 8) * times
    return found


def percentile(counts: Counter[int], share: float, longest: int) -> int | None:
    """The gap (µs) of the nearest rank, off by at most `ERROR`; None of nothing."""
    wanted = max(1, math.ceil(share * counts.total()))
    if wanted == counts.total():
        return longest
    for step in sorted(counts):
        wanted -= counts[step]
        if wanted <= 0:
            return min(longest, round(_LEAST_US * _STEP ** (step - 0.5)) if step else _LEAST_US)
    return None


# Keeping up with the log ----------------------------------------------------------------------------------------------


def catch_up() -> bool:
    """Work out the streams that have had chunks since the last time, some of them; whether there may be more.

    Reading and measuring hold no writer up; the writes are one short transaction, given up if another process was
    faster. On PostgreSQL one process does it at a time; the others leave it to that one.
    """
    if not _touched(_reached()):  # asked before a lock is taken
        return False
    if connection.vendor != "postgresql":
        return _catch_up()
    with transaction.atomic():
        return _locked() and _catch_up()


def _catch_up() -> bool:
    after = _reached()
    touched = _touched(after)
    figures = measured(dict(touched))
    with transaction.atomic():
        if _reached() != after:
            return True
        if not after:  # nothing yet, or a record that is another one now
            Stream.objects.all().delete()
        kept = ChunkBlock.objects.filter(attempt_uuid__in=list(dict(touched)), kind=ChunkBlock.Kind.MARKS)
        still = set(kept.values_list("attempt_uuid", flat=True))  # a turn may have been forgotten meanwhile
        Stream.objects.bulk_create(
            [stream for stream in figures if stream.attempt_uuid in still],
            update_conflicts=True,
            unique_fields=["attempt_uuid"],
            update_fields=["seq", "count", "stalls", "stalled_us", "longest_us", "gaps"],
        )
    return len(touched) == BATCH


def _reached() -> int:
    """The newest chunk that was looked at; 0 where that is beyond the record, which then is another one."""
    reached = Stream.objects.order_by("-seq").values_list("seq", flat=True).first() or 0
    return reached if reached <= (Ledger.objects.values_list("seq", flat=True).first() or 0) else 0


def _touched(after: int) -> list[tuple[UUID, int]]:
    fresh = ChunkBlock.objects.filter(last_seq__gt=after, kind=ChunkBlock.Kind.MARKS).order_by("last_seq")
    return list(fresh.values_list("attempt_uuid", "last_seq")[:BATCH])


def _locked() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [_LOCK])
        return bool(cursor.fetchone()[0])


def measured(attempts: Mapping[UUID, int]) -> list[Stream]:
    """The figures of some streams from their chunks; each with the number up to which it was looked at."""
    moments: dict[UUID, dict[bytes, int]] = {}
    for block in ChunkBlock.objects.filter(attempt_uuid__in=list(attempts), kind=ChunkBlock.Kind.MARKS):
        of = moments.setdefault(block.attempt_uuid, {})
        for uuid, at_us in chunks.moments(block):
            of[uuid] = min(at_us, of.get(uuid, at_us))
    return [_stream(attempt, attempts[attempt], sorted(of.values())) for attempt, of in moments.items()]


def _stream(attempt: UUID, seq: int, moments: Sequence[int]) -> Stream:
    gaps = [b - a for a, b in pairwise(moments)]
    limit = stall_us(gaps)
    stalls = [gap for gap in gaps if limit is not None and gap > limit]
    return Stream(
        attempt_uuid=attempt,
        seq=seq,
        count=len(gaps),
        stalls=len(stalls),
        stalled_us=sum(stalls),
        longest_us=max(gaps, default=None),
        gaps=pack(gaps),
    )
