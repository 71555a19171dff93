"""`record_to`: send what this process records to a server, whatever else looks at it."""

from __future__ import annotations

import atexit
import json
import logging
import threading
import urllib.error
import urllib.request
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

    Gives False, with a warning, where Relay cannot run; warns when the server refuses the token. Relay keeps its queue
    and connects again while the server restarts; what is queued when the process exits is sent for at most five
    seconds.

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
        question = threading.Thread(target=_ask, args=(url, token), name="record-to", daemon=True)
        question.start()
    except Exception as error:
        note("events", error)
        return False

    def finish() -> None:
        shutdown_all()  # its last events are the ends of sessions and turns
        exporter.shutdown()
        question.join(2)

    atexit.register(finish)
    return True


def _ask(url: str, token: str) -> None:
    """Relay's exporter does not say that its token is refused, so one empty request finds out and a warning says it."""
    headers = {"authorization": f"Bearer {token}"} if token else {}
    request = urllib.request.Request(f"{url.rstrip('/')}/ingest/atof", b"", headers)  # noqa: S310, checked above
    try:
        urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=5).close()
    except urllib.error.HTTPError as error:
        with error:
            if error.code in (401, 403):
                log.warning("%s does not take the token, nothing is recorded there: %s", url, _said(error))
    except Exception as error:
        log.debug("%s cannot be asked about the token yet: %s", url, error)


def _said(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.loads(error.read(10_000))["error"])
    except Exception:  # whatever answered is no relayweb; its status says enough
        return f"status {error.code}"
