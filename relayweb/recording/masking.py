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
from collections.abc import Mapping
from typing import Final

import msgspec

from relayweb.recording.atof import Parsed, load, restore_surrogates

MASK: Final = "[masked]"

_NAMES = frozenset(
    (
        "authorization",
        "proxyauthorization",
        "apikey",
        "xapikey",
        "cookie",
        "setcookie",
        "secret",
        "password",
        "accesstoken",
        "refreshtoken",
        "authtoken",
        "xauthtoken",
        "xrelaytoken",
        "bearertoken",
    )
)
_ENDINGS = ("apikey", "accesskey", "accesstoken", "securitytoken", "sessiontoken", "clientsecret")
_NO_LETTER = re.compile(r"[^a-z0-9]+")
_CREDENTIAL = re.compile(
    r"(?i:(\b(?:bearer|basic)\s+)[A-Za-z0-9._~+/=-]{6,})"
    r"|\bsk-[A-Za-z0-9_-]{8,}"
    r"|\bAKIA[0-9A-Z]{12,}"
    r"|\brw_(?:ingest|gateway|read)_[A-Za-z0-9_-]{20,}"
)
_SAID = r"(?:api[_-]?key|access[_-]?key|token|secret|password|signature|credential)"
# In an address the parameters named so and the password; in a text around it the members of JSON.
_PARAMETER = re.compile(rf"(?i:([?&;](?:[a-z0-9_.-]{{0,40}}{_SAID}|key|sig|auth)=)[^\s&;#\"'<>\\]+)")
_USER = re.compile(
    r"(://[^\s/:@\"'<>]{0,200}:)(?:[^\s/@\"'<>]+(?=@)|[^\s/@\"'<>]{80,})"
)  # no port is so long: its @ was cut off
_MEMBER = re.compile(
    rf"(?i:(\\{{0,9}}[\"'][a-z0-9_.-]{{0,40}}(?:{_SAID}|authorization|cookie)\\{{0,9}}[\"']\s{{0,9}}[:,=]\s{{0,9}}"
    rf"(?:\\{{0,9}}[\"']value\\{{0,9}}[\"']\s{{0,9}}:\s{{0,9}})?\\{{0,9}}[\"'])"
    r"[^\"'\\]+)"
)
# JWTs are looked for in whole runs of their characters, each once: an expression that begins at any "eyJ" takes time
# with the square of the text, hours for a hostile megabyte.
_RUN = re.compile(r"[A-Za-z0-9_.-]{16,}")
_JWT_HEAD = re.compile(r"(?:^|-)(?=eyJ.{6})")
_LOOSE_MEMBERS = frozenset(("headers", "extra_headers", "metadata", "error", "plugin_config"))
"""Members under which any credential is masked, wherever they stand; attributes like `exception.message` too."""
FAILURE_MARKS = frozenset(("relay.attempt_failed", "relay.attempt_blocked"))
"""Marks whose whole data is an error text."""


def is_secret_name(name: str) -> bool:
    """Whether a member of this name, or an attribute like `http.request.header.x-api-key`, holds a secret."""
    last = _NO_LETTER.sub("", name.lower().rpartition(".")[2])
    return last in _NAMES or last.endswith(_ENDINGS) or _NO_LETTER.sub("", name.lower()) in _NAMES


_raw_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_raw_array = msgspec.json.Decoder(list[msgspec.Raw]).decode
_SMALL = 512  # bytes: below, looking for all names at once is faster than looking at each


def is_loose(name: str) -> bool:
    """Whether any credential is masked under a member of this name."""
    lower = name.lower()
    return lower in _LOOSE_MEMBERS or lower.endswith("headers") or lower.startswith("exception.")


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
            for name in members:
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
    for value in values:
        if value[0] in b"{[":
            found = _has_secret_member(value) if len(value) >= _SMALL else _holds_secret_name(value.lower())
            if found:
                return True
    return False


_NAMES_ONLY = frozenset(("required", "enum"))
"""Members whose lists hold names, never a name and its value."""
_NAMED = frozenset(("name", "key", "header"))
"""Members that give the name of a header whose value is a member `value`."""


def _is_secret_text(value: bytes | msgspec.Raw) -> bool:
    """Whether this JSON value is a text that is the name of a secret."""
    text = bytes(value)
    return text[:1] == b'"' and len(text) < 100 and is_secret_name(load(text))


def _are_all(text: bytes, members: Mapping[str, bytes | msgspec.Raw]) -> bool:
    """Whether nothing of the object is hidden behind a second member of the same name, which the parser drops.

    True is certain; False also of white space, and of names that are not plain ASCII.
    """
    return not members or len(text) == 1 + sum(len(k) + len(bytes(v)) + 4 for k, v in members.items())


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


def mask_text(text: str) -> str:
    """The text without what looks like a credential."""
    text = _CREDENTIAL.sub(lambda m: (m[1] or "") + MASK, text)
    for told in (_PARAMETER, _USER, _MEMBER):
        text = told.sub(rf"\1{MASK}", text)
    return _RUN.sub(lambda m: _without_jwts(m[0]), text) if "eyJ" in text else text


def _without_jwts(run: str) -> str:
    """A run of letters, digits, `_`, `-` and `.` with `eyJ….….…` masked, as a whole or behind a `-`."""
    parts = run.split(".")
    kept: list[str] = []
    at = 0
    while at < len(parts):
        head = _JWT_HEAD.search(parts[at]) if at + 1 < len(parts) and len(parts[at + 1]) >= 6 else None
        kept.append(parts[at] if head is None else parts[at][: head.end()] + MASK)
        at += 1 if head is None else 3
    return ".".join(kept)


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
        members = _raw_object(text)
        masked = {k: _mask_member(k, bytes(v), loose, parent, everything) for k, v in members.items()}
        if loose and "value" in masked and any(_is_secret_text(members[k]) for k in _NAMED.intersection(members)):
            masked["value"] = _mask(masked["value"], loose, parent, True)
        return text if _are_all(text, members) and masked == _texts(members) else _object(masked)
    if first == b"[":
        items = [bytes(v) for v in _raw_array(text)]
        if loose and len(items) == 2 and parent not in _NAMES_ONLY and _is_secret_text(items[0]):
            kept = [items[0], _mask(items[1], loose, parent, True)]
        else:
            kept = [_mask(v, loose, parent, everything) for v in items]
        return text if kept == items else b"[" + b",".join(kept) + b"]"
    if first == b'"':
        if everything:
            return _MASKED if len(text) > 2 else text
        if loose:
            value = load(text)
            clean = mask_text(_mask_inner(value))
            return text if clean == value else json.dumps(clean).encode()
        return text
    return _MASKED if everything and first in b"-0123456789" else text


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


def _texts(members: Mapping[str, msgspec.Raw]) -> dict[str, bytes]:
    return {k: bytes(v) for k, v in members.items()}


def _object(members: dict[str, bytes]) -> bytes:
    return b"{" + b",".join(json.dumps(k).encode() + b":" + v for k, v in members.items()) + b"}"
