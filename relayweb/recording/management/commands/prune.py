from __future__ import annotations

import re
import time
from argparse import ArgumentParser
from collections.abc import Iterator
from typing import Any
from uuid import UUID

from django.core.management.base import CommandError
from django.db import connection

from relayweb import commands
from relayweb.recording.reading import queries
from relayweb.recording.reading.query_language import QueryError
from relayweb.recording.upkeep import retention

_AGE = re.compile(r"(\d+)\s*([smhdw])")
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)i?b?")
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


class Command(commands.Command):
    help = "Forget old turns: by age, by size or by query; and content that nothing refers to any more."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--older-than", metavar="AGE", help="turns silent for longer than this: 30d, 12h, 2w")
        parser.add_argument("--max-size", metavar="SIZE", help="the oldest turns, until the record takes at most: 2GB")
        parser.add_argument("--query", metavar="Q", help="turns that a search finds: 'status:ok model:gpt-*'")
        parser.add_argument(
            "--vacuum",
            action="store_true",
            help="write the database anew without free room; recording waits, and it needs as much room again",
        )
        parser.add_argument("--quiet", action="store_true", help="print only what has gone in the end")

    def handle(self, *args: Any, **options: Any) -> None:
        report = (lambda _: None) if options["quiet"] else self._report
        started = time.monotonic()
        done = retention.Pruned()
        if options["older_than"]:
            cutoff = time.time() - _age(options["older_than"])
            done = retention.older_than(round(cutoff * 1_000_000), report)
        if options["query"] is not None:
            _add(done, retention.matching(list(_found(options["query"])), report))
        if options["max_size"]:
            _add(done, retention.down_to(_size(options["max_size"]), report))
        if not options["older_than"] and options["query"] is None and not options["max_size"]:
            retention.collect_garbage(done, report)
        if options["vacuum"]:
            retention.rewrite()
        given = retention.give_back()
        self.stdout.write(
            f"forgot {done.turns} turns, {done.scopes} scopes, {done.events} events and {done.contents} contents "
            f"in {time.monotonic() - started:.1f} s; the record takes {retention.used_bytes() / 1e6:.1f} MB"
        )
        if given:
            self.stdout.write(f"gave {given / 1e6:.1f} MB back to the disk")
        elif given is None and connection.vendor == "sqlite":
            self.stdout.write(
                "the file keeps its size, and its free room is used again; `relayweb prune --vacuum` shrinks it"
            )

    def _report(self, pruned: retention.Pruned) -> None:
        self.stderr.write(f"{pruned.turns} turns, {pruned.events} events, {pruned.contents} contents", ending="\r")


def _add(done: retention.Pruned, more: retention.Pruned) -> None:
    done.turns += more.turns
    done.scopes += more.scopes
    done.events += more.events
    done.contents += more.contents


def _age(text: str) -> int:
    match = _AGE.fullmatch(text.strip().lower())
    if match is None:
        raise CommandError(f"--older-than: {text!r} is no age; give a number and s, m, h, d or w, for example 30d")
    return int(match[1]) * _SECONDS[match[2]]


def _size(text: str) -> int:
    match = _SIZE.fullmatch(text.strip().lower())
    if match is None:
        raise CommandError(f"--max-size: {text!r} is no size; give a number and KB, MB or GB, for example 2GB")
    return round(float(match[1]) * _UNITS[match[2]])


def _found(query: str) -> Iterator[UUID]:
    cursor = None
    while True:
        try:
            page = queries.turns(query, limit=500, cursor=cursor)
        except QueryError as error:
            raise CommandError(f"--query: {error}") from None
        for turn in page["turns"]:
            yield UUID(turn["uuid"])
        cursor = page["next"]
        if cursor is None:
            return
