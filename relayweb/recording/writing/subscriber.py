"""Relay's events of this process, straight to the writer."""

from __future__ import annotations

import contextlib
import threading
from typing import Any

import nemo_relay

from relayweb.recording.writing.writer import writer

_NAME = "relayweb.recording"
_lock = threading.Lock()
_attached = False


def attach() -> None:
    """Record every event that Relay emits in this process. Attached once, however often it is called."""
    global _attached
    with _lock:
        if _attached:
            return
        recorder = writer()

        def receive(event: Any) -> None:
            recorder.offer(event.to_json())

        nemo_relay.subscribers.register(_NAME, receive)
        _attached = True


def detach() -> None:
    """Stop recording them."""
    global _attached
    with _lock:
        if _attached:
            with contextlib.suppress(RuntimeError):
                nemo_relay.subscribers.deregister(_NAME)
            _attached = False
