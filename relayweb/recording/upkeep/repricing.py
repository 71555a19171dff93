"""Costs worked out again from the price table in force, in short transactions like any other writing."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

from django.db import connection
from django.db.models import Q

from relayweb.recording.conventions import details, pricing, settle
from relayweb.recording.conventions.usage import FIELDS, Usage
from relayweb.recording.events.atof import START
from relayweb.recording.models import Role, Scope
from relayweb.recording.projection import facts
from relayweb.recording.projection.nodes import Node
from relayweb.recording.store.tables import Tables
from relayweb.recording.writing.recorder import Recorder

log = logging.getLogger(__name__)

SLICE = 500  # attempts in one transaction
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Repricer(Recorder):
    """A writer that changes costs only. Other writers notice, as they do when another process records."""

    def reprice(self, attempts: Sequence[UUID], table: pricing.Table) -> int:
        """Price these attempts, in one transaction; returns how many have another cost now."""
        try:
            ledger = self.begin()
            uuids = [uuid.bytes for uuid in attempts]
            self.prefetch(uuids)
            count = sum(self._reprice(node, table) for uuid in uuids if (node := self.find(uuid)) is not None)
            self._commit(ledger)
            return count
        except BaseException:
            self.abandon()
            self.tables.rollback()
            raise

    def _reprice(self, node: Node, table: pricing.Table) -> bool:
        if node.price_version == pricing.RELAY:
            return False
        learned = self._learn(node, table)
        if node.price_version == table.version and not learned:
            return False
        usage = Usage(
            **{name: getattr(node, name) for name in FIELDS},
            complete=bool(node.usage_complete),
            cache_write_1h_tokens=node.cache_write_1h_tokens,
            details=details.stored(node.usage_details),
            tier=node.service_tier,
        )
        day = (_EPOCH + timedelta(microseconds=node.start_us or node.last_us)).date()
        cost = table.cost(node.model, node.provider, usage, day)
        if cost == node.cost_pusd and not learned:
            return False
        self._seq += 1
        node.seq, node.cost_pusd = self._seq, cost
        node.price_version = None if cost is None else table.version
        node.wasted_pusd = cost if node.status in ("failed", "cancelled", "interrupted") else None
        self.changed(node)
        return True

    def _learn(self, node: Node, table: pricing.Table) -> bool:
        """What the log says that decides the price, of an attempt that an earlier version recorded."""
        before = _priced_by(node)
        hour = node.cache_write_tokens and node.cache_write_1h_tokens is None
        if any(before[1:]) or (not hour and _name(node.price_version) == _name(table.version)):
            return False
        self.revive(node)
        usage = settle(node.end, node.stream, node.failed[2] if node.failed else None).usage
        node.cache_write_1h_tokens = usage.cache_write_1h_tokens
        node.usage_details = usage.details.text() if usage.details is not None else None
        node.service_tier = usage.tier or self._asked_tier(node)
        return _priced_by(node) != before

    def _asked_tier(self, node: Node) -> str | None:
        said = self._said(node.start_seq)
        if said is None or said[0].kind != START:
            return None
        event, packed, _ = said
        return facts.read_scope(event, packed, facts.metadata_of(event.envelope)).service_tier


def _priced_by(node: Node) -> tuple[int | None, str | None, str | None]:
    return node.cache_write_1h_tokens, node.usage_details, node.service_tier


def _name(version: str | None) -> str | None:
    """Of the list prices that a version of the table began with."""
    return version.rpartition(".")[0] if version else None


_SPLIT_UNKNOWN = Q(cache_write_tokens__gt=0, cache_write_1h_tokens__isnull=True)


def reprice(since_us: int | None = None) -> Iterator[tuple[int, int]]:
    """Price all attempts that Relay did not price itself, the newest table in force for each one's day.

    Args:
        since_us: only attempts that began at or after this time, in µs since 1970.

    Yields:
        After each transaction: attempts looked at, and of them changed.
    """
    pricing.forget()
    table, repricer = pricing.table(), Repricer(Tables(connection))
    older = Q(price_version__isnull=True) | ~Q(price_version=table.version)
    wanted = Scope.objects.filter(older | _SPLIT_UNKNOWN, role=Role.ATTEMPT, total_tokens__isnull=False)
    if since_us is not None:
        wanted = wanted.filter(start_us__gte=since_us)
    after = UUID(int=0)
    while some := list(wanted.filter(uuid__gt=after).order_by("uuid").values_list("uuid", flat=True)[:SLICE]):
        yield len(some), repricer.reprice(some, table)
        after = some[-1]


_running = threading.Lock()


def reprice_in_background() -> bool:
    """Begin to price everything in a thread of this process; False if that goes on already."""
    if not _running.acquire(blocking=False):
        return False
    threading.Thread(target=_run, name="relayweb-reprice", daemon=True).start()
    return True


def _run() -> None:
    try:
        changed = sum(count for _, count in reprice())
        log.info("costs worked out again: %s attempts changed", changed)
    except Exception:
        log.exception("working out costs again failed; what was done stays, and it can be started again")
    finally:
        connection.close()
        _running.release()
