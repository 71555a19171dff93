"""Secrets, masked once at the door: names are kept, values are not.

Two rules. A member whose name stands for a secret loses its value, at any depth. In headers, metadata and error texts,
anything that looks like a credential goes, whatever its name; so do the values of headers in pairs, of parameters of
addresses, and inside texts that are JSON themselves. Message text is left alone.

Almost nothing that arrives holds a secret, so a prefilter of plain substring searches decides; only what it suspects
is parsed. It runs on new content only: `content.Store` recognises what it has stored before. Any doubt counts as
suspicion.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeVar

import msgspec
from msgspec import Raw

from relayweb.recording.atof import Parsed, load, restore_surrogates
from relayweb.recording.credentials import MASK, is_loose, is_secret_name, mask_text, special_names

__all__ = [
    "FAILURE_MARKS",
    "MASK",
    "Prefilter",
    "is_loose",
    "mask",
    "mask_event",
    "mask_parsed",
    "mask_text",
    "suspects_credentials",
    "suspects_names",
]

FAILURE_MARKS = frozenset(("relay.attempt_failed", "relay.attempt_blocked"))
"""Marks whose whole data is an error text."""

K = TypeVar("K", str, int)

_raw_object = msgspec.json.Decoder(dict[str, Raw]).decode
_raw_array = msgspec.json.Decoder(list[Raw]).decode
_SMALL = 512  # bytes: below, looking for all names at once is faster than looking at each


def suspects_names(text: bytes) -> bool:
    """Whether a member of this JSON text may have the name of a secret. False is certain."""
    if len(text) < _SMALL or text[0] not in b'{["':
        return _holds_secret_name(text.lower())
    try:
        return _has_secret_member(text)
    except (msgspec.DecodeError, RecursionError):
        return _holds_secret_name(text.lower())


def _holds_secret_name(lower: bytes) -> bool:
    """Of a text in small letters."""
    return max(map(lower.find, _NAME_SIGNS)) >= 0


_NAME_SIGNS: Final = (
    *(b"\\u00", b'key"', b'token"', b'cookie"', b'secret"'),
    *(b'password"', b'authorization"', b'plugin_config"'),
)


def _has_secret_member(text: bytes) -> bool:
    """As `_holds_secret_name`, without a look at long texts, which are no names."""
    first = text[:1]
    if first == b"{":
        members = _raw_object(text)
        if not _PLAIN_NAMES.issuperset(members):
            for name in members if len(members) < _MANY else special_names(members):
                if is_secret_name(name) or "plugin_config" in name.lower():
                    return True
                if len(_PLAIN_NAMES) < 10_000:
                    _PLAIN_NAMES.add(name)
        values = [bytes(value) for value in members.values()]
        if not _are_all(text, members):
            return _holds_secret_name(text.lower())
        if any(_is_secret_text(members[name]) for name in _NAMED.intersection(members)):
            return True
    elif first == b"[":
        values = [bytes(value) for value in _raw_array(text)]
        if len(values) == 2 and _is_secret_text(values[0]):
            return True
    else:
        return False
    inside = [value for value in values if value[0] in b"{["]
    if len(inside) >= _MANY:
        small = [value for value in inside if len(value) < _SMALL]
        if any(_holds_secret_name(b",".join(some).lower()) for some in _groups(small)):
            return True
        inside = [value for value in inside if len(value) >= _SMALL]
    for value in inside:
        found = _has_secret_member(value) if len(value) >= _SMALL else _holds_secret_name(value.lower())
        if found:
            return True
    return False


_MANY = 64  # members, from which on all their names are looked at in one
_GROUP = 8_000  # bytes of values that are looked through in one


def _groups(values: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Neighbours together, about `_GROUP` bytes each."""
    group: list[bytes] = []
    size = 0
    for value in values:
        group.append(value)
        size += len(value)
        if size > _GROUP:
            yield group
            group, size = [], 0
    if group:
        yield group


_NAMES_ONLY = frozenset(("required", "enum"))
"""Members whose lists hold names, never a name and its value."""
_NAMED = frozenset(("name", "key", "header"))
"""Members that give the name of a header whose value is a member `value`."""


def _is_secret_text(value: bytes | Raw) -> bool:
    """Whether this JSON value is a text that is the name of a secret."""
    text = bytes(value)
    return text[:1] == b'"' and len(text) < 100 and is_secret_name(load(text))


def _are_all(text: bytes, members: Mapping[str, bytes | Raw]) -> bool:
    """Whether nothing of the object is hidden behind a second member of the same name, which the parser drops.

    True is certain; False also of white space, and of names that are not plain ASCII.
    """
    size = len("".join(members)) + len(b"".join(members.values())) + 4 * len(members)
    return not members or len(text) == 1 + size


_PLAIN_NAMES: set[str] = set()
"""Names of members that were looked at and are no secrets."""


def suspects_credentials(text: bytes) -> bool:
    """Whether this JSON text may hold a credential by its looks. False is certain."""
    return _holds_credential(text.lower())


def _holds_credential(lower: bytes) -> bool:
    """Of a text in small letters."""
    if max(map(lower.find, _CREDENTIAL_SIGNS)) >= 0:
        return True
    # Single characters first: most texts have none of them, and such a search costs next to nothing.
    return (
        (b"@" in lower and _USER_SIGN.search(lower) is not None)
        or (b"=" in lower and max(map(lower.find, _PARAMETER_SIGNS)) >= 0)
        or (b'\\"' in lower and max(map(lower.find, _MEMBER_SIGNS)) >= 0)
        or (b"'" in lower and _holds_quoted_name(lower))
    )


def _holds_quoted_name(lower: bytes) -> bool:
    return any(sign[:-1] + b"'" in lower for sign in _MEMBER_SIGNS)


_USER_SIGN: Final = re.compile(rb":\\?/\\?/")
_PARAMETER_SIGNS: Final = (
    b"key=",
    b"token=",
    b"secret=",
    b"password=",
    b"signature=",
    b"credential=",
    b"sig=",
    b"auth=",
)
# With the backslash of the quote that ends the name.
_MEMBER_SIGNS: Final = (
    *(b"key\\", b"token\\", b"secret\\", b"password\\", b"signature\\", b"credential\\"),
    *(b"authorization\\", b"cookie\\"),
)
_CREDENTIAL_SIGNS: Final = (b"\\u00", b"earer", b"basic", b"sk-", b"akia", b"eyj", b"rw_")


class Prefilter:
    """`suspects_names` or `suspects_credentials`, of events with holes (see `content`).

    Most of an event stood in one before it, so what lies between two commas, which no sign of a secret holds, is
    remembered if there is nothing suspicious in it.
    """

    def __init__(self) -> None:
        self._clean: set[bytes] = set()

    def suspects(self, text: bytes) -> bool:
        """Whether this event may hold a secret. False is certain."""
        unknown = {text} if len(text) > _LONG else set(text.split(b",")).difference(self._clean)
        if not unknown:
            return False
        lower = b",".join(unknown).lower()
        if _holds_secret_name(lower) or _holds_credential(lower):
            return True
        if len(self._clean) > _PARTS:
            self._clean.clear()
        if len(lower) < _LONGEST:
            self._clean |= unknown
        return False


_PARTS, _LONGEST = 10_000, 1_000  # parts remembered, and the bytes of an event's that are
_LONG = 100_000  # bytes: to take a longer event apart costs more than to look through all of it


def mask(text: bytes, *, loose: bool = False) -> bytes:
    """The same JSON value with its secrets masked; the same bytes where it is compact and holds none.

    Args:
        text: valid JSON. What is not secret keeps its text, so numbers keep their digits.
        loose: also mask credentials in texts, as in headers, metadata and errors.
    """
    return _mask(text, loose, parent="", everything=False)


def mask_event(line: bytes, *, loose_data: bool = False) -> bytes:
    """One event with its secrets masked; the same bytes where it is compact and holds none.

    Args:
        loose_data: its whole data is an error text.
    """
    members = _raw_object(line)
    masked = {k: _mask_member(k, bytes(v), loose_data and k == "data", "", False) for k, v in members.items()}
    return line if _are_all(line, members) and masked == _texts(members) else _object(masked)


def mask_parsed(event: Parsed, *, loose_data: bool = False) -> tuple[bytes, tuple[tuple[int, bytes], ...]]:
    """`mask_event` of a parsed line, and where its lone surrogates (`Parsed.surrogates`) stand in the result."""
    line = event.line
    if not event.surrogates:
        return mask_event(line, loose_data=loose_data), ()
    stand_ins = _stand_ins(line)
    said = [(offset, stand_ins.get(digits.lower(), b"fffd")) for offset, digits in event.surrogates]
    line = restore_surrogates(line, said)
    masked = mask_event(line, loose_data=loose_data)
    if masked == line:
        return event.line, event.surrogates
    digits_of = {stand_in: digits for digits, stand_in in stand_ins.items()}
    found: list[tuple[int, bytes]] = []

    def put_back(match: re.Match[bytes]) -> bytes:
        digits = digits_of.get(match[1].lower())
        if digits is None:
            return match[0]
        found.append((match.start() + 2, digits))
        return b"\\ufffd"

    return _ESCAPE.sub(put_back, masked), tuple(found)


_ESCAPE = re.compile(rb"\\(?:u([0-9a-fA-F]{4})|.)", re.DOTALL)


def _stand_ins(line: bytes) -> dict[bytes, bytes]:
    """For each lone surrogate the digits of a private character that the line does not hold."""
    taken = {match[1].lower() for match in _ESCAPE.finditer(line) if match[1]}
    taken.update(f"{ord(character):04x}".encode() for character in set(line.decode()) if character > "\ud7ff")
    free = (digits for digits in (b"%04x" % code for code in range(0xE000, 0xF900)) if digits not in taken)
    return dict(zip((b"%04x" % code for code in range(0xD800, 0xE000)), free, strict=False))


def _mask(text: bytes, loose: bool, parent: str, everything: bool) -> bytes:
    first = text[:1]
    if first == b"{":
        return _mask_object(text, _raw_object(text), loose, parent, everything)
    if first == b"[":
        items = [bytes(v) for v in _raw_array(text)]
        kept = items.copy()
        if loose and len(items) == 2 and parent not in _NAMES_ONLY and _is_secret_text(items[0]):
            kept[1] = _mask(items[1], loose, parent, True)
        else:
            wide = len(items) >= _MANY and not everything and parent != "plugin_config"
            for at in _unclear(enumerate(items), loose) if wide else range(len(items)):
                kept[at] = _mask(items[at], loose, parent, everything)
        return text if kept == items else b"[" + b",".join(kept) + b"]"
    return _mask_scalar(text, loose, everything)


def _mask_object(text: bytes, members: dict[str, Raw], loose: bool, parent: str, everything: bool) -> bytes:
    wanted: Iterable[str] = members
    if len(members) >= _MANY and not everything and parent != "plugin_config":
        special = special_names(members)
        wanted = special
        if loose or text.find(b"{", 1) > 0 or b"[" in text:
            others = ((name, bytes(value)) for name, value in members.items() if name not in special)
            wanted = (*special, *_unclear(others, loose))
    changed: dict[str, bytes] = {}
    for name in wanted:
        value = bytes(members[name])
        masked = _mask_member(name, value, loose, parent, everything)
        if masked != value:
            changed[name] = masked
    if loose and "value" in members and any(_is_secret_text(members[k]) for k in _NAMED.intersection(members)):
        changed["value"] = _mask(bytes(members["value"]), loose, parent, True)
    if not _are_all(text, members) or 8 * len(changed) > len(members) >= _MANY:
        return _object({**_texts(members), **changed})
    return _spliced(text, members, changed) if changed else text


def _spliced(text: bytes, members: Mapping[str, Raw], changed: Mapping[str, bytes]) -> bytes:
    """A compact object with some of its members' values exchanged."""
    out: list[bytes] = []
    names, values = list(members), list(members.values())
    done = at = place = 0
    for now in [place for place, name in enumerate(names) if name in changed]:
        place += len("".join(names[at:now])) + len(b"".join(values[at:now])) + 4 * (now - at)
        at = now
        start = 1 + place + len(names[now]) + 3
        out += (text[done:start], changed[names[now]])
        done = start + len(bytes(values[now]))
    out.append(text[done:])
    return b"".join(out)


def _mask_scalar(text: bytes, loose: bool, everything: bool) -> bytes:
    if text[:1] == b'"':
        if everything:
            return _MASKED if len(text) > 2 else text
        if loose:
            value = load(text)
            clean = mask_text(_mask_inner(value))
            return text if clean == value else json.dumps(clean).encode()
        return text
    return _MASKED if everything and text[:1] in b"-0123456789" else text


def _unclear(values: Iterable[tuple[K, bytes]], loose: bool) -> list[K]:
    """Of many values those that may hold a secret inside, found by looking through some of them at once."""
    opening = b'{["' if loose else b"{["
    inside = [(name, value) for name, value in values if value[0] in opening]
    found: list[K] = []
    at = 0
    for some in _groups([value for _, value in inside]):
        if _may_hold(b",".join(some)):
            found += [name for name, value in inside[at : at + len(some)] if _may_hold(value)]
        at += len(some)
    return found


def _may_hold(text: bytes) -> bool:
    lower = text.lower()
    return _holds_secret_name(lower) or _holds_credential(lower)


def _mask_inner(text: str) -> str:
    """A text that is a JSON object or array, with the secrets inside masked; any other as it is."""
    if not text.startswith(("{", "[")):
        return text
    try:
        inner = text.encode()
        masked = _mask(inner, True, "", False)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return text
    return masked.decode() if masked.count(MASK.encode()) > inner.count(MASK.encode()) else text


def _mask_member(name: str, text: bytes, loose: bool, parent: str, everything: bool) -> bytes:
    # A tool that takes a parameter of that name: its schema is no secret.
    schema = parent == "properties" and text.startswith(b"{")
    in_plugins = "plugin_config" in (name, parent)
    sink_headers = parent == "plugin_config" and name.lower().startswith("headers")
    return _mask(
        text,
        loose or is_loose(name),
        "plugin_config" if in_plugins else name,
        everything or sink_headers or (is_secret_name(name) and not schema),
    )


_MASKED = f'"{MASK}"'.encode()


def _texts(members: Mapping[str, Raw]) -> dict[str, bytes]:
    return {k: bytes(v) for k, v in members.items()}


_quoted = json.encoder.encode_basestring_ascii


def _object(members: dict[str, bytes]) -> bytes:
    return b"{" + b",".join([_quoted(k).encode() + b":" + v for k, v in members.items()]) + b"}"
