"""Spans brought together with what is on record of the same run."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from relayweb.ingest.otlp.events import events, identity
from relayweb.ingest.otlp.spans import Span
from relayweb.recording.models import Scope


def lines_of(spans: Iterable[Span]) -> tuple[list[tuple[Span, bytes]], int]:
    """The events to record for some spans, each with its span, and how many are on record already.

    A run that is sent as ATOF and as OTLP is one run, and ATOF tells more: of a scope on record only an end that is
    missing is taken.
    """
    spans = list(spans)
    known = _known(spans)
    ended = dict(Scope.objects.filter(uuid__in={identity(s, known) for s in spans}).values_list("uuid", "end_seq"))
    wanted: list[tuple[Span, bytes]] = []
    duplicates = 0
    for span in spans:
        lines = events(span, known)
        uuid = identity(span, known)
        if uuid in ended:
            taken = lines[-1:] if ended[uuid] is None else []
            duplicates += len(lines) - len(taken)
            lines = taken
        wanted += [(span, line) for line in lines]
    return wanted, duplicates


def _known(spans: list[Span]) -> dict[bytes, UUID]:
    """UUIDs of scopes on record, by span id, for spans that tell half of theirs: Relay's "gen_ai" projection does."""
    traces = {s.trace_id for s in spans if len(s.trace_id) == 16 and "nemo_relay.uuid" not in s.attributes}
    roots = {UUID(bytes=trace) for trace in traces}
    homes = set(Scope.objects.filter(uuid__in=roots).values_list("turn_uuid", flat=True)) if roots else set()
    found: dict[bytes, UUID] = {}
    looked: set[UUID] = set()
    while homes:
        for uuid in Scope.objects.filter(turn_uuid__in=homes).values_list("uuid", flat=True):
            found[uuid.bytes[8:]] = uuid
        looked |= homes
        homes = set(Scope.objects.filter(parent_turn_uuid__in=homes).values_list("uuid", flat=True)) - looked
    return found
