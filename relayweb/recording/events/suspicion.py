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
from relayweb.recording.events.credentials import KEY_SIGNS, is_loose, is_secret_name, is_token_name, special_names
from relayweb.recording.events.encoded import holds_plain
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
        return _holds_secret(text)
    if COMPILED and _NAMES.are_plain(text):
        return False
    try:
        return _has_secret_member(text)
    except (msgspec.DecodeError, RecursionError):
        return _holds_secret(text)


def _holds_secret(text: bytes) -> bool:
    if not _may_show_a_name(text):
        return False
    lower = text.lower()
    return _holds_secret_name(lower) or (max(map(lower.find, _LOOSE_SIGNS)) >= 0 and suspects_credentials(text))


# Of members that are loose, or arguments of tools; escaped ones are signs of a name.
_LOOSE_SIGNS: Final = (
    *(b'headers"', b'metadata"', b"error", b'"exception', b"trace"),
    *(b'partial_json"', b'command"', b'cmd"', b'tool_use"', b'arguments"', b'args"', b'argv"'),
)


def _holds_secret_name(lower: bytes) -> bool:
    """Of a text in small letters."""
    return (
        max(map(lower.find, _NAME_SIGNS)) >= 0
        or _KEY_NAME.search(lower) is not None
        or _TOKEN_NAME.search(lower) is not None
        or _PASS_NAME.search(lower) is not None
        or _holds_odd_name(lower)
    )


_NAME_SIGNS: Final = (b"cookie", b"secret", b"authorization", b"plugin_config", b'pwd"')
_SUFFIX: Final = (
    rb"(?:[\d_. -]|value|confirm|again|repeat|hash|plain|text|raw|old|new|prod|uction|test|dev|staging|backup|primary"
    rb"|secondary|base64|b64|encoded|eu|us|ation){0,9}\""
)
_KEY_NAME: Final = re.compile(rb"keys?" + _SUFFIX)
_TOKEN_NAME: Final = re.compile(rb"token" + _SUFFIX)
_PASS_NAME: Final = re.compile(rb"pass(?:w|phr|code|e" + _SUFFIX + rb"|" + _SUFFIX + rb")")
_ODD_NAME: Final = re.compile(rb'"((?:[^"\\]|\\u[0-9a-f]{4}){1,60})"\s{0,9}:')


def _holds_odd_name(lower: bytes) -> bool:
    """Whether a member whose name is not written in plain ASCII has the name of a secret."""
    return (b"\\u" in lower or not lower.isascii()) and any(
        is_secret_name(load(b'"%b"' % name)) or is_token_name(load(b'"%b"' % name))
        for name in _ODD_NAME.findall(lower)
        if b"\\" in name or not name.isascii()
    )


def _has_secret_member(text: bytes) -> bool:
    """As `_holds_secret`, without a look at long texts, which are no names."""
    first = text[:1]
    if first == b"{":
        members = _raw_object(text)
        if not _PLAIN_NAMES.issuperset(members):
            for name in members if len(members) < MANY else special_names(members):
                kind, value = _kind_of(name), bytes(members[name])
                if kind == "secret" or (kind == "loose" and len(value) > 8 and suspects_credentials(value)):
                    return True
                if kind == "plain" and len(_PLAIN_NAMES) < 10_000:
                    _PLAIN_NAMES.add(name)
        values = [bytes(value) for value in members.values()]
        if not are_all(text, members):
            return _holds_secret(text)
        if any(is_secret_text(members[name]) for name in NAMED.intersection(members)):
            return True
        if any(suspects_credentials(bytes(members[name])) for name in ARGUMENT_MEMBERS.intersection(members)):
            return True
        if "input" in members and is_tool_use(members) and suspects_credentials(bytes(members["input"])):
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
        if any(_holds_secret(b",".join(some)) for some in _groups(small)):
            return True
        inside = [value for value in inside if len(value) >= _SMALL]
    for value in inside:
        found = _has_secret_member(value) if len(value) >= _SMALL else _holds_secret(value)
        if found:
            return True
    return False


@lru_cache(10_000)
def _kind_of(name: str) -> Literal["plain", "loose", "secret"]:
    if is_secret_name(name) or is_token_name(name) or "plugin_config" in name.lower():
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
    return kind | (NAMING if name in NAMED else 0) | (ARGUMENTS if name in ARGUMENT_MEMBERS or name == "input" else 0)


_NAMES: Final = Names(_kind_of_text, lambda value: suspects_credentials(value))

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


ARGUMENT_MEMBERS = frozenset(("arguments", "partial_json", "args", "argv", "command", "cmd"))
"""Members that give the arguments of a tool, as JSON, as JSON in a text, or as a command."""
NAMED = frozenset(("name", "key", "header"))
"""Members that give the name of a header whose value is a member `value`."""


def is_tool_use(members: Mapping[str, bytes | Raw]) -> bool:
    """Whether this is a message's block that calls a tool; its member `input` holds the arguments."""
    return bytes(members.get("type", b"")).endswith(b'tool_use"')


def are_arguments(category: str | None, scope_category: str | None) -> bool:
    """Whether the data of such an event are the arguments of a tool."""
    return category == "tool" and scope_category == "start"


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
    return _holds_credential(text.lower()) or holds_plain(text)


def _holds_credential(lower: bytes) -> bool:
    """Of a text in small letters, in which Base64 is none."""
    if max(map(lower.find, _CREDENTIAL_SIGNS)) >= 0:
        return True
    if _UNDERSCORE_SIGN.search(lower) is not None or _DASH_SIGN.search(lower) is not None:
        return True
    # Single characters first: most texts have none of them, and such a search costs next to nothing.
    return (
        (b"@" in lower and _USER_SIGN.search(lower) is not None)
        or (b"=" in lower and max(map(lower.find, _PARAMETER_SIGNS)) >= 0)
        or _TOKEN_SIGN.search(lower) is not None
        or _KEY_SIGN.search(lower) is not None
        or ((b" -" in lower or b'"-' in lower or b"'-" in lower) and _OPTION_SIGN.search(lower) is not None)
        or (b"asia" in lower and _AWS_SIGN.search(lower) is not None)
        or (not lower.isascii() and _ODD_SIGN.search(lower.decode("utf-8", "replace")) is not None)
        or (b"\\u" in lower and _ODD_ESCAPE.search(lower) is not None)
        or (b"'" in lower and b"identified" in lower)
    )


_AWS_SIGN: Final = re.compile(rb"asia[a-z0-9]{12}")
_USER_SIGN: Final = re.compile(rb":\\?/\\?/")
_PARAMETER_SIGNS: Final = (b"sig=", b"signature=")
_BEHIND_A_TOKEN: Final = "\"'=: >%_.\\])<&;,-0123456789"  # no letter: `tokens` are counted everywhere
_TOKEN_SIGN: Final = re.compile(f"token[{re.escape(_BEHIND_A_TOKEN)}]".encode())
_KEY_SIGN: Final = re.compile(rb"key[^a-rt-z]")
_OPTION_SIGN: Final = re.compile(rb"[ \"'\\,]-(?:[upaw]|-[a-z-]{0,9}user)")
_ODD_SIGN: Final = re.compile(r"[^\x00-\x7f]\w{0,60}[\s\"'\\]{0,9}[:=>]")
_ODD_ESCAPE: Final = re.compile(rb"\\u[0-9a-f]{4}[\w\\]{0,60}[\s\"'\\]{0,9}[:=>]")
_SIGNS = (
    *("\\u00", "earer", "basic", "sk-", "akia", "eyj", "rw_", *KEY_SIGNS),
    *("pass", "secret", "cookie", "auth", "pwd", "cred"),
)
_CREDENTIAL_SIGNS: Final = tuple(sign.encode() for sign in _SIGNS if sign[-1] not in "_-")


def _ending_in(last: str) -> re.Pattern[bytes]:
    """The signs that end so, found by their end: one search where there is none takes less than one for each."""
    return re.compile(
        "|".join(f"(?<={sign})" for sign in _SIGNS if sign[-1] == last).join((f"{last}(?:", ")")).encode()
    )


_UNDERSCORE_SIGN: Final = _ending_in("_")
_DASH_SIGN: Final = _ending_in("-")


_ALL_SIGNS: Final = (
    *(b"@", b"=", b"asia", b"key", b"-user", b"identified", *_NAME_SIGNS, *_PARAMETER_SIGNS),
    *(sign.encode() for sign in _SIGNS),
    *(f"token{sign}".encode() for sign in _BEHIND_A_TOKEN),
    *(f"{before}-{letter}".encode() for before in " \"'\\," for letter in "upaw"),
    *(b"\\u%x" % digit for digit in range(16)),
)
_EVERY_SIGN: Final = Signs(_ALL_SIGNS)
"""Whatever else is looked for, an ASCII text without these holds nothing suspicious, but for Base64 without a `=`."""
_EVERY_NAME: Final = Signs((*_ALL_SIGNS, *_LOOSE_SIGNS))
"""The same, where no member is loose either; then Base64 does not matter."""


def _may_show_a_sign(text: bytes) -> bool:
    return not COMPILED or _EVERY_SIGN.within(text) or not text.isascii()


def _may_show_a_name(text: bytes) -> bool:
    return not COMPILED or _EVERY_NAME.within(text) or not text.isascii()


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
        given = b",".join(unknown)
        lower = given.lower()
        # Whatever is a sign of a secret name is one of a credential too, but these.
        if _holds_credential(lower) or b"plugin_config" in lower or _holds_odd_name(lower):
            return True
        if b"=" in lower and holds_plain(given):  # of Base64 without one to look for each would cost too much here
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
    return suspects_credentials(text) or b"plugin_config" in lower or _holds_odd_name(lower)
