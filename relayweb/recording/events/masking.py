"""Secrets, masked once at the door: names are kept, values are not.

Two rules. A member whose name stands for a secret loses its value, at any depth. In headers, metadata and error texts,
anything that looks like a credential goes, whatever its name; so do the values of headers in pairs, of parameters of
addresses, and inside texts that are JSON themselves. So it is in arguments of tools, but there what may be source text
is read as such. Message text is left alone.

What is masked was suspected before (`suspicion`). It runs on new content only: `content.Store` recognises what it has
stored before.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import Raw

from relayweb.recording.events import split_arguments
from relayweb.recording.events.atof import Parsed, load, restore_surrogates
from relayweb.recording.events.credentials import (
    MASK,
    is_loose,
    is_secret_name,
    is_token_name,
    is_weak_name,
    looks_random,
    mask_members,
    mask_text,
    mask_words,
    special_names,
)
from relayweb.recording.events.suspicion import (
    ARGUMENT_MEMBERS,
    MANY,
    NAMED,
    Prefilter,
    are_all,
    are_arguments,
    is_secret_text,
    is_tool_use,
    suspects_credentials,
    suspects_names,
    unclear,
)

__all__ = [
    "ARGUMENTS",
    "FAILURE_MARKS",
    "LOOSE",
    "MASK",
    "PLAIN",
    "Prefilter",
    "level_of",
    "mask",
    "mask_event",
    "mask_parsed",
    "are_arguments",
    "mask_text",
    "suspects_credentials",
    "suspects_names",
    "suspects_split",
]

FAILURE_MARKS = frozenset(("relay.attempt_failed", "relay.attempt_blocked"))
"""Marks whose whole data is an error text."""

_raw_object = msgspec.json.Decoder(dict[str, Raw]).decode
_raw_array = msgspec.json.Decoder(list[Raw]).decode

PLAIN, ARGUMENTS, LOOSE = range(3)
"""What else is looked at in texts: nothing; what looks secret in source text or JSON; whatever looks secret."""


def mask(text: bytes, loose: int = PLAIN) -> bytes:
    """The same JSON value with its secrets masked; the same bytes where it is compact and holds none.

    Args:
        text: valid JSON. What is not secret keeps its text, so numbers keep their digits.
        loose: what is looked at in texts, `PLAIN`, `ARGUMENTS` or `LOOSE`.
    """
    return _mask(text, loose, parent="", everything=False)


def level_of(name: str, around: int) -> int:
    """What is looked at in texts under a member of this name, within something of level `around`."""
    if around == LOOSE or is_loose(name):
        return LOOSE
    return ARGUMENTS if around or name in ARGUMENT_MEMBERS else PLAIN


def mask_event(line: bytes, *, loose_data: bool = False, split: bool = False) -> bytes:
    """One event with its secrets masked; the same bytes where it is compact and holds none.

    Args:
        loose_data: its whole data is an error text.
        split: its data holds chunks, over which arguments may be split.
    """
    if split:
        line = _mask_split(line)
    members = _raw_object(line)
    arguments = are_arguments(_said(members, "category"), _said(members, "scope_category"))
    data = LOOSE if loose_data else ARGUMENTS if arguments else PLAIN
    levels = {"data": data, "category_profile": PLAIN}
    masked = {k: _mask_member(k, bytes(v), levels.get(k, LOOSE), "", False) for k, v in members.items()}
    return line if are_all(line, members) and masked == _texts(members) else _object(masked)


def suspects_split(data: bytes) -> bool:
    """Whether arguments that are split over the chunks in the data of a mark may hold a secret, seen together."""
    texts = (b'{"arguments":%s}' % split_arguments.joined(call) for call in split_arguments.calls(data))
    return any(map(suspects_names, texts))


def _mask_split(line: bytes) -> bytes:
    new: dict[split_arguments.Path, str] = {}
    for call in split_arguments.calls(bytes(_raw_object(line)["data"])):
        new.update(split_arguments.changes(call, lambda text: _mask_scalar(text, ARGUMENTS, False)))
    return split_arguments.exchanged(line, {("data", *path): piece for path, piece in new.items()}) if new else line


def _said(members: Mapping[str, Raw], name: str) -> Any:
    return load(members[name]) if name in members else None


def mask_parsed(
    event: Parsed, *, loose_data: bool = False, split: bool = False
) -> tuple[bytes, tuple[tuple[int, bytes], ...]]:
    """`mask_event` of a parsed line, and where its lone surrogates (`Parsed.surrogates`) stand in the result."""
    line = event.line
    if not event.surrogates:
        return mask_event(line, loose_data=loose_data, split=split), ()
    stand_ins = _stand_ins(line)
    said = [(offset, stand_ins.get(digits.lower(), b"fffd")) for offset, digits in event.surrogates]
    line = restore_surrogates(line, said)
    masked = mask_event(line, loose_data=loose_data, split=split)
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


_HEADER = re.compile(rb'(?i)"(?:authorization|cookie|set-cookie|[a-z]+-[a-z-]+)"')
"""In arguments a pair may also be a list of two names."""


def _mask(text: bytes, loose: int, parent: str, everything: bool) -> bytes:
    first = text[:1]
    if first == b"{":
        return _mask_object(text, _raw_object(text), loose, parent, everything)
    if first == b"[":
        items = [bytes(v) for v in _raw_array(text)]
        kept = items.copy()
        if (
            loose
            and len(items) == 2
            and parent not in _NAMES_ONLY
            and is_secret_text(items[0])
            and (loose == LOOSE or _HEADER.match(items[0]))
        ):
            kept[1] = _mask(items[1], loose, parent, True)
        else:
            wide = len(items) >= MANY and not everything and parent != "plugin_config"
            for at in unclear(enumerate(items), loose) if wide else range(len(items)):
                kept[at] = _mask(items[at], loose, parent, everything)
            if loose and not everything and b'"-' in text:
                kept = _mask_options(kept)
        return text if kept == items else b"[" + b",".join(kept) + b"]"
    return _mask_scalar(text, loose, everything)


def _mask_options(items: list[bytes]) -> list[bytes]:
    """The words of a command, of which a secret may stand behind the one that says so."""
    words = [load(item) if item[:1] == b'"' else "" for item in items]
    return [
        item if word == masked else json.dumps(masked).encode()
        for item, word, masked in zip(items, words, mask_words(words), strict=True)
    ]


def _mask_object(text: bytes, members: dict[str, Raw], loose: int, parent: str, everything: bool) -> bytes:
    wanted: Iterable[str] = members
    if len(members) >= MANY and not everything and parent != "plugin_config":
        special = special_names(members)
        wanted = special.union(ARGUMENT_MEMBERS.intersection(members), {"input"}.intersection(members))
        if loose or text.find(b"{", 1) > 0 or b"[" in text:
            others = ((name, bytes(value)) for name, value in members.items() if name not in wanted)
            wanted = (*wanted, *unclear(others, loose))
    changed: dict[str, bytes] = {}
    for name in wanted:
        value = bytes(members[name])
        if value[0] not in b'{["' and not everything and not is_secret_name(name) and parent != "plugin_config":
            continue
        level = ARGUMENTS if name == "input" and not loose and is_tool_use(members) else loose
        masked = _mask_member(name, value, level, parent, everything)
        if masked != value:
            changed[name] = masked
    if loose and "value" in members and any(is_secret_text(members[k]) for k in NAMED.intersection(members)):
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
            clean = _mask_inner(value, loose)
            if clean is None:
                clean = mask_text(value) if loose == LOOSE else mask_text(mask_members(value), code=True)
            return text if clean == value else json.dumps(clean).encode()
        return text
    return _MASKED if everything and text[:1] in b"-0123456789" else text


def _mask_inner(text: str, loose: int) -> str | None:
    """A text that is JSON but no number, with the secrets inside masked; None of any other."""
    if not text.lstrip().startswith(("{", "[", '"')):
        return None
    try:
        inner = text.encode()
        masked = _mask(inner.strip(), loose, "", False)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    return masked.decode() if masked.count(MASK.encode()) > inner.count(MASK.encode()) else text


def _mask_member(name: str, text: bytes, loose: int, parent: str, everything: bool) -> bytes:
    # A tool that takes a parameter of that name: its schema is no secret.
    schema = parent == "properties" and text.startswith(b"{")
    in_plugins = "plugin_config" in (name, parent)
    sink_headers = parent == "plugin_config" and name.lower().startswith("headers")
    loose = level_of(name, loose)
    if text[:1] == b'"' and not everything and (is_weak_name(name) if loose else is_token_name(name)):
        everything = looks_random(load(text))
    return _mask(
        text,
        loose,
        "plugin_config" if in_plugins else name,
        everything or sink_headers or (is_secret_name(name) and not schema),
    )


_MASKED = f'"{MASK}"'.encode()


def _texts(members: Mapping[str, Raw]) -> dict[str, bytes]:
    return {k: bytes(v) for k, v in members.items()}


_quoted = json.encoder.encode_basestring_ascii


def _object(members: dict[str, bytes]) -> bytes:
    return b"{" + b",".join([_quoted(k).encode() + b":" + v for k, v in members.items()]) + b"}"
