"""Secrets in texts behind their names: `DB_PASSWORD=…`, `--api-key …`, `"password": "…"`, `<token>…</token>`.

Which names are secret is decided where it is decided for members (`adapters.secret_names`). What stands behind them is
masked unless it stands for a value itself: `$TOKEN`, `<key>`, `getpass()`.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from adapters.secret_names import MASK, is_placeholder, is_secret_name, is_weak_name, looks_random

# A name in quotes, what parts it from its value, and the quote that opens it; JSON and Python, also within strings.
_QUOTED = re.compile(
    r"(?<!\\)(?P<q>\\*+[\"'])(?P<name>(?:[^\"'\\\s<>{}=:,/]|\\{1,9}u[0-9a-fA-F]{4}){1,60}"
    r"(?:[ ][^\"'\\\s<>{}=:,/]{1,20})?)(?P=q)\s{0,9}(?P<sep>[:,=]|=>)\s{0,9}"
    r"(?P<said>(?P=q)value(?P=q)\s{0,9}:\s{0,9})?(?:[a-zA-Z]{1,12}\()?b?(?P<open>\\*+[\"'])"
)
# A bare name; an option of a command may have its value behind a space, a tag has it behind a bracket.
_BARE = re.compile(
    r"(?<![\w-])(?P<option>--?(?=[A-Za-z]))?(?P<name>\w[\w.-]{1,60}+)"
    r"(?P<sep>\s{0,9}(?::=|=>|=(?!=)|:(?![:/]))[ \t]{0,9}|[ \t]{1,9}(?![=:])|>)"
    r"(?:[a-zA-Z]{1,12}\((?=[\"']))?b?(?P<open>\\*+[\"'])?"
)
_FORM = re.compile(r"(?:name|key|id)=(?P<q>[\"'])(?P<name>[^\"'<>=]{1,60})(?P=q)")
_FORM_SIGNS = tuple(f"{name}={quote}" for name in ("name", "key", "id") for quote in "\"'")
_FORM_VALUE = re.compile(r"[^\r\n<>]{0,200}\r?\n(?:[^\r\n]{1,200}\r?\n){0,5}\r?\n|\s{1,9}value=[\"']|\s{0,9}>")
# Percent signs for quotes, `=` and `:`, once or twice encoded.
_ENCODED = re.compile(
    r"(?:(?<![A-Za-z0-9%])|(?<=%[0-9A-Fa-f]{2}))(?P<name>[A-Za-z][\w.-]{1,60})"
    r"(?:%(?:25)*2[27])?(?:%(?:25)*20|\+)?%(?:25)*3[aAdD](?:%(?:25)*20|\+)?(?:%(?:25)*2[27])?"
)
_ENCODED_VALUE = re.compile(r"(?:(?!%(?:25)*(?:2[2267cC]|7[dD]))[^\s&\"'<>\\;,]){1,4000}")
_ESCAPE = re.compile(r"\\+u([0-9a-fA-F]{4})")
_QUOTE = re.compile(r"(?<!\\)(\\*)([\"'])")
_WORD = re.compile(r"[^\s\"'`&;,<>\\|)}\]]{1,4000}")
_DIGIT, _SPACE, _WORDLY = re.compile(r"\d"), re.compile(r"\s"), re.compile(r"[^\W_]")
_LINE = re.compile(r"[^\S\r\n]{0,9}(?:\r?\n|\Z|\\[rn])")
_HEADER_NAME = re.compile(r"(?i:(?:proxy-)?authorization|(?:set-)?cookie|[a-z]+(?:-[a-z]+)+)\Z")
_HEADER_LIKE = re.compile(r"(?i)(?:x-|proxy-|private-|ocp-)")
_OWN_RULES = re.compile(r"(?i:cookies?|authorization)\Z")  # of several words: see `credentials`
_SETTING = re.compile(r"[A-Z][A-Z0-9_]{2,}\Z")
_CALL = re.compile(r"[\w.\]\[]{1,60}[(\[]|[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+\Z")


def mask_named(text: str, *, code: bool = False) -> str:
    """The text without the values of secret names.

    Args:
        code: it may be source text, in which a bare word is rather a name than a value.
    """
    if '"' in text or "'" in text:
        text = _replaced(text, _QUOTED, _quoted_value, code)
        if any(sign in text for sign in _FORM_SIGNS):
            text = _replaced(text, _FORM, _form_value, code)
    if "%" in text:
        text = _replaced(text, _ENCODED, _encoded_value, code)
    return _replaced(text, _BARE, _bare_value, code)


Found = tuple[int, int] | None
"""Where a value begins and ends."""
# A part of each name that may be secret; only around these is looked for one.
_PART = re.compile(r"(?i:pass|pwd|secret|token|(?<=[\w. -])key|auth|cred|cookie)|[^\x00-\x7f]+|\\u[0-9a-fA-F]{4}")
_BEFORE, _BEHIND = 90, 200  # characters around it in which name, separator and quotes stand
_FARTHEST = 4_000  # characters looked through at once where parts stand closely without a name


def _replaced(
    text: str, names: re.Pattern[str], value_of: Callable[[str, re.Match[str], bool], Found], code: bool
) -> str:
    out: list[str] = []
    done = at = 0
    reach = _BEHIND
    for part in _PART.finditer(text):
        while at <= part.start():
            end = part.end() + reach
            found = names.search(text, max(at, part.start() - _BEFORE), end)
            if found is None or found.start() > part.start():
                # None begins before, and the parts in between need no look of their own.
                none_before = end - _BEHIND if found is None else min(found.start(), end - _BEHIND)
                at, reach = max(part.start() + 1, none_before), min(2 * reach, _FARTHEST)
                break
            reach = _BEHIND
            value = value_of(text, found, code)
            at = max(found.start() + 1, found.end("name"))
            if value is None:
                continue
            at = max(at, value[1])
            if value[0] >= done and value[1] > value[0] and text[slice(*value)] != MASK:
                out += (text[done : value[0]], MASK)
                done = value[1]
    return "".join((*out, text[done:])) if out else text


def _quoted_value(text: str, found: re.Match[str], code: bool) -> Found:
    name = found["name"]
    if "\\" in name:
        name = _ESCAPE.sub(lambda m: chr(int(m[1], 16)), name)
    if not is_secret_name(name) and not is_weak_name(name):
        return None
    value = found.end(), _end_of_quoted(text, found.end(), found["open"])
    if found["sep"] == "," and not found["said"] and not _is_pair(text, found, name, value):
        return None
    return value if _is_secret(name, text[slice(*value)], quoted=True, code=code) else None


def _is_pair(text: str, found: re.Match[str], name: str, value: tuple[int, int]) -> bool:
    """Whether a name and what stands behind a comma are a header, not two of a list of words."""
    before, behind = (
        text[max(0, found.start() - 20) : found.start()],
        text[value[1] : value[1] + 20].lstrip("\\\"' \r\n\t"),
    )
    said = text[slice(*value)]
    return (
        _HEADER_NAME.match(name) is not None
        and before.rstrip("b \r\n\t").endswith(("(", "["))
        and (not behind or behind.startswith((")", "]", ".", "…")))  # or cut off
        and (" " in said or _DIGIT.search(said) is not None or len(said) > 20)
    )


def _end_of_quoted(text: str, start: int, opened: str) -> int:
    """Where a text ends that this quote opened; a quote within it has more backslashes than that."""
    for quote in _QUOTE.finditer(text, start):
        if quote[2] == opened[-1] and len(quote[1]) < len(opened):
            return quote.start()
    return len(text)


def _form_value(text: str, found: re.Match[str], code: bool) -> Found:
    """Of a part of a form, of markup with its name in an attribute."""
    if not is_secret_name(found["name"]) and not is_weak_name(found["name"]):
        return None
    head = _FORM_VALUE.match(text, found.end())
    if head is None:
        return None
    ends = re.compile("<" if head[0].endswith(">") else "[\"']" if "value=" in head[0] else r"\r?\n|\Z")
    most = head.end() + 4000
    end = ends.search(text, head.end(), most)
    value = head.end(), end.start() if end is not None else min(most, len(text))
    return value if _is_secret(found["name"], text[slice(*value)], quoted=True, code=code) else None


def _encoded_value(text: str, found: re.Match[str], code: bool) -> Found:
    name, value = found["name"], _ENCODED_VALUE.match(text, found.end())
    if value is None or not (is_secret_name(name) or is_weak_name(name)):
        return None
    return value.span() if _is_secret(name, value[0], quoted=not code, code=code) else _nothing_until(value.end())


def _nothing_until(end: int) -> Found:
    """What ends there holds no secret, and is not looked through again."""
    return end, end


def _bare_value(text: str, found: re.Match[str], code: bool) -> Found:
    name, sep = found["name"], found["sep"]
    secret = is_secret_name(name)
    if (not secret and not is_weak_name(name)) or (_OWN_RULES.search(name) and not found["option"]):
        return None
    if sep[:1] in " \t" and not sep.strip():
        return _behind_a_space(text, found, secret)
    if sep == ">":
        end = text.find("<", found.end(), found.end() + 4000)
        told = (
            end > 0 and text.startswith("</", end) and _is_secret(name, text[found.end() : end], quoted=True, code=code)
        )
        return (found.end(), end) if told else None
    if found["open"]:
        value = found.end(), _end_of_quoted(text, found.end(), found["open"])
        said = text[slice(*value)]
        return value if _is_secret(name, said, quoted=True, code=code or ":" in sep and "\n" in said) else None
    word = _WORD.match(text, found.end())
    if word is None or _CALL.match(word[0]) is not None:
        return None
    alone = not code and _begins_a_line(text, found.start()) and _LINE.match(text, word.end()) is not None
    sure = (
        ("=" in sep and (not code or (_SETTING.match(name) is not None and sep == "=")))
        or (":" in sep and (alone or _HEADER_LIKE.match(name) is not None))
        or found["option"] is not None
    )
    if "=" in sep and sep != "=" and not _DIGIT.search(word[0]):
        sure = False  # source text, which errors quote too
    return word.span() if _is_secret(name, word[0], quoted=sure, code=code) else _nothing_until(word.end())


def _begins_a_line(text: str, at: int) -> bool:
    return not text[max(0, at - 80) : at].rpartition("\n")[2].strip(" \t-")


_SPOKEN_OF = re.compile(
    r"(?:option|flag|argument|parameter|unknown|unrecognized|invalid|the|use|using|with|without|missing|requires|of|via|by)"
    r"\s+['\"`]?\Z",
    re.IGNORECASE,
)
_OPTION_VALUE = re.compile(r"(?:option|argument|flag|parameter|instead|from|to|on|of|with|at)\b")


def _behind_a_space(text: str, found: re.Match[str], secret: bool) -> Found:
    """Of an option of a command, or of a setting with an underscore: `aws_secret_access_key …`."""
    if found["open"]:
        value = found.end(), _end_of_quoted(text, found.end(), found["open"])
    else:
        word = _WORD.match(text, found.end())
        if word is None:
            return None
        value = word.span()
    said = text[slice(*value)]
    if found["option"] is None:
        return value if secret and "_" in found["name"] and looks_random(said) else None
    if said.startswith("-") or said.isupper() and said.isalpha() or _OPTION_VALUE.match(said):
        return None
    if said.isalpha() and _SPOKEN_OF.search(text, max(0, found.start() - 20), found.start()):
        return None
    return value if _is_secret(found["name"], said, quoted=secret, code=False) else None


def _is_secret(name: str, value: str, *, quoted: bool, code: bool) -> bool:
    """Whether this value of such a name is one.

    Args:
        quoted: it is known to be a value, not a word of a sentence.
        code: it may be a text of a program, as for a person.
    """
    value = value.strip()
    if value[:1] in ",)];" or not _WORDLY.search(value) or is_placeholder(value):
        return False
    if not is_secret_name(name):
        return looks_random(value)
    if quoted and not (code and _SPACE.search(value) is not None and not _OWN_RULES.search(name)):
        return True
    return len(value) >= 6 and _DIGIT.search(value) is not None and _SPACE.search(value) is None
