"""What all commands share, and the list of them."""

from __future__ import annotations

from django.core import management

DJANGOS_OPTIONS = {
    "--version",
    "--verbosity",
    "--settings",
    "--pythonpath",
    "--traceback",
    "--no-color",
    "--force-color",
    "--skip-checks",
}


class Command(management.BaseCommand):
    """A command of ours: its help shows its own options, and Django's, which work as well, only in Django's docs."""

    suppressed_base_arguments = DJANGOS_OPTIONS
    # They take a second of every start and look for mistakes in code, not in an installation.
    requires_system_checks: list[str] = []


def overview() -> str:
    """Our commands, each with the first sentence of its help."""
    ours = {name: app for name, app in management.get_commands().items() if str(app).startswith("relayweb")}
    helps = {name: management.load_command_class(str(app), name).help for name, app in ours.items()}
    lines = [f"  {name:<12}{' '.join(helps[name].split()).split('. ')[0].rstrip('.')}" for name in sorted(helps)]
    return "\n".join(
        [
            "usage: relayweb COMMAND [options]",
            "",
            *lines,
            "",
            "`relayweb COMMAND --help` tells more. State is in RELAYWEB_HOME, ~/.relayweb by default.",
            "Django's own commands work too: `relayweb help --commands`.",
        ]
    )
