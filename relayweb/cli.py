"""The `relayweb` console script, the same as `python manage.py`."""

import os
import sys


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "relayweb.settings")
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)
