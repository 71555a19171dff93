"""`record_to`: send what this process records to a server, whatever else looks at it."""

from __future__ import annotations

import atexit
import logging
import uuid
from urllib.parse import urlsplit

from adapters.coordinator import shutdown_all
from adapters.faults import note

log = logging.getLogger("adapters")


def record_to(url: str, token: str = "") -> bool:
    """Send every event of Relay in this process to the server at `url`, as it happens, until the process exits.

    Args:
        url: The server's address, such as `http://127.0.0.1:8000`.
        token: An ingest token of that server.

    Gives False, with a warning, where Relay cannot run. Relay keeps its queue and connects again while the server
    restarts; what is queued when the process exits is sent for at most five seconds.

    Raises:
        ValueError: When `url` is not an http or https address.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise ValueError(f"url must be an http or https address, is {url!r}")
    try:
        import nemo_relay

        config = nemo_relay.AtofExporterConfig()
        config.sink_type = "stream"
        config.transport = "websocket"
        config.timeout_millis = 5000
        scheme = "wss" if parts.scheme == "https" else "ws"
        config.url = f"{scheme}://{parts.netloc}{parts.path.rstrip('/')}/ingest/atof/ws"
        if token:
            config.headers = {"authorization": f"Bearer {token}"}
        exporter = nemo_relay.AtofExporter(config)
        exporter.register(f"record-to-{uuid.uuid4().hex}")
    except Exception as error:
        note("events", error)
        return False

    def finish() -> None:
        shutdown_all()  # its last events are the ends of sessions and turns
        exporter.shutdown()

    atexit.register(finish)
    return True
