"""What goes into the log: one line a record, as text or JSON, without payloads, and without anything like a credential.

Nothing of ours logs what agents say. The masking here is for texts of others: errors of libraries and the database.
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime

from relayweb.recording.events.masking import mask_text


class Line(logging.Formatter):
    """Time, level, logger and message, for people."""

    def __init__(self) -> None:
        super().__init__("{asctime} {levelname} {name}: {message}", style="{")

    def format(self, record: logging.LogRecord) -> str:
        return mask_text(super().format(_brief(record)))


class Json(logging.Formatter):
    """One JSON object a record: time, level, logger, message; exception where there is one; the fields of an answer."""

    def format(self, record: logging.LogRecord) -> str:
        record = _brief(record)
        said = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": mask_text(record.getMessage()),
            **{k: mask_text(v) if isinstance(v, str) else v for k, v in getattr(record, "fields", {}).items()},
        }
        if record.exc_info:
            said["exception"] = mask_text(self.formatException(record.exc_info))
        return json.dumps(said)


def _brief(record: logging.LogRecord) -> logging.LogRecord:
    """Django logs what anybody sent wrong with a traceback of its own inside, with which they could fill a disk."""
    if record.name.startswith("django.security"):
        record.exc_info = record.exc_text = None
    return record
