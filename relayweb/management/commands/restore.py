from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError
from django.db import connections

from relayweb import backups, commands
from relayweb.database import ensure_migrated


class Command(commands.Command):
    help = "Put a copy made by `backup` in the place of the record. The server must not run."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("path", type=Path, help="the file to put back")

    def handle(self, *args: Any, **options: Any) -> None:
        connections.close_all()
        try:
            kept = backups.restore(options["path"])
        except backups.BackupError as error:
            raise CommandError(str(error)) from None
        ensure_migrated()
        self.stdout.write(f"restored {options['path']}")
        if kept:
            self.stdout.write(f"the record that was is kept as {kept}")
