from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError

from relayweb import commands
from relayweb.intercepts import transfer
from relayweb.intercepts.models import InterceptConfig, Value
from relayweb.recording.reading.query_language import QueryError


class Command(commands.Command):
    help = "Check, back-test, import and export intercept configs as TOML or JSON files."

    def add_arguments(self, parser: ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True)
        check = actions.add_parser("check", help="say what is wrong in files, changing nothing; exit 1 if anything is")
        check.add_argument("file", nargs="+", help=".toml or .json; - is standard input")
        test = actions.add_parser("back-test", help="run the configs of files over recorded requests; prints JSON")
        test.add_argument("file", nargs="+", help=".toml or .json; - is standard input")
        test.add_argument("--query", default="", help="which turns, as in the search of the list")
        test.add_argument("--limit", type=int, default=500, help="how many requests, the newest")
        load = actions.add_parser("import", help="put the configs of files in force, all or none")
        load.add_argument("file", nargs="+", help=".toml or .json; - is standard input")
        export = actions.add_parser("export", help="print all configs")
        export.add_argument("--format", choices=["toml", "json"], default="toml")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["action"] == "export":
            self.export(options["format"])
            return
        values = self.read(options["file"])
        if options["action"] == "check":
            self.stdout.write(f"{len(values)} intercept{'' if len(values) == 1 else 's'}, nothing wrong")
            return
        if options["action"] == "back-test":
            self.back_test(values, options["query"], options["limit"])
            return
        changed = transfer.apply(values, author="relayweb intercepts import", note="imported")
        self.stdout.write(f"{changed} of {len(values)} changed, in force within a second")

    def read(self, names: list[str]) -> list[Value]:
        values: list[Value] = []
        problems: list[str] = []
        for name in names:
            try:
                text = sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
                form: Any = {".toml": "toml", ".json": "json"}.get(Path(name).suffix)
                values += transfer.load(text, form)
            except transfer.FileError as error:
                problems += [f"{name}: {problem}" for problem in error.problems]
            except (OSError, UnicodeDecodeError) as error:
                problems.append(f"{name}: {error}")
        keys = [value["key"] for value in values]
        problems += [f"{key}: stands in more than one file" for key in sorted({k for k in keys if keys.count(k) > 1})]
        if problems:
            raise CommandError("\n".join(problems))
        return values

    def back_test(self, values: list[Value], query: str, limit: int) -> None:
        from relayweb.intercepts import backtest

        try:
            reports = {v["key"]: backtest.run(v, q=query, limit=limit).as_dict() for v in values}
        except QueryError as error:
            raise CommandError(f"--query: {error.message}") from None
        self.stdout.write(json.dumps(reports, indent=2))

    def export(self, form: transfer.Format) -> None:
        try:
            text = transfer.dump((config.value() for config in InterceptConfig.published()), form)
        except transfer.FileError as error:
            raise CommandError(str(error)) from None
        self.stdout.write(text, ending="")
