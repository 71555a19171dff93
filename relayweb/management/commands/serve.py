from __future__ import annotations

import asyncio
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from relayweb import commands, conf, welcome


class Command(commands.Command):
    help = "Serve doors, gateway, pages and API until told to stop (SIGTERM or Ctrl-C)."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--host", default="127.0.0.1", help="address to listen at (default: %(default)s)")
        parser.add_argument("--port", type=int, default=8000, help="port to listen at (default: %(default)s)")
        parser.add_argument("--demo", action="store_true", help="keep making turns with the demo provider, for a look")

    def handle(self, *args: Any, **options: Any) -> None:
        from relayweb import server

        conf.allow_host(options["host"])
        try:
            server.serve(options["host"], options["port"], self.ready, demo=options["demo"])
        except OSError as error:
            raise CommandError(str(error)) from None

    async def ready(self, host: str, port: int) -> None:
        local = conf.remember_served_url(host, port)
        self.stdout.write(await asyncio.to_thread(welcome.text, local, always_link=self.stdout.isatty()))
        self.stdout.flush()
