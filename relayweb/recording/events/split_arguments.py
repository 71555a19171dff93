"""Arguments of tools in the chunks of one `relay.chunks` mark: looked at as one text.

The pieces of each call are joined. What is masked in the joined text is masked in the pieces: what stands before the
first secret and behind the last stays in its pieces, all between goes into the piece where the first one begins.
The pieces together are always exactly the masked text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from itertools import accumulate, pairwise
from os.path import commonprefix

import msgspec
from msgspec import Raw

from adapters.secret_arguments import pieces, value_at
from relayweb.recording.events.atof import as_dict

Path = tuple[str | int, ...]

_SIGNS = (b"arguments", b"partial_json", b"\\u005", b"\\u006", b"\\u007")
"""Of the members that hold pieces; their names may also be written with escapes."""
_raw_object = msgspec.json.Decoder(dict[str, Raw]).decode
_raw_array = msgspec.json.Decoder(list[Raw]).decode
_quoted = json.encoder.encode_basestring_ascii


def calls(data: bytes) -> list[list[tuple[Path, str]]]:
    """The pieces of each call in the data of a mark, JSON, with their places in it. Most marks hold none."""
    if not any(sign in data for sign in _SIGNS):
        return []
    chunks = as_dict(data).get("chunks")
    if not isinstance(chunks, list):
        return []
    found: dict[str, list[tuple[Path, str]]] = {}
    for place, chunk in enumerate(chunks):
        for call, path in pieces(chunk) if isinstance(chunk, dict) else ():
            piece = value_at(chunk, path)
            if isinstance(piece, str) and piece:
                found.setdefault(call, []).append((("chunks", place, *path), piece))
    return list(found.values())


def joined(call: Iterable[tuple[Path, str]]) -> bytes:
    """The text of a call as JSON."""
    return _quoted("".join(piece for _, piece in call)).encode()


def changes(call: list[tuple[Path, str]], mask: Callable[[bytes], bytes]) -> dict[Path, str]:
    """The pieces of a call that `mask`, given its text as JSON, leaves different."""
    text = joined(call)
    masked = mask(text)
    if masked == text:
        return {}
    was, now = "".join(piece for _, piece in call), str(json.loads(masked))
    start = len(commonprefix((was, now)))
    same = len(commonprefix((was[start:][::-1], now[start:][::-1])))
    end = len(was) - same
    middle = now[start : len(now) - same]
    new: dict[Path, str] = {}
    bounds = pairwise(accumulate((len(piece) for _, piece in call), initial=0))
    for (path, piece), (first, behind) in zip(call, bounds, strict=True):
        before = was[first : max(first, min(start, behind))]
        after = was[max(first, end) : behind]
        # Where nothing is taken away, the middle still has to stand somewhere: `start` lies in just one piece.
        begins = first <= start < behind or start == behind == len(was)
        put = before + (middle if begins else "") + after
        if put != piece:
            new[path] = put
    return new


def exchanged(text: bytes, new: Mapping[Path, str]) -> bytes:
    """JSON with the strings at these places exchanged; all else keeps its text."""
    if () in new:
        return _quoted(new[()]).encode()
    inner: dict[str | int, dict[Path, str]] = {}
    for path, value in new.items():
        inner.setdefault(path[0], {})[path[1:]] = value
    if text[:1] == b"{":
        members = {name: bytes(value) for name, value in _raw_object(text).items()}
        for name, put in inner.items():
            members[str(name)] = exchanged(members[str(name)], put)
        return b"{" + b",".join([_quoted(k).encode() + b":" + v for k, v in members.items()]) + b"}"
    items = [bytes(item) for item in _raw_array(text)]
    for at, put in inner.items():
        items[int(at)] = exchanged(items[int(at)], put)
    return b"[" + b",".join(items) + b"]"
