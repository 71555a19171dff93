"""Settings of the product itself, read once from the environment.

Every name is documented in docs/configuration.md. `RELAYWEB_HOME` holds all state; a fresh folder is a fresh install.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
from pathlib import Path


def _int(name: str, default: int) -> int:
    raw = os.environ.get(name, "")
    if not raw:
        return default
    try:
        return int(raw)
    except ValueError:
        raise SystemExit(
            f"{name}={raw!r} is not a whole number; unset it or give one, for example {name}={default}"
        ) from None


def _one_of(name: str, *choices: str) -> str:
    found = os.environ.get(name, "").upper() or choices[0]
    if found not in choices:
        raise SystemExit(f"{name}={found!r} is none of {', '.join(choices)}")
    return found


def _home() -> Path:
    home = Path(os.environ.get("RELAYWEB_HOME") or Path.home() / ".relayweb").expanduser().resolve()
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        if home.stat().st_mode & 0o077:
            home.chmod(0o700)
    except OSError as error:
        raise SystemExit(
            f"the folder {home} cannot be used ({error.strerror}); name another in RELAYWEB_HOME"
        ) from None
    return home


HOME: Path = _home()
"""Holds all state: database, secret key."""
DATABASE_URL: str = os.environ.get("DATABASE_URL", "")
"""A PostgreSQL database in place of SQLite in HOME, as postgres://user:password@host/name."""
REDIS_URL: str = os.environ.get("REDIS_URL", "")
"""A Redis by which several processes wake each other, follow conversations and count together (docs/scaling.md)."""
SYNCHRONOUS: str = _one_of("RELAYWEB_SYNCHRONOUS", "NORMAL", "FULL")
"""SQLite's synchronous mode. Under NORMAL a loss of power, not of the process, may lose the last moments."""
PUBLIC_URL: str = os.environ.get("RELAYWEB_URL", "").rstrip("/")
"""Where people reach the server, when that is not where it listens, as https://relay.example."""
ALLOWED_HOSTS: list[str] = [h for h in os.environ.get("RELAYWEB_HOSTS", "").split(",") if h]
"""Host names served beside localhost and that of RELAYWEB_URL, comma separated."""
LOG: str = _one_of("RELAYWEB_LOG", "TEXT", "JSON").lower()
"""How the log on standard error is written: lines for people, or a JSON object a line."""
INTERRUPT_AFTER: int = _int("RELAYWEB_INTERRUPT_AFTER", 900)
"""Seconds of silence after which a running scope reads interrupted."""
RETRY_WINDOW: int = _int("RELAYWEB_RETRY_WINDOW", 70)
"""Seconds a failed logical call of the gateway stays open for a retry."""
MAX_BODY: int = _int("RELAYWEB_MAX_BODY", 64 * 1024 * 1024)
"""Bytes a request body may have, at the doors and the gateway."""


def secret_key() -> str:
    """The Django secret key: RELAYWEB_SECRET_KEY, or one made at the first start, kept in HOME for its owner only."""
    if given := os.environ.get("RELAYWEB_SECRET_KEY"):
        return given
    path = HOME / "secret_key"
    if not path.exists():
        descriptor, draft = tempfile.mkstemp(dir=HOME)
        with open(descriptor, "w") as file:
            file.write(secrets.token_urlsafe(50))
        # Of two processes that start at once one links its key, whole, and both read that one.
        with contextlib.suppress(FileExistsError):
            os.link(draft, path)
        os.unlink(draft)
    return path.read_text()


def allow_host(host: str) -> None:
    """Serve requests for the address listened at, where it is one address and not all of them."""
    from django.conf import settings

    if host not in ("0.0.0.0", "::"):
        settings.ALLOWED_HOSTS.append(f"[{host}]" if ":" in host else host)


def served_url() -> str:
    """Where people reach the server of this HOME: RELAYWEB_URL, or where it listens or listened last."""
    if PUBLIC_URL:
        return PUBLIC_URL
    try:
        return (HOME / "served_url").read_text().strip()
    except FileNotFoundError:
        return "http://127.0.0.1:8000"


def remember_served_url(host: str, port: int) -> str:
    """Note where the server listens, for commands that print links; returns that URL."""
    name = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    url = f"http://{name}:{port}"
    (HOME / "served_url").write_text(url)
    return url
