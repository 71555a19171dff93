"""Which upstream a name means, found fresh for every call, and the URL a client's path becomes there."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from django.db import DatabaseError, close_old_connections

from relayweb.gateway import routes
from relayweb.gateway.errors import GatewayError
from relayweb.gateway.models import Upstream

log = logging.getLogger(__name__)

# Long enough to spare the database a query a call under load, too short for a person to notice.
FRESH_SECONDS = 0.2
# A database that hangs must not hold a call up: after this the upstreams last seen are used.
PATIENCE_SECONDS = 0.5

_VERSION = re.compile(r"v\d+[a-z0-9]*", re.IGNORECASE)
# Paths under /v1 of the three wire formats; for a bare host they get the /v1 a client may have left out.
_UNDER_V1 = re.compile(
    r"(chat/completions|completions|responses|messages|models|embeddings|files|batches|images|audio|moderations|conversations)(/|$)"
)


@dataclass(frozen=True, slots=True)
class Target:
    """An upstream as a call needs it."""

    name: str
    base_url: str
    api_mode: str

    def url(self, rest: str) -> str:
        """The provider's URL for what the client asked behind /gw/<upstream>/ (still percent-encoded, no query).

        Raises GatewayError for a path that leads above the base URL: an admin named that, and nothing beside it.
        """
        path = provider_path(urlsplit(self.base_url).path, rest)
        if routes.climbs(path):
            text = f"the path leads above the base URL of upstream {self.name}"
            raise GatewayError(400, "invalid_path", text, retry=False)
        return self.base_url + path


def provider_path(base_path: str, rest: str) -> str:
    """What to append to a base URL with path `base_path` for a client's `rest`.

    Clients write their base URL with or without a trailing /v1, some SDKs add it themselves, and so do people who
    name an upstream; the provider gets it once. A base with a version of its own (/v1, /api/paas/v4,
    /v1beta/openai) already has it; below a bare host the known paths need it; anything else stays as it came.
    """
    bare = rest.lstrip("/")
    had_v1 = False
    while bare == "v1" or bare.startswith("v1/"):
        bare, had_v1 = bare[3:], True
    if any(_VERSION.fullmatch(segment) for segment in base_path.split("/")):
        return f"/{bare}" if bare else ""
    if had_v1 or (not base_path.strip("/") and _UNDER_V1.match(bare)):
        return f"/v1/{bare}"
    return f"/{bare}"


@dataclass
class Directory:
    """All enabled upstreams by name, as the database has them now or, while it does not answer, had them last."""

    _known: dict[str, Target] = field(default_factory=dict)
    _read_at: float = float("-inf")
    _reading: asyncio.Future[None] | None = None
    # A thread of its own: Django's shared one may be busy with a slow page while a call waits.
    _thread: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "relayweb-upstreams"))

    async def find(self, name: str) -> Target | None:
        """The upstream of this name, also when a command made or changed it a moment ago."""
        if time.monotonic() - self._read_at > FRESH_SECONDS:
            await self._refresh(name)
        return self._known.get(name)

    def names(self) -> list[str]:
        return sorted(self._known)

    def forget(self) -> None:
        self._read_at = float("-inf")

    async def _refresh(self, name: str) -> None:
        loop = asyncio.get_running_loop()
        if self._reading is None or self._reading.done() or self._reading.get_loop() is not loop:
            self._reading = loop.run_in_executor(self._thread, self._read)
        elif name in self._known:
            return  # another call is waiting for the database already
        try:
            await asyncio.wait_for(asyncio.shield(self._reading), PATIENCE_SECONDS)
        except TimeoutError:
            log.warning("the database does not answer; using the %d upstreams last seen", len(self._known))

    def _read(self) -> None:
        started = time.monotonic()
        try:
            close_old_connections()
            rows = list(Upstream.objects.filter(enabled=True).values_list("name", "base_url", "api_mode"))
        except DatabaseError as error:
            log.warning("cannot read the upstreams (%s); using the %d last seen", error, len(self._known))
        else:
            self._known = {row[0]: Target(*row) for row in rows}
        finally:
            close_old_connections()
        self._read_at = started


directory = Directory()
