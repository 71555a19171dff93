"""`relayweb upstream set NAME --base-url URL --api-mode MODE`, `… remove NAME`, `… list`."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import CommandError

from relayweb import commands
from relayweb.gateway.models import Upstream


class Command(commands.Command):
    help = "Name the providers the gateway may call. A running server uses a change at once."

    def add_arguments(self, parser: ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True)
        one = actions.add_parser("set", help="add an upstream, or change the one of this name")
        one.add_argument("name", help="the part of the gateway's URL that names it: /gw/NAME/…")
        one.add_argument("--base-url", required=True, help="as the provider gives it, for example https://host/v1")
        one.add_argument("--api-mode", required=True, choices=Upstream.ApiMode.values, help="its main wire format")
        gone = actions.add_parser("remove", help="take an upstream away; what was recorded of it stays")
        gone.add_argument("name")
        actions.add_parser("list", help="print all of them")

    def handle(self, *args: Any, action: str, **options: Any) -> None:
        if action == "list":
            for upstream in Upstream.objects.all():
                off = "" if upstream.enabled else "\tdisabled"
                self.stdout.write(f"{upstream.name}\t{upstream.api_mode}\t{upstream.base_url}{off}")
            return
        if action == "remove":
            self.remove(options["name"])
            return
        self.set(options["name"], options["base_url"], options["api_mode"])

    def remove(self, name: str) -> None:
        if not Upstream.objects.filter(name=name).delete()[0]:
            known = ", ".join(Upstream.objects.values_list("name", flat=True)) or "none"
            raise CommandError(f"there is no upstream {name}; there are: {known}")
        self.stdout.write(f"{name} is gone; calls to /gw/{name}/… are refused from now on")

    def set(self, name: str, base_url: str, api_mode: str) -> None:
        upstream = Upstream.objects.filter(name=name).first() or Upstream(name=name)
        upstream.base_url, upstream.api_mode, upstream.enabled = base_url, api_mode, True
        try:
            upstream.full_clean()
        except ValidationError as error:
            places = {"name": "NAME", "base_url": "--base-url", "api_mode": "--api-mode"}
            raise CommandError(
                "; ".join(
                    f"{places.get(field, field)}: {' '.join(texts)}" for field, texts in error.message_dict.items()
                )
            ) from None
        upstream.save()
        self.stdout.write(f"{upstream.name} → {upstream.base_url} ({upstream.api_mode}), at /gw/{upstream.name}/…")
