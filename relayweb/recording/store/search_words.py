"""The terms of a text, by which the full-text index finds it: alike in every database.

A run of letters and figures is a word. Where no space tells words apart (ideographs, kana, Hangul, Thai, Lao, Khmer,
Burmese) each character is one. Signs, from `=` to ✅, are terms too: the index has no positions, so that a sign costs a
document little, however often it stands there.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache

MAX_TEXT = 200_000  # characters of one document

WORD = re.compile(r"[^\W_]+")
_SINGLE = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3105-\u312f\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7af\U00020000-\U0003ffff"
)
_ALONE = re.compile(f"([{_SINGLE}])")
# How a character looks, and what joins two of them to one picture: nobody types it.
_UNSEEN = dict.fromkeys((0x00AD, 0x200B, 0x200C, 0x200D, 0xFE0E, 0xFE0F, 0xFEFF))
_SIGN = "\ue000"
"""Begins the term of a sign: a private character, which both databases take for a letter and nobody looks for."""


def normal(text: str) -> str:
    """Text as it is compared: small letters, no accents, single spaces."""
    if not text.isascii():
        decomposed = unicodedata.normalize("NFKD", text.translate(_UNSEEN))
        plain = "".join(c for c in decomposed if not unicodedata.combining(c))
        text = unicodedata.normalize("NFC", plain)  # Hangul again, which came apart
    return " ".join(text.casefold().split())


@lru_cache(8192)
def _term(character: str) -> str:
    """The term of a sign; empty for any other character."""
    if character != "_" and unicodedata.category(character)[0] not in "PS":
        return ""
    return f"{_SIGN}{ord(character):x}"


def _signs(text: str) -> list[str]:
    return sorted(filter(None, map(_term, set(text))))


def terms(text: str) -> list[str]:
    """The words of a text in order, and its signs."""
    text = normal(text)
    return WORD.findall(_ALONE.sub(r" \1 ", text)) + _signs(text)


def words(text: str) -> str:
    """The terms of a text, between them what is none. Signs first: of a long text they are kept."""
    if text.isascii():
        return " ".join((*_signs(text), text.replace("\0", " ")))[:MAX_TEXT]
    text = normal(text)
    return " ".join((*_signs(text), *WORD.findall(_ALONE.sub(r" \1 ", text))))[:MAX_TEXT]


def split(words: str) -> Iterator[str]:
    """The terms in what `words` gave, for a database that is given them one by one."""
    return (match[0] for match in _EACH.finditer(words.lower()))


_EACH = re.compile(rf"{_SIGN}?[^\W_]+")


def stands_alone(word: str) -> bool:
    """Whether a term is a word that ends where letters do; no sign, and no character that is a word itself."""
    return WORD.fullmatch(word) is not None and _ALONE.fullmatch(word) is None
