from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError

from relayweb import backups, commands


class Command(commands.Command):
    help = "Copy the record to a new file, while the server runs."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("path", type=Path, help="the file to make")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            size = backups.back_up(options["path"])
        except backups.BackupError as error:
            raise CommandError(str(error)) from None
        self.stdout.write(f"{options['path']}: {size} bytes")
