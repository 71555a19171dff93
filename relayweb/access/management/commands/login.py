from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from relayweb import conf
from relayweb.access import links, permissions


class Command(BaseCommand):
    help = "Print a link that logs one person in, once, within half an hour."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--user", default="admin", help="the person's name; made when missing")
        parser.add_argument("--role", default="admin", choices=permissions.GROUPS, help="what a new person may do")
        parser.add_argument("--url", help="where the browser reaches the server; default: where it listens")

    def handle(self, *args: Any, **options: Any) -> None:
        base = (options["url"] or conf.served_url()).rstrip("/")
        self.stdout.write(base + links.create(options["user"], options["role"]))
