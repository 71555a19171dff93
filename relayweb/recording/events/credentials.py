"""What a secret looks like: by the name of the member that holds it, or by its own text."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Iterable
from typing import Final

from adapters.secret_names import ENDINGS, MASK, NAMES, NO_LETTER, is_secret_name
from relayweb.recording.kernels.names import LOOSE_MEMBERS, is_loose

__all__ = [
    "HEADER_SIGNS",
    "KEY_SIGNS",
    "MASK",
    "is_loose",
    "is_secret_name",
    "mask_members",
    "mask_text",
    "special_names",
]

_CREDENTIAL = re.compile(
    r"(?i:(\b(?:bearer|basic)\s+)[A-Za-z0-9._~+/=-]{6,})"
    r"|\b(?:sk|csk)-[A-Za-z0-9_-]{8,}"
    r"|\b(?:AKIA|ASIA)[0-9A-Z]{12,}"
    r"|\brw_(?:ingest|gateway|read)_[A-Za-z0-9_-]{20,}"
)
KEY_SIGNS: Final = (
    *("gsk_", "_live_", "hf_", "ghp_", "gho_", "ghs_", "ghu_", "ghr_", "_pat_", "whsec_", "r8_", "fw_", "tgp_v1_"),
    *("npm_", "lsv2_", "vck_", "dop_v1_", "e2b_", "ntn_", "lin_api_", "figd_"),
    *("aiza", "ya29.", "xai-", "nvapi-", "glpat-", "xox", "xapp-", "pplx-", "pypi-", "absk", "dapi", "pk-lf-", "tvly-"),
    "private key",
)
"""In small letters, one of which every text holds in which `_KEY` finds something."""
# How the keys of providers begin, as they document it or secret scanners know it. A short word takes a long tail.
_KEY = re.compile(
    r"\b(?:(?:pk-lf|xai|nvapi|pplx|tvly|glpat|xapp|xox[a-z]|pypi)-[A-Za-z0-9_-]{8,}"
    r"|(?:github_pat|lsv2_[a-z]{2}|[sr]k_live|tgp_v1|dop_v1|lin_api|whsec)_[A-Za-z0-9_-]{12,}"
    r"|(?:gsk|hf|gh[opsur]|r8|fw|npm|vck|e2b|ntn|figd)_[A-Za-z0-9]{16,}"
    r"|AIza[A-Za-z0-9_-]{20,}|ya29\.[A-Za-z0-9_.-]{10,}|ABSK[A-Za-z0-9+/=]{16,}|dapi[A-Za-z0-9]{16,})"
    r"|(-----BEGIN [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----)[^-]+(?:-----END [A-Z ]{0,60}-----)?"
)
_SAID = r"(?:(?:api|access|account|private|secret)[_-]?key|token|secret|password|passwd|pwd|signature|credential)"
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
_VALUE = r"(?=[^\s\"'&;,<>\\]{0,200}\d)[^\s\"'&;,<>\\]{8,}"  # words of a sentence have no digits
_ASSIGNED = re.compile(rf"(?i:({_SAID}=\\{{0,9}}[\"']?){_VALUE})")
_HEADER = re.compile(
    rf"(?i:(cookie:\s{{0,9}})[^\r\n\"'=]{{1,99}}=[^\r\n\"']+"
    rf"|(authorization:\s{{0,9}})(?:(?:digest|aws4-hmac-sha256)\s[^\r\n]+|(?:[a-z]{{1,20}}\s{{1,9}})?{_VALUE})"
    rf"|(api-?key:\s{{0,9}}){_VALUE})"
)
HEADER_SIGNS: Final = ("cookie:", "ization:", "key:")
_USER_ALONE = re.compile(r"(://)(?=[^\s/:@\"'<>]{0,200}\d)[^\s/:@\"'<>\\]{16,400}(?=@)")
# JWTs are looked for in whole runs of their characters, each once: an expression that begins at any "eyJ" takes time
# with the square of the text, hours for a hostile megabyte.
_RUN = re.compile(r"[A-Za-z0-9_.-]{16,}")
_JWT_HEAD = re.compile(r"(?:^|-)(?=eyJ.{6})")


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
_SPECIAL_ENDINGS = tuple({NO_LETTER.sub("", name) for name in (*NAMES, *ENDINGS, *LOOSE_MEMBERS, "headers") if name})


_SHORT = 200  # characters: below, all signs together take longer than what they save


def mask_text(text: str) -> str:
    """The text without what looks like a credential."""
    lower = text.lower()
    text = _CREDENTIAL.sub(lambda m: (m[1] or "") + MASK, text)
    if len(text) < _SHORT or max(map(lower.find, KEY_SIGNS)) >= 0:
        text = _KEY.sub(lambda m: (m[1] or "") + MASK, text)
    for sign, told in (("=", _PARAMETER), ("@", _USER_ALONE), ("://", _USER), ("", _MEMBER), ("=", _ASSIGNED)):
        if sign in text:
            text = told.sub(rf"\1{MASK}", text)
    if any(sign in lower for sign in HEADER_SIGNS):
        text = _HEADER.sub(lambda m: (m[1] or m[2] or m[3]) + MASK, text)
    return _RUN.sub(lambda m: _without_jwts(m[0]), text) if "eyJ" in text else text


def mask_members(text: str) -> str:
    """A piece of JSON with the values of members of secret names masked, as far as they are whole."""
    return _PAIR.sub(lambda m: f'{m[1]}{MASK}"' if is_secret_name(m[2]) else m[0], text) if '"' in text else text


_PAIR = re.compile(r"""("([^"\\]{1,60})"\s{0,9}:\s{0,9}")(?:[^"\\]|\\.)++(?:"|$)""")


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


_NAME = re.compile(r"\"([^\"\\]{1,60})\"\s{0,9}:")
