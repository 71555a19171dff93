"""What requests repeat: a list of messages that begins with the one of the last request, and the same tools.

The rest of such a request is looked at with stand-ins in their place, which its skeleton then loses again.
"""

from __future__ import annotations

import re

import msgspec

from relayweb.recording.kernels.names import SAME_MESSAGES, SAME_TOOLS
from relayweb.recording.store.pieces import Piece


class History(msgspec.Struct, gc=False):
    """A list of messages split before: the next request of its session mostly begins with it."""

    text: bytes
    """Without the closing bracket."""
    skeleton: bytes
    messages: list[tuple[bytes, Piece | None]]
    tools: tuple[bytes, Piece] | None = None


MOST, LONGEST = 96, 256_000  # remembered at most, and the bytes of one
SHORTEST = 1_024  # bytes: a shorter history is not worth it

STAND_INS = re.compile(rb"(\0c|" + re.escape(SAME_MESSAGES) + b"|" + re.escape(SAME_TOOLS) + b")")
LIST_STARTS = (b'"messages":[{"', b'"input":[{"', b'"contents":[{"')
_ROOT_IS, _TOOLS_ARE = b'"propagation_root_uuid":"', b'"tools":'


def key_of(line: bytes, start: bytes) -> tuple[bytes, bytes]:
    at = line.rfind(_ROOT_IS, -300) + len(_ROOT_IS)
    return line[at : at + 36], start


def shorten(line: bytes, history: History) -> bytes:
    """The line with stand-ins for a history and its tools, where a member is or begins with them."""
    name = next(name for name in LIST_STARTS if name in line)
    line = _stand_in(line, name[:-3], history.text, SAME_MESSAGES)
    return _stand_in(line, _TOOLS_ARE, history.tools[0], SAME_TOOLS) if history.tools is not None else line


def _stand_in(line: bytes, member: bytes, text: bytes, stand_in: bytes) -> bytes:
    out: list[bytes] = []
    at, found = 0, line.find(member)
    while found >= 0:
        start = found + len(member)
        if line.startswith(text, start):
            out += (line[at:start], stand_in)
            at = start = start + len(text)
        found = line.find(member, start)
    out.append(line[at:])
    return b"".join(out)
