from __future__ import annotations

import time
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from relayweb import commands
from relayweb.recording.conventions import pricing
from relayweb.recording.reading.query_language import Compare, QueryError, parse
from relayweb.recording.upkeep.repricing import reprice


class Command(commands.Command):
    help = "Work out recorded costs again, from the price table as it is now. Costs that Relay gave stay."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--since", metavar="WHEN", help="only calls since then: 30d, 12h, 2026-11-01")

    def handle(self, *args: Any, **options: Any) -> None:
        since_us = _moment(options["since"]) if options["since"] else None
        looked = changed = 0
        for some, different in reprice(since_us):
            looked, changed = looked + some, changed + different
            time.sleep(0.005)  # let a serving process record between two slices
        self.stdout.write(f"price table {pricing.table().version}: {changed} of {looked} attempts changed")


def _moment(text: str) -> int:
    try:
        (term,) = parse(f'since:"{text}"').terms
    except (QueryError, ValueError) as error:
        raise CommandError(f"--since: {error}") from None
    assert isinstance(term, Compare)
    return int(term.value)
