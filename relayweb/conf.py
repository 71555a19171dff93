"""Settings of the product itself, read once from the environment.

Every name is documented in docs/configuration.md. `RELAYWEB_HOME` holds all state; a fresh folder is a fresh install.
"""

from __future__ import annotations

import os
import secrets
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


def _home() -> Path:
    home = Path(os.environ.get("RELAYWEB_HOME") or Path.home() / ".relayweb").expanduser().resolve()
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    return home


HOME: Path = _home()
DATABASE_URL: str = os.environ.get("DATABASE_URL", "")
REDIS_URL: str = os.environ.get("REDIS_URL", "")
ALLOWED_HOSTS: list[str] = [h for h in os.environ.get("RELAYWEB_HOSTS", "").split(",") if h]
"""Host names served beside localhost, comma separated."""
INTERRUPT_AFTER: int = _int("RELAYWEB_INTERRUPT_AFTER", 900)
"""Seconds of silence after which a running scope reads interrupted."""
RETRY_WINDOW: int = _int("RELAYWEB_RETRY_WINDOW", 70)
"""Seconds a failed logical call of the gateway stays open for a retry."""
MAX_BODY: int = _int("RELAYWEB_MAX_BODY", 64 * 1024 * 1024)
"""Bytes a request body may have, at the doors and the gateway."""


def secret_key() -> str:
    """The Django secret key, made at the first start and kept in HOME, readable by its owner only."""
    path = HOME / "secret_key"
    try:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as f:
            f.write(secrets.token_urlsafe(50))
    except FileExistsError:
        pass
    return path.read_text()


def allow_host(host: str) -> None:
    """Serve requests for the address listened at, where it is one address and not all of them."""
    from django.conf import settings

    if host not in ("0.0.0.0", "::"):
        settings.ALLOWED_HOSTS.append(f"[{host}]" if ":" in host else host)


def served_url() -> str:
    """Where the server of this HOME listens, or listened last."""
    try:
        return (HOME / "served_url").read_text().strip()
    except FileNotFoundError:
        return "http://127.0.0.1:8000"


def remember_served_url(host: str, port: int) -> str:
    """Note where the server listens, for commands that print links; returns the base URL."""
    name = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    url = f"http://{name}:{port}"
    (HOME / "served_url").write_text(url)
    return url
