"""What may hold a secret, decided by plain searches for a part of what secrets look like.

Almost nothing that arrives holds one; only what is suspected here is parsed and masked. Any doubt counts as suspicion.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Final, Literal, TypeVar

import msgspec
from msgspec import Raw

from relayweb.recording.events.atof import load
from relayweb.recording.events.credentials import HEADER_SIGNS, KEY_SIGNS, is_loose, is_secret_name, special_names
from relayweb.recording.kernels import COMPILED, Names, Signs
from relayweb.recording.kernels.names import ARGUMENTS, NAMING, SUSPECT

K = TypeVar("K", str, int)

_raw_object = msgspec.json.Decoder(dict[str, Raw]).decode
_raw_array = msgspec.json.Decoder(list[Raw]).decode
_SMALL = 512  # bytes: below, looking for all names at once is faster than looking at each


def suspects_names(text: bytes) -> bool:
    """Whether a member of this JSON text may be secret by its name, or a loose one hold a credential.

    False is certain.
    """
    if len(text) < _SMALL or text[0] not in b'{["':
        return _may_show_a_sign(text) and _holds_secret(text.lower())
    if COMPILED and _NAMES.are_plain(text):
        return False
    try:
        return _has_secret_member(text)
    except (msgspec.DecodeError, RecursionError):
        return _holds_secret(text.lower())


def _holds_secret(lower: bytes) -> bool:
    return _holds_secret_name(lower) or (max(map(lower.find, _LOOSE_SIGNS)) >= 0 and _holds_credential(lower))


_LOOSE_SIGNS: Final = (b'headers"', b'metadata"', b'error"', b'"exception.')  # escaped ones are signs of a name


def _holds_secret_name(lower: bytes) -> bool:
    """Of a text in small letters."""
    return max(map(lower.find, _NAME_SIGNS)) >= 0 or (
        (b'arguments"' in lower or b'partial_json"' in lower) and _holds_member(lower)
    )


_NAME_SIGNS: Final = (
    *(b"\\u00", b'key"', b'token"', b"cookie", b'secret"'),
    *(b"passw", b'passphrase"', b'authorization"', b'plugin_config"'),
)


def _has_secret_member(text: bytes) -> bool:
    """As `_holds_secret`, without a look at long texts, which are no names."""
    first = text[:1]
    if first == b"{":
        members = _raw_object(text)
        if not _PLAIN_NAMES.issuperset(members):
            for name in members if len(members) < MANY else special_names(members):
                kind, value = _kind_of(name), bytes(members[name])
                if kind == "secret" or (kind == "loose" and len(value) > 8 and _holds_credential(value.lower())):
                    return True
                if kind == "plain" and len(_PLAIN_NAMES) < 10_000:
                    _PLAIN_NAMES.add(name)
        values = [bytes(value) for value in members.values()]
        if not are_all(text, members):
            return _holds_secret(text.lower())
        if any(is_secret_text(members[name]) for name in NAMED.intersection(members)):
            return True
        if any(_holds_member(bytes(members[name]).lower()) for name in ARGUMENT_MEMBERS.intersection(members)):
            return True
    elif first == b"[":
        values = [bytes(value) for value in _raw_array(text)]
        if len(values) == 2 and is_secret_text(values[0]):
            return True
    else:
        return False
    inside = [value for value in values if value[0] in b"{["]
    if len(inside) >= MANY:
        small = [value for value in inside if len(value) < _SMALL]
        if any(_holds_secret(b",".join(some).lower()) for some in _groups(small)):
            return True
        inside = [value for value in inside if len(value) >= _SMALL]
    for value in inside:
        found = _has_secret_member(value) if len(value) >= _SMALL else _holds_secret(value.lower())
        if found:
            return True
    return False


@lru_cache(10_000)
def _kind_of(name: str) -> Literal["plain", "loose", "secret"]:
    if is_secret_name(name) or "plugin_config" in name.lower():
        return "secret"
    return "loose" if is_loose(name) else "plain"


_name = msgspec.json.Decoder(str).decode


def _kind_of_text(text: bytes) -> int:
    """As `_kind_of`, for `Names`."""
    try:
        name = _name(b'"' + text + b'"')
    except msgspec.DecodeError:
        return SUSPECT
    kind = 0 if _kind_of(name) == "plain" else SUSPECT
    return kind | (NAMING if name in NAMED else 0) | (ARGUMENTS if name in ARGUMENT_MEMBERS else 0)


_NAMES: Final = Names(_kind_of_text, lambda value: _holds_member(value.lower()))

MANY = 64  # members, from which on all their names are looked at in one
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


ARGUMENT_MEMBERS = frozenset(("arguments", "partial_json"))
"""Members that give the arguments of a tool, as JSON in a text."""
NAMED = frozenset(("name", "key", "header"))
"""Members that give the name of a header whose value is a member `value`."""


def is_secret_text(value: bytes | Raw) -> bool:
    """Whether this JSON value is a text that is the name of a secret."""
    text = bytes(value)
    return text[:1] == b'"' and len(text) < 100 and is_secret_name(load(text))


def are_all(text: bytes, members: Mapping[str, bytes | Raw]) -> bool:
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
    if _UNDERSCORE_SIGN.search(lower) is not None or _DASH_SIGN.search(lower) is not None:
        return True
    # Single characters first: most texts have none of them, and such a search costs next to nothing.
    return (
        (b"@" in lower and _USER_SIGN.search(lower) is not None)
        or (b"=" in lower and max(map(lower.find, _PARAMETER_SIGNS)) >= 0)
        or _holds_member(lower)
        or (b"'" in lower and _holds_quoted_name(lower))
        or (b"asia" in lower and _AWS_SIGN.search(lower) is not None)
    )


def _holds_member(lower: bytes) -> bool:
    """Whether a text that is JSON, within JSON, may have a secret member."""
    return b'\\"' in lower and max(map(lower.find, _MEMBER_SIGNS)) >= 0


def _holds_quoted_name(lower: bytes) -> bool:
    return any(sign[:-1] + b"'" in lower for sign in _MEMBER_SIGNS)


_AWS_SIGN: Final = re.compile(rb"asia[a-z0-9]{12}")
_USER_SIGN: Final = re.compile(rb":\\?/\\?/")
_PARAMETER_SIGNS: Final = (
    b"key=",
    b"token=",
    b"secret=",
    b"password=",
    b"passwd=",
    b"pwd=",
    b"signature=",
    b"credential=",
    b"sig=",
    b"auth=",
)
# With the backslash of the quote that ends the name.
_MEMBER_SIGNS: Final = (
    *(b"key\\", b"token\\", b"secret\\", b"password\\", b"signature\\", b"credential\\"),
    *(b"authorization\\", b"cookie\\", b"cookies\\", b"passwd\\", b"passphrase\\", b"pwd\\"),
)
_SIGNS = ("\\u00", "earer", "basic", "sk-", "akia", "eyj", "rw_", *KEY_SIGNS, *HEADER_SIGNS)
_CREDENTIAL_SIGNS: Final = tuple(sign.encode() for sign in _SIGNS if sign[-1] not in "_-")


def _ending_in(last: str) -> re.Pattern[bytes]:
    """The signs that end so, found by their end: one search where there is none takes less than one for each."""
    return re.compile(
        "|".join(f"(?<={sign})" for sign in _SIGNS if sign[-1] == last).join((f"{last}(?:", ")")).encode()
    )


_UNDERSCORE_SIGN: Final = _ending_in("_")
_DASH_SIGN: Final = _ending_in("-")


_EVERY_SIGN: Final = Signs(
    (b"@", b"asia", *_NAME_SIGNS, *_PARAMETER_SIGNS, *_MEMBER_SIGNS, *(sign[:-1] + b"'" for sign in _MEMBER_SIGNS))
    + tuple(sign.encode() for sign in _SIGNS)
)
"""Whatever else is looked for, a text without these holds nothing suspicious."""


def _may_show_a_sign(text: bytes) -> bool:
    return not COMPILED or _EVERY_SIGN.within(text)


class Prefilter:
    """`suspects_names` or `suspects_credentials`, of events with holes (see `content`).

    Most of an event stood in one before it, so what lies between two commas, which no sign of a secret holds, is
    remembered if there is nothing suspicious in it.
    """

    def __init__(self) -> None:
        self._clean: set[bytes] = set()

    def suspects(self, text: bytes) -> bool:
        """Whether this event may hold a secret. False is certain."""
        if not _may_show_a_sign(text):
            return False
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


def unclear(values: Iterable[tuple[K, bytes]], loose: int) -> list[K]:
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
