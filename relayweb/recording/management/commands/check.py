from __future__ import annotations

from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.core.management.commands import check

from relayweb import commands
from relayweb.recording import integrity


class Command(check.Command):
    help = "Django's own checks, then the integrity of the record: reads everything, changes nothing."
    suppressed_base_arguments = commands.DJANGOS_OPTIONS

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--system-only", action="store_true", help="only Django's own checks")

    def handle(self, *app_labels: Any, **options: Any) -> None:
        super().handle(*app_labels, **options)
        if options["system_only"] or app_labels or options["tags"] or options["list_tags"] or options["deploy"]:
            return
        found = 0
        for kind, where in integrity.problems(lambda name, count: self.stdout.write(f"{name}: {count} looked at")):
            found += 1
            self.stderr.write(self.style.ERROR(f"{kind}: {where}"))
        if found:
            raise CommandError(f"the record has {found} problems; what can still be read is in `relayweb export`")
        self.stdout.write(self.style.SUCCESS("the record is whole"))
