"""The `relayweb` console script, the same as `python manage.py`."""

from __future__ import annotations

import os
import sys


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "relayweb.settings")
    os.umask(0o077)  # the record is its owner's, also in a folder that others may enter
    if len(sys.argv) > 1 and not {"help", "-h", "--help"} & set(sys.argv[1:]):
        _migrate_first(sys.argv[1])
    from django.core.management import execute_from_command_line

    if sys.argv[1:] in ([], ["help"], ["-h"], ["--help"]):
        import django

        django.setup()
        from relayweb.commands import overview

        print(overview())
        return
    execute_from_command_line(sys.argv)


def _migrate_first(command: str) -> None:
    """Every command of ours finds a database that is up to date; Django's own are left alone."""
    import django
    from django.core.management import get_commands

    django.setup()
    if str(get_commands().get(command, "")).startswith("relayweb"):
        from django.db import OperationalError

        from relayweb import backups
        from relayweb.database import TooOld, ensure_migrated

        if command == "restore":  # it wants the home to itself, and may find a database that is no more
            return
        backups.mark_in_use()
        try:
            ensure_migrated()
        except OperationalError as error:
            raise SystemExit(f"the database cannot be used: {error}\nCheck RELAYWEB_HOME and DATABASE_URL.") from None
        except TooOld as error:
            raise SystemExit(str(error)) from None
