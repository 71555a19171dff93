"""What a secret looks like: by the name of the member that holds it, or by its own text."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

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


def is_secret_name(name: str) -> bool:
    """Whether a member of this name, or an attribute like `http.request.header.x-api-key`, holds a secret."""
    last = _NO_LETTER.sub("", name.lower().rpartition(".")[2])
    return last in _NAMES or last.endswith(_ENDINGS) or _NO_LETTER.sub("", name.lower()) in _NAMES


@lru_cache(1024)
def is_loose(name: str) -> bool:
    """Whether any credential is masked under a member of this name."""
    lower = name.lower()
    return lower in _LOOSE_MEMBERS or lower.endswith("headers") or lower.startswith("exception.")


def special_names(names: Iterable[str]) -> set[str]:
    """Of many names those that may be secret or loose, found at once; the others are neither."""
    names = list(names)
    letters = _NO_LETTER_OF_A_LINE.sub("", "\n".join(names).lower()).split("\n")
    if len(letters) != len(names):  # a name of several lines
        return set(names)
    return {
        name
        for name, said in zip(names, letters, strict=True)
        if said.endswith(_SPECIAL_ENDINGS) or said.startswith("exception")
    }


_NO_LETTER_OF_A_LINE = re.compile(r"[^a-z0-9\n]+")
_SPECIAL_ENDINGS = tuple(
    {_NO_LETTER.sub("", name) for name in (*_NAMES, *_ENDINGS, *_LOOSE_MEMBERS, "headers") if name}
)


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
