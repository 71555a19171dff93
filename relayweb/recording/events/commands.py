"""Secrets in command lines, which stand behind an option of one letter or behind a user's name."""

from __future__ import annotations

import re

from adapters.secret_names import MASK, is_placeholder
from relayweb.recording.events.assignments import mask_named

_BETWEEN = r"(?:\\{0,9}[\"'])?[\s,=]{1,9}(?:\\{0,9}[\"'])?"  # also of a list of words
_VALUE = r"[^\s\"'|;&<>\\,)}\]]{1,200}"
_USER = re.compile(
    rf"(?<![\w-])(?:(?:-u|-U|--(?:proxy-|http-)?user(?:name)?){_BETWEEN}|(?<=[\s\"'])-u(?=[a-z]+:)(?<!,-u))"
    rf"(?P<user>[^\s:\"'@/%+$<{{\\]{{1,100}})(?P<sep>:)(?!//)(?P<value>{_VALUE})"
    rf"|(?<![\w-])-U{_BETWEEN}(?P<share>[^\s:\"'@%$<{{]{{1,100}})%(?P<shared>{_VALUE})"
)
_OF_CONTAINERS = re.compile(r"\b(?:docker|podman|nerdctl|kubectl|compose|chroot|chown|install|sudo|su)\b")
_OPTIONS = {
    "sshpass": ("sshpass", "p"),
    "mysql": (r"mysql\w{0,20}", "p"),
    "mariadb": (r"mariadb\w{0,20}", "p"),
    "mongo": (r"mongo\w{0,20}", "p"),
    "login": (r"(?:docker|podman|nerdctl|registry|oras|az|cf|oc|crane|skopeo)\s{1,3}login", "p"),
    "cqlsh": ("cqlsh", "p"),
    "7z": ("7z", "p"),
    "redis-cli": ("redis-cli", "a"),
    "ldap": (r"ldap\w{1,20}", "w"),
    "sqlcmd": ("sqlcmd", "P"),
    "bcp": ("bcp", "P"),
    "zip": ("(?:un)?zip", "P"),
}
_COMMANDS = {
    sign: re.compile(
        rf"\b{name}\b(?:\.exe)?[^\n|;]{{0,300}}?[\s\"',]-{letter}(?P<between>(?:{_BETWEEN})?)(?P<value>(?!-){_VALUE})"
    )
    for sign, (name, letter) in _OPTIONS.items()
}
_PHRASES = re.compile(
    rf"(?i:(?P<head>\bidentified\s{{1,9}}by\s{{1,9}}(?:password\s{{1,9}})?['\"]|\bpassword\s{{1,9}}['\"]"
    rf"|\b(?:login|user)\s{{1,9}}\S{{1,100}}\s{{1,9}}password\s{{1,9}}|\b(?:requirepass|masterauth)\s{{1,9}}"
    rf"|-pass(?:in|out)?{_BETWEEN}pass:|\bsecretstr\(['\"])(?P<value>{_VALUE}))"
)
_MAY_BE_NAME = re.compile(r"[a-z_]+\Z")


def mask_commands(text: str) -> str:
    """The text without the passwords of command lines: `curl -u me:…`, `sshpass -p …`, `mysql -p…`, SQL and netrc."""
    if "-u" in text or "-U" in text or "-user" in text:
        text = _USER.sub(_without_password, text)
    if "-" in text:
        for sign, command in _COMMANDS.items():
            if sign in text:
                text = command.sub(_without_value, text)
    lower = text.lower()
    if "pass" in lower or "identified" in lower or "masterauth" in lower or "secretstr" in lower:
        text = _PHRASES.sub(lambda m: m[0] if is_placeholder(m["value"]) else m["head"] + MASK, text)
    return text


_LONGEST = 100  # characters of a command or an option, which are looked at once more for each word behind them


def mask_words(words: list[str]) -> list[str]:
    """A list of the words of a command, each as itself."""
    out = words.copy()
    command = words[0].rpartition("/")[2][-_LONGEST:] if words and not words[0].startswith("-") else ""
    for at, (option, word) in enumerate(zip(["", *words], words, strict=False)):
        has_option = option.startswith("-") and len(option) <= _LONGEST and not word.startswith("-")
        head = f"{command} {option} " if has_option else f"{command} "
        if head.count("-") or word.startswith("-"):
            masked = mask_named(mask_commands(head + word), code=True)
            if masked.startswith(head):
                out[at] = masked[len(head) :]
    return out


def _without_password(found: re.Match[str]) -> str:
    user, value = found["user"] or found["share"], found["value"] or found["shared"]
    ids = user.isdigit() and value.isdigit()
    group = value == user or (value.isalpha() and _OF_CONTAINERS.search(found.string, *_line(found)) is not None)
    if ids or group or is_placeholder(value):
        return found[0]
    return found[0][: len(found[0]) - len(value)] + MASK


def _line(found: re.Match[str]) -> tuple[int, int]:
    at = found.start()
    return max(at - 200, found.string.rfind("\n", max(0, at - 200), at)), at


def _without_value(found: re.Match[str]) -> str:
    value = found["value"]
    if is_placeholder(value) or (found["between"] and "mysql" in found[0] and _MAY_BE_NAME.match(value)):
        return found[0]
    return found[0][: len(found[0]) - len(value)] + MASK
