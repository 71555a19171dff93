from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from relayweb import commands
from relayweb.access import tokens
from relayweb.access.models import Token


class Command(commands.Command):
    help = "Make, list and revoke the tokens programs use at the doors, the gateway and the API."

    def add_arguments(self, parser: ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True)
        create = actions.add_parser("create", help="make a token; its text is the last word printed, shown this once")
        create.add_argument("--scope", required=True, choices=Token.Scope.values)
        create.add_argument("--name", default="", help="what the token is for")
        create.add_argument("--per-minute", type=int, help="requests it is good for in a minute; default: any number")
        actions.add_parser("list", help="show all tokens, never their text")
        revoke = actions.add_parser("revoke", help="stop tokens from working")
        revoke.add_argument("token", nargs="+", help="number, as `token list` shows it, or name")

    def handle(self, *args: Any, **options: Any) -> None:
        getattr(self, options["action"])(options)

    def create(self, options: dict[str, Any]) -> None:
        name = options["name"] or options["scope"]
        per_minute = options["per_minute"]
        if per_minute is not None and per_minute < 1:
            raise CommandError("--per-minute is a whole number from 1 on; without it a token has no limit")
        self.stdout.write(f"{name}: {tokens.create(name, options['scope'], per_minute)}")

    def list(self, options: dict[str, Any]) -> None:
        if not Token.objects.exists():
            self.stdout.write("no tokens yet; `relayweb token create --scope gateway` (or ingest, read) makes one")
        for token in Token.objects.all():
            state = f"revoked {token.revoked_at:%Y-%m-%d %H:%M}" if token.revoked_at else "active"
            made = f"{token.created_at:%Y-%m-%d %H:%M}"
            self.stdout.write(f"{token.pk:>4}  {token.scope:<8} …{token.hint}  {made}  {state}  {token.name}")

    def revoke(self, options: dict[str, Any]) -> None:
        for wanted in options["token"]:
            match = {"pk": int(wanted)} if wanted.isdecimal() else {"name": wanted}
            found = list(Token.objects.filter(revoked_at=None, **match))
            if not found:
                raise CommandError(f"no active token {wanted!r}; `relayweb token list` shows them")
            for token in found:
                tokens.revoke(token)
                self.stdout.write(f"revoked {token}")
