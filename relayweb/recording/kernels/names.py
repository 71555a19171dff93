"""What names of members mean: to the splitting of events, and to masking."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import msgspec

MIN_MESSAGE: Final = 48  # bytes; below, a reference would cost more than the text
MIN_VALUE: Final = 512

VALUE, MESSAGE, TEMPLATE, TOOLS, LIST = range(5)
"""Kinds of what is kept apart: a large value, a message, a chunk template, a list of tools, a list of messages."""

LOOSE, IN_DATA = 1, 2
"""Flags of what is kept apart: credentials are looked for in its texts; it belongs to the payload `data`."""

LISTS, WHOLE, TOOLS_NAME, FRAME, MESSAGE_NAME, CONTENT, OPENED, LOOSE_NAME, PAYLOAD = (1 << bit for bit in range(9))
"""What a name says of its value: a list of messages; kept whole; tools; a frame around what is kept apart; a message;
content; opened even when it is small; loose; a payload of an event."""

SUSPECT, NAMING, ARGUMENTS = 1, 2, 4
"""What masking says of a name: look closer at it; its value is the name of something; its value is JSON in a text."""

LONGEST_NAME: Final = 100  # bytes: what is longer names no secret

# What stands for a history, and for a tool list, while the rest of a request is looked at. No line that holds a DEL is
# shortened, so they mean nothing else, and what holds one counts as large, as it does without them.
STAND_IN: Final = 0x7F
SAME_MESSAGES: Final = b'["\x7fm' + b"-" * MIN_MESSAGE + b'"'
SAME_TOOLS: Final = b'"\x7ft' + b"-" * MIN_MESSAGE + b'"'

INDEX: Final = b'"chunk_index":'

_MEANINGS = (
    (LISTS, ("messages", "input", "contents")),
    (WHOLE, ("tools", "functions")),
    (TOOLS_NAME, ("tools",)),
    (
        FRAME,
        ("data", "metadata", "category_profile", "content", "headers", "request", "response", "params")
        + ("annotated_request", "annotated_response", "app", "provider", "api_specific", "message"),
    ),
    (MESSAGE_NAME, ("message",)),
    (CONTENT, ("content",)),
    (OPENED, ("choices", "data", "response")),
    (PAYLOAD, ("data", "category_profile", "metadata")),
)
LOOSE_MEMBERS: Final = frozenset(("metadata", "plugin_config", "traceback", "stacktrace", "stack_trace"))
LOOSE_ENDINGS: Final = ("headers", "error")
LOOSE_STARTS: Final = ("exception", "error")
"""Members under which any credential is masked, wherever they stand."""
_name = msgspec.json.Decoder(str).decode


@lru_cache(1024)
def is_loose(name: str) -> bool:
    """Whether any credential is masked under a member of this name, as in attributes like `exception.message`."""
    lower = name.lower()
    return lower in LOOSE_MEMBERS or lower.endswith(LOOSE_ENDINGS) or lower.startswith(LOOSE_STARTS)


def meaning(name: bytes) -> int:
    """The flags of a name, given as the JSON text between its quotes."""
    try:
        text = _name(b'"' + name + b'"')
    except msgspec.DecodeError:
        return 0
    return sum(flag for flag, names in _MEANINGS if text in names) | (LOOSE_NAME if is_loose(text) else 0)
