from __future__ import annotations

from collections import Counter
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.core.management.commands import check

from relayweb import commands
from relayweb.recording.upkeep import integrity


class Command(check.Command):
    help = "Django's own checks, then the integrity of the record: reads everything; changes nothing without --repair."
    suppressed_base_arguments = commands.DJANGOS_OPTIONS

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--system-only", action="store_true", help="only Django's own checks")

        parser.add_argument(
            "--repair",
            action="store_true",
            help="first make rows anew that are not what the recorded events say, and drop what nothing refers to",
        )

    def handle(self, *app_labels: Any, **options: Any) -> None:
        super().handle(*app_labels, **options)
        if options["system_only"] or app_labels or options["tags"] or options["list_tags"] or options["deploy"]:
            return
        if options["repair"]:
            self._repair()
        found = Counter[bool]()
        for kind, where in integrity.problems(lambda name, count: self.stdout.write(f"{name}: {count} looked at")):
            found[kind in integrity.LOG] += 1
            self.stderr.write(self.style.ERROR(f"{kind}: {where}"))
        if found:
            raise CommandError(f"the record has {found.total()} problems; {_advice(found[True])}")
        self.stdout.write(self.style.SUCCESS("the record is whole"))

    def _repair(self) -> None:
        try:
            done = integrity.mend(lambda name, count: self.stderr.write(f"{name}: {count}", ending="\r"))
        except integrity.Damaged as error:
            for line in error.args[0]:
                self.stderr.write(self.style.ERROR(line))
            raise CommandError(
                f"nothing was repaired, because the events themselves are damaged; {_advice(1)}"
            ) from None
        self.stdout.write(
            f"made {done.rows} rows anew, put {done.marks} flags and block rows right, "
            f"dropped {done.contents} contents that nothing refers to"
        )


def _advice(lost: int) -> str:
    if lost:
        return "what can still be read is in `relayweb export`; `relayweb restore` puts a backup back"
    return "`relayweb check --repair` makes them anew from the recorded events"
