"""Secrets, masked once at the door: names are kept, values are not.

Two rules. A member whose name stands for a secret loses its value, at any depth. In headers, metadata and error texts,
anything that looks like a credential goes, whatever its name; so do the values of headers in pairs, of parameters of
addresses, and inside texts that are JSON themselves. Arguments of tools are members too where they are JSON in a text.
Message text is left alone.

What is masked was suspected before (`suspicion`). It runs on new content only: `content.Store` recognises what it has
stored before.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping

import msgspec
from msgspec import Raw

from relayweb.recording.events.atof import Parsed, load, restore_surrogates
from relayweb.recording.events.credentials import MASK, is_loose, is_secret_name, mask_members, mask_text, special_names
from relayweb.recording.events.suspicion import (
    ARGUMENT_MEMBERS,
    MANY,
    NAMED,
    Prefilter,
    are_all,
    is_secret_text,
    suspects_credentials,
    suspects_names,
    unclear,
)

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

_raw_object = msgspec.json.Decoder(dict[str, Raw]).decode
_raw_array = msgspec.json.Decoder(list[Raw]).decode

PLAIN, ARGUMENTS, LOOSE = range(3)
"""What else is looked at in texts: nothing; whether they are JSON with secret members; also whatever looks secret."""


def mask(text: bytes, *, loose: bool = False) -> bytes:
    """The same JSON value with its secrets masked; the same bytes where it is compact and holds none.

    Args:
        text: valid JSON. What is not secret keeps its text, so numbers keep their digits.
        loose: also mask credentials in texts, as in headers, metadata and errors.
    """
    return _mask(text, LOOSE if loose else PLAIN, parent="", everything=False)


def mask_event(line: bytes, *, loose_data: bool = False) -> bytes:
    """One event with its secrets masked; the same bytes where it is compact and holds none.

    Args:
        loose_data: its whole data is an error text.
    """
    members = _raw_object(line)
    masked = {k: _mask_member(k, bytes(v), LOOSE if loose_data and k == "data" else PLAIN, "", False)
              for k, v in members.items()}  # fmt: skip
    return line if are_all(line, members) and masked == _texts(members) else _object(masked)


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


_NAMES_ONLY = frozenset(("required", "enum"))
"""Members whose lists hold names, never a name and its value."""


def _mask(text: bytes, loose: int, parent: str, everything: bool) -> bytes:
    first = text[:1]
    if first == b"{":
        return _mask_object(text, _raw_object(text), loose, parent, everything)
    if first == b"[":
        items = [bytes(v) for v in _raw_array(text)]
        kept = items.copy()
        if loose == LOOSE and len(items) == 2 and parent not in _NAMES_ONLY and is_secret_text(items[0]):
            kept[1] = _mask(items[1], loose, parent, True)
        else:
            wide = len(items) >= MANY and not everything and parent != "plugin_config"
            for at in unclear(enumerate(items), loose) if wide else range(len(items)):
                kept[at] = _mask(items[at], loose, parent, everything)
        return text if kept == items else b"[" + b",".join(kept) + b"]"
    return _mask_scalar(text, loose, everything)


def _mask_object(text: bytes, members: dict[str, Raw], loose: int, parent: str, everything: bool) -> bytes:
    wanted: Iterable[str] = members
    if len(members) >= MANY and not everything and parent != "plugin_config":
        special = special_names(members)
        wanted = special.union(ARGUMENT_MEMBERS.intersection(members))
        if loose or text.find(b"{", 1) > 0 or b"[" in text:
            others = ((name, bytes(value)) for name, value in members.items() if name not in wanted)
            wanted = (*wanted, *unclear(others, loose))
    changed: dict[str, bytes] = {}
    for name in wanted:
        value = bytes(members[name])
        if value[0] not in b'{["' and not everything and not is_secret_name(name) and parent != "plugin_config":
            continue
        masked = _mask_member(name, value, loose, parent, everything)
        if masked != value:
            changed[name] = masked
    if loose == LOOSE and "value" in members and any(is_secret_text(members[k]) for k in NAMED.intersection(members)):
        changed["value"] = _mask(bytes(members["value"]), loose, parent, True)
    if loose == LOOSE and suspects_credentials(_quoted("\n".join(members)).encode()):
        return _object(_renamed({**_texts(members), **changed}))
    if not are_all(text, members) or 8 * len(changed) > len(members) >= MANY:
        return _object({**_texts(members), **changed})
    return _spliced(text, members, changed) if changed else text


def _renamed(members: Mapping[str, bytes]) -> dict[str, bytes]:
    """The members, of which those whose very names look like credentials have others."""
    out: dict[str, bytes] = {}
    for name, value in members.items():
        masked = mask_text(name)
        while masked != name and (masked in out or masked in members):
            masked += "'"
        out[masked] = value
    return out


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


def _mask_scalar(text: bytes, loose: int, everything: bool) -> bytes:
    if text[:1] == b'"':
        if everything:
            return _MASKED if len(text) > 2 else text
        if loose:
            value = load(text)
            clean = mask_text(_mask_inner(value, loose)) if loose == LOOSE else _mask_arguments(value)
            return text if clean == value else json.dumps(clean).encode()
        return text
    return _MASKED if everything and text[:1] in b"-0123456789" else text


def _mask_arguments(text: str) -> str:
    """Arguments of a tool; of a part of them, as streams have them, the members that are whole."""
    inner = _mask_inner(text, ARGUMENTS)
    return mask_members(inner) if inner is text else inner


def _mask_inner(text: str, loose: int) -> str:
    """A text that is a JSON object or array, with the secrets inside masked; any other as it is."""
    if not text.startswith(("{", "[")):
        return text
    try:
        inner = text.encode()
        masked = _mask(inner, loose, "", False)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return text
    return masked.decode() if masked.count(MASK.encode()) > inner.count(MASK.encode()) else text


def _mask_member(name: str, text: bytes, loose: int, parent: str, everything: bool) -> bytes:
    # A tool that takes a parameter of that name: its schema is no secret.
    schema = parent == "properties" and text.startswith(b"{")
    in_plugins = "plugin_config" in (name, parent)
    sink_headers = parent == "plugin_config" and name.lower().startswith("headers")
    return _mask(
        text,
        LOOSE if loose == LOOSE or is_loose(name) else ARGUMENTS if loose or name in ARGUMENT_MEMBERS else PLAIN,
        "plugin_config" if in_plugins else name,
        everything or sink_headers or (is_secret_name(name) and not schema),
    )


_MASKED = f'"{MASK}"'.encode()


def _texts(members: Mapping[str, Raw]) -> dict[str, bytes]:
    return {k: bytes(v) for k, v in members.items()}


_quoted = json.encoder.encode_basestring_ascii


def _object(members: dict[str, bytes]) -> bytes:
    return b"{" + b",".join([_quoted(k).encode() + b":" + v for k, v in members.items()]) + b"}"
