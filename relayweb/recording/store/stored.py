"""Events read back from the log: the JSON text that was accepted, and slices of it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from uuid import UUID

import msgspec
from django.db.models import Q, QuerySet

from relayweb.recording.models import Content, Event
from relayweb.recording.store import encoding
from relayweb.recording.store.compression import CONTENT, EVENT
from relayweb.recording.store.recent import Recent

_SLICE = 500
_raw_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_raw_array = msgspec.json.Decoder(list[msgspec.Raw]).decode


class Reader:
    """Reads bodies, remembering the contents they share. For one request or one run of an export; not thread-safe."""

    def __init__(self, remember: int = 2_000) -> None:
        self._contents: Recent[int, bytes] = Recent(remember)

    def texts(self, events: Sequence[Event]) -> list[bytes]:
        """The JSON text of each event, as it was accepted (masked where a secret stood)."""
        bodies = [encoding.decode(bytes(event.body), EVENT.expand) for event in events]
        contents = self.contents({ref for body in bodies for ref in body.refs})
        return [encoding.fill(body, contents, event) for body, event in zip(bodies, events, strict=True)]

    def contents(self, wanted: Iterable[int]) -> dict[int, bytes]:
        """The full text of contents by number, those inside them filled in."""
        found: dict[int, bytes] = {}
        bodies: dict[int, encoding.Body] = {}
        """Those with others inside: most have none, and are done as they come."""
        fresh: list[int] = []
        missing = set(wanted)
        while missing:
            for number in list(missing):
                known = self._contents.get(number)
                if known is not None:
                    found[number] = known
                    missing.discard(number)
            inner: set[int] = set()
            for number, data in _load(sorted(missing)):
                body = encoding.decode(data, CONTENT.expand)
                fresh.append(number)
                if body.refs:
                    bodies[number] = body
                    inner.update(body.refs)
                else:
                    found[number] = encoding.fill(body, found)
            missing = inner - bodies.keys() - found.keys()
        for number in sorted(bodies):  # what a content refers to was numbered in its batch or before
            _fill(number, bodies, found)
        for number in fresh:
            self._contents.put(number, found[number])
        self._contents.trim()
        return found


def _load(numbers: Sequence[int]) -> Iterator[tuple[int, bytes]]:
    """`numbers` ascend. Contents of one body were mostly numbered one after the other, and come fastest as a range."""
    for at in range(0, len(numbers), _SLICE):
        some = numbers[at : at + _SLICE]
        close = some[-1] - some[0] < 2 * len(some)
        rows = Content.objects.filter(id__range=(some[0], some[-1])) if close else Content.objects.filter(id__in=some)
        wanted = set(some)
        for number, body in rows.values_list("id", "body"):
            if number in wanted:
                yield number, bytes(body)


def _fill(number: int, bodies: dict[int, encoding.Body], found: dict[int, bytes]) -> None:
    stack = [number]
    while stack:
        number = stack[-1]
        waiting = [ref for ref in bodies[number].refs if ref not in found]
        if waiting:
            stack += waiting
            continue
        stack.pop()
        if number not in found:
            found[number] = encoding.fill(bodies[number], found)


def members(text: bytes) -> dict[str, bytes]:
    """The members of a JSON object as slices of its text; empty for anything else."""
    try:
        return {name: bytes(raw) for name, raw in _raw_object(text).items()}
    except (msgspec.DecodeError, msgspec.ValidationError, RecursionError):
        value = load(text)
    return {name: dump(member) for name, member in value.items()} if isinstance(value, dict) else {}


def member(text: bytes | None, *path: str) -> bytes | None:
    """The text of a member inside nested objects; None where it is missing or null."""
    for name in path:
        if text is None:
            return None
        text = members(text).get(name)
    return None if text is None or text == b"null" else text


def items(text: bytes) -> list[bytes]:
    """The items of a JSON array as slices of its text; empty for anything else."""
    try:
        return [bytes(raw) for raw in _raw_array(text)]
    except (msgspec.DecodeError, msgspec.ValidationError, RecursionError):
        value = load(text)
    return [dump(item) for item in value] if isinstance(value, list) else []


def load(text: bytes | None) -> Any:
    """A value whose digits all stay, integers of any size included. None for what cannot be read."""
    try:
        return None if text is None else json.loads(text)
    except (ValueError, RecursionError):
        return None


def dump(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def event(seq: int | None) -> Event | None:
    return None if seq is None else Event.objects.filter(seq=seq).first()


def events_of(uuid: UUID) -> QuerySet[Event]:
    """The events of a scope, its start, end and the marks under it, in the order they were accepted."""
    return Event.objects.filter(Q(uuid=uuid) | Q(mark_of=uuid)).order_by("seq")
