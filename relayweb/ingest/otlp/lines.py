"""Events as lines, with their times as ATOF writes them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any


def timestamp(ns: int) -> str:
    """A time in ns since 1970 as ATOF writes it."""
    seconds, rest = divmod(ns, 1_000_000_000)
    try:
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:09d}+00:00"
    except (ValueError, OverflowError, OSError):
        return str(ns)  # which the record rejects, naming it


def mark_line(at_ns: int, first: dict[str, Any], **members: Any) -> bytes:
    """A mark as a line, with the members of `first` before all others."""
    fixed = {"kind": "mark", "atof_version": "0.1", "category": None, "category_profile": None, "data_schema": None}
    return line(**first, **fixed, **members, timestamp=timestamp(at_ns))


def line(**members: Any) -> bytes:
    """An event as a line."""
    return json.dumps(members, separators=(",", ":")).encode() + b"\n"
