from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from relayweb import commands, conf
from relayweb.access import links, permissions


class Command(commands.Command):
    help = "Print a link that logs one person in, once, within half an hour."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--user", default="admin", help="the person's name; made when missing")
        parser.add_argument("--role", choices=permissions.GROUPS, help="what a new person may do (default: admin)")
        parser.add_argument("--url", help="where the browser reaches the server; default: where it listens")

    def handle(self, *args: Any, **options: Any) -> None:
        user, role = options["user"], options["role"]
        has = links.role_of(user)
        if role and has and role != has:
            raise CommandError(
                f"{user!r} is {has} already; name another person with --user, or change this one in the admin"
            )
        base = (options["url"] or conf.served_url()).rstrip("/")
        self.stdout.write(base + links.create(user, role or "admin"))
