from __future__ import annotations

import os
import sys
from argparse import ArgumentParser
from collections.abc import Callable, Iterator
from typing import Any

from django.core.management.base import CommandError

from relayweb import commands
from relayweb.ingest import export
from relayweb.ingest.export_atif import atif
from relayweb.ingest.export_otlp import otlp

FORMATS: dict[str, Callable[[export.Part], Iterator[bytes]]] = {"atof": export.atof, "otlp": otlp, "atif": atif}


class Command(commands.Command):
    help = (
        "Write recorded events to standard output: all of them, one turn or one session. What was masked stays masked."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--format",
            choices=FORMATS,
            default="atof",
            help="atof: every event, lossless (the default); otlp: OpenTelemetry spans; atif: trajectories",
        )
        which = parser.add_mutually_exclusive_group()
        which.add_argument("--turn", metavar="UUID", help="only this turn, its sub-agents included")
        which.add_argument("--session", metavar="ID", help="only the turns of this session")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            if options["turn"]:
                part = export.turn(options["turn"])
            elif options["session"]:
                part = export.session(options["session"])
            else:
                part = export.everything()
        except export.NothingThere as error:
            raise CommandError(str(error)) from None
        out = sys.stdout.buffer
        try:
            for line in FORMATS[options["format"]](part):
                out.write(line)
            out.flush()
        except BrokenPipeError:  # `relayweb export | head`: Python would complain once more when it closes the pipe
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
