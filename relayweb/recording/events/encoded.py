"""Secrets in Base64: JSON Web Tokens, JSON with secret members, and `user:password`."""

from __future__ import annotations

import re
from base64 import b64decode
from binascii import Error

from adapters.secret_names import MASK, is_secret_name

# JWTs are looked for in whole runs of their characters, each once: an expression that begins at any "eyJ" takes time
# with the square of the text, hours for a hostile megabyte.
_RUN = re.compile(r"[A-Za-z0-9_.-]{16,}")
_JWT_HEAD = re.compile(r"(?:^|-)(?=eyJ.{6})")
# Base64 of printable ASCII: of four characters the first three are some of theirs only. What stands before is looked at
# last, because most words fail earlier.
_THREE, _ANY = "[I-Za-f][0-3C-HS-Xi-nyz][014589ABEFIJMNQRUVYZcdghklopstwx]", "[A-Za-z0-9+/_-]"
_PLAIN = rf"{_THREE}{_ANY}{_THREE}(?<!{_ANY}.......){_ANY}(?:{_THREE}{_ANY})*{_ANY}{{0,3}}={{0,2}}(?![A-Za-z0-9+/_=-])"
_PLAIN_TEXT, _PLAIN_BYTES = re.compile(_PLAIN), re.compile(_PLAIN.encode())
_CREDENTIALS = re.compile(r"(?P<user>[A-Za-z][\w.@+-]{0,63}):(?!//)(?P<password>[\x21-\x7e]{4,200})\Z", re.ASCII)
_PLAIN_VALUE = re.compile(r"[\d.:-]+\Z|[0-9a-fA-F-]{20,}\Z")  # a number, time or identifier: a cursor, a global id
_NAME = re.compile(r"\"([^\"\\]{1,60})\"\s{0,9}:")


def mask_tokens(text: str) -> str:
    """The text without JSON Web Tokens, and without Base64 of JSON that has members of secret names."""
    return _RUN.sub(lambda m: _without_jwts(m[0]), text) if "eyJ" in text else text


def mask_plain(text: str) -> str:
    """The text without Base64 of `user:password`."""
    return _PLAIN_TEXT.sub(lambda m: MASK if _is_credentials(m[0]) else m[0], text)


def holds_plain(text: bytes) -> bool:
    """Whether a text holds Base64 of `user:password`."""
    return any(_is_credentials(found[0].decode()) for found in _PLAIN_BYTES.finditer(text))


def _is_credentials(word: str) -> bool:
    """Whether this is Base64 of `user:password`."""
    try:
        said = b64decode(word.rstrip("=").replace("-", "+").replace("_", "/") + "=" * (-len(word.rstrip("=")) % 4))
    except Error:
        return False
    found = _CREDENTIALS.match(said.decode("latin-1"))
    return found is not None and _PLAIN_VALUE.match(found["password"]) is None


def _without_jwts(run: str) -> str:
    """A run of letters, digits, `_`, `-` and `.` with `eyJ….….…` masked, as a whole or behind a `-`."""
    parts = run.split(".")
    kept: list[str] = []
    at = 0
    while at < len(parts):
        if "eyJ" not in parts[at]:
            kept.append(parts[at])
            at += 1
            continue
        rest = parts[at + 1 : at + 5]
        encrypted = len(rest) == 4 and not rest[0].startswith("eyJ") and all(map(len, rest[1:]))  # a JWE
        head = _JWT_HEAD.search(parts[at]) if encrypted or (rest and len(rest[0]) >= 6) else None
        if head is None and _hides_secret(parts[at]):
            head = _JWT_HEAD.search(parts[at])
        kept.append(parts[at] if head is None else parts[at][: head.end()] + MASK)
        at += 1 if head is None else 5 if encrypted else 3 if rest and len(rest[0]) >= 6 else 1
    return ".".join(kept)


def _hides_secret(part: str) -> bool:
    """Whether this is Base64 of a JSON object, at least of its beginning, with a member of a secret's name."""
    if not part.startswith("eyJ"):
        return False
    whole = part[: len(part) // 4 * 4].replace("-", "+").replace("_", "/")
    return any(is_secret_name(name) for name in _NAME.findall(b64decode(whole).decode("latin-1")))
