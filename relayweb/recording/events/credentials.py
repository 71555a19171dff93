"""What a secret looks like: by the name of the member that holds it, or by its own text."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from adapters.secret_names import (
    ENDINGS,
    MASK,
    NAMES,
    is_secret_name,
    is_token_name,
    is_weak_name,
    looks_random,
    without_suffix,
)
from relayweb.recording.events.assignments import mask_named
from relayweb.recording.events.commands import mask_commands, mask_words
from relayweb.recording.events.encoded import mask_plain, mask_tokens
from relayweb.recording.kernels.names import LOOSE_ENDINGS, LOOSE_MEMBERS, LOOSE_STARTS, is_loose

__all__ = [
    "HEADER_SIGNS",
    "KEY_SIGNS",
    "MASK",
    "is_loose",
    "is_secret_name",
    "is_token_name",
    "is_weak_name",
    "looks_random",
    "mask_members",
    "mask_text",
    "mask_words",
    "special_names",
]

_CREDENTIAL = re.compile(
    r"(?i:((?<![\w-])(?:bearer|basic)(?:\s+|%20|\+))(?!(?:tokens?|auth\w*|scheme|headers?|required|format|credentials?"
    r"|realm|error|scope|access\w*)\b)([A-Za-z0-9._~+/=-]{6,}))"
    r"|\b(?:sk|csk)-[A-Za-z0-9_-]{8,}"
    r"|\b(?:AKIA|ASIA)[0-9A-Z]{12,}"
    r"|\brw_(?:ingest|gateway|read)_[A-Za-z0-9_-]{20,}"
)


def _without_credential(found: re.Match[str]) -> str:
    """A word behind `bearer` or `basic` that may be one of a sentence stays, where it is no value of a header."""
    word, at = found[2], found.start()
    if (
        word is not None
        and word.islower()
        and word.isalpha()
        and at
        and found.string[max(0, at - 9) : at].rstrip()[-1:] not in _OPENING
    ):
        return found[0]
    return (found[1] or "") + MASK


_OPENING = ('"', "'", ":", "=", "(", "[", "\\")
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
    r"|(-----BEGIN [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----)"
    r"(?:(?:[^-]|-(?!----)){1,20000}?-----END [A-Z ]{0,60}-----|[^-]+)"
)
# The end of a private key whose beginning was cut off.
_KEY_TAIL = re.compile(
    r"(?<![A-Za-z0-9+/=])(?:[A-Za-z0-9+/=]{40,76}(?:\s|\\[nr]){1,4}){0,200}[A-Za-z0-9+/=]{8,76}(?:\s|\\[nr]){0,4}"
    r"(?=-----END [A-Z ]{0,40}PRIVATE KEY)"
)
_SAID = (
    r"(?:(?:api|access|account|private|secret)[_-]?key|token|secret|pass(?:word|wd|phrase)|pwd|signature|credential)"
)
# In an address the parameters named so and the password.
_PARAMETER = re.compile(rf"(?i:([?&;#](?:[a-z0-9_.-]{{0,40}}{_SAID}|key|sig|auth|pass)=)[^\s&;#\"'<>\\]+)")
_USER = re.compile(
    r"(://[^\s/:@\"'<>]{0,200}:)(?:[^\s/\"'<>]+(?=@)|[^\s/@\"'<>]{80,})"
)  # no port is so long: its @ was cut off
_VALUE = r"(?=[^\s\"'&;,<>\\]{0,200}\d)[^\s\"'&;,<>\\]{6,}"  # words of a sentence have no digits
_ASSIGNED = re.compile(rf"(?i:((?:signature|credential)=\\{{0,9}}[\"']?){_VALUE})")
_HEADER = re.compile(
    rf"(?i:(cookie:\s{{0,9}})[^\r\n\"'=]{{1,99}}=(?:[^\r\n\"'\\]|\\(?![rn]))+"
    rf"|(authorization[:=]\s{{0,9}})(?:(?:digest|aws4-hmac-sha256)\s(?:[^\r\n\\]|\\(?![rn]))+"
    rf"|(?:[a-z]{{1,20}}\s{{1,9}})?(?![$<{{%*]){_VALUE}))"
)
HEADER_SIGNS: Final = ("cookie:", "ization:", "ization=")
_USER_ALONE = re.compile(r"(://)(?=[^\s/:@\"'<>]{0,200}\d)[^\s/:@\"'<>\\]{16,400}(?=@)")


def special_names(names: Iterable[str]) -> set[str]:
    """Of many names those that may be secret or loose, found at once; the others are neither."""
    names = list(names)
    text = "\n".join(names).lower()
    letters = _NO_LETTER_OF_A_LINE.sub("", text)
    lines = letters.split("\n")
    if len(lines) != len(names):  # a name of several lines
        return set(names)
    found = {
        name
        for name, said in zip(names, lines, strict=True)
        if said.endswith(_SPECIAL_ENDINGS) or said.startswith(LOOSE_STARTS)
    }
    if not text.isascii():
        found.update(name for name in names if not name.isascii())
    if _SUFFIXED.search(letters) is not None:
        found.update(name for name, said in zip(names, lines, strict=True) if without_suffix(said) != said)
    return found


_NO_LETTER_OF_A_LINE = re.compile(r"[^a-z\n]+")
_SUFFIXED = re.compile(
    r"(?:value|confirm|confirmation|again|repeat|hash|raw|plain|plaintext|old|new|prod\w*|test|dev|staging)$"
    r"|(?:backup|primary|secondary|base|b|encoded|eu|us)$",
    re.MULTILINE,
)
_SPECIAL_ENDINGS = tuple(
    {re.sub(r"[^a-z]", "", name) for name in (*NAMES, *ENDINGS, *LOOSE_MEMBERS, *LOOSE_ENDINGS) if name.isascii()}
    | {"token", "pass", "pwd", "auth", "credential", "credentials"}
)


_SHORT = 200  # characters: below, all signs together take longer than what they save


def mask_text(text: str, *, code: bool = False) -> str:
    """The text without what looks like a credential, or has the name of one before it.

    Args:
        code: it may be source text or a command, as in arguments of tools.
    """
    lower = text.lower()
    text = _CREDENTIAL.sub(_without_credential, text)
    if len(text) < _SHORT or max(map(lower.find, KEY_SIGNS)) >= 0:
        text = _KEY.sub(lambda m: (m[1] or "") + MASK, text)
        if "-----END" in text:
            text = _KEY_TAIL.sub(MASK, text)
    for sign, told in (("=", _PARAMETER), ("@", _USER_ALONE), ("://", _USER), ("=", _ASSIGNED)):
        if sign in text:
            text = told.sub(rf"\1{MASK}", text)
    if any(sign in lower for sign in HEADER_SIGNS):
        text = _HEADER.sub(lambda m: (m[1] or m[2]) + MASK, text)
    return mask_plain(mask_tokens(mask_commands(mask_named(text, code=code))))


def mask_members(text: str) -> str:
    """A piece of JSON with the values of members of secret names masked, as far as they are whole."""
    return _PAIR.sub(lambda m: f'{m[1]}{MASK}"' if is_secret_name(m[2]) else m[0], text) if '"' in text else text


_PAIR = re.compile(r"""("([^"\\]{1,60})"\s{0,9}:\s{0,9}")(?:[^"\\]|\\.)++(?:"|$)""")
