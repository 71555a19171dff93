from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from relayweb import conf


class Command(BaseCommand):
    help = "Serve doors, gateway, pages and API until told to stop (SIGTERM or Ctrl-C)."
    requires_system_checks: list[str] = []  # a second of every start; `relayweb check` does not need a server

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--host", default="127.0.0.1", help="address to listen at (default: %(default)s)")
        parser.add_argument("--port", type=int, default=8000, help="port to listen at (default: %(default)s)")
        parser.add_argument("--demo", action="store_true", help="make some turns with the demo provider, for a look")

    def handle(self, *args: Any, **options: Any) -> None:
        conf.allow_host(options["host"])
        self.options = options
        from relayweb import server

        try:
            server.serve(options["host"], options["port"], self.ready)
        except OSError as error:
            raise CommandError(str(error)) from None

    def ready(self, host: str, port: int) -> None:
        base = conf.remember_served_url(host, port)
        self.stdout.write(f"relayweb is at {base}")
        self.stdout.flush()
