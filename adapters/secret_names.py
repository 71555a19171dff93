"""Names of members that stand for secrets."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final
from unicodedata import category, normalize

MASK: Final = "[masked]"

_NO_LETTER: Final = re.compile(r"[\W_]+")


def letters_of(name: str) -> str:
    """The letters and digits of a name, small and plain: `contrasena2` of `Contraseña-2`."""
    if not name.isascii():
        name = "".join(c for c in normalize("NFKD", name.casefold()) if category(c) not in ("Mn", "Cf"))
    return _NO_LETTER.sub("", name.lower())


NAMES: Final = frozenset(
    (
        *("authorization", "proxyauthorization", "apikey", "xapikey", "cookie", "cookies", "setcookie", "cookiejar"),
        *("xrelaytoken", "userpwd", "dbpwd", "userpass", "dbpass", "smtppass", "basicauth"),
    )
)
ENDINGS: Final = (
    *("apikey", "accesskey", "secretkey", "privatekey", "accountkey", "subscriptionkey", "masterkey", "signingkey"),
    *("encryptionkey", "sshkey", "sharedkey", "storagekey", "functionskey", "authkey", "apikeys", "secretkeys"),
    *("accesstoken", "securitytoken", "sessiontoken", "refreshtoken", "idtoken", "apitoken", "privatetoken"),
    *("authtoken", "bearertoken", "bottoken", "jwttoken"),
    *("secret", "secrets", "password", "passwords", "passwd", "passphrase", "passcode"),
    *map(letters_of, ("passwort", "contraseña", "mot de passe", "пароль", "lösenord", "hasło", "şifre")),
    *map(
        letters_of,
        ("密码", "密碼", "密钥", "パスワード", "비밀번호", "كلمة المرور"),
    ),
)
_SUFFIX: Final = re.compile(
    r"(?:\d+|value|confirm|confirmation|again|repeat|hash|plain|plaintext|raw|old|new|prod|production|test|dev|staging"
    r"|backup|primary|secondary|base64|b64|encoded|eu|us)\Z"
)
"""What stands behind a name without making it another one: `api_key_2`, `password_confirmation`."""
# Tokens that are pieces of text, counts of them, or places in a list.
_OTHER_TOKENS: Final = re.compile(
    r"(?:^|eos|bos|pad|unk|cls|sep|mask|stop|end|start|special|first|last|next|prev|previous|page|pagination"
    r"|continuation|continue|sync|resume|input|output|prompt|completion|cached|reasoning|audio|text|image|per|max|min"
    r"|total|new|per|each|by|any|sub|bytes|id|top|seen|unexpected|expected|invalid|cancellation|cancel|idempotency"
    r"|placeholder|delimiter|thinking|decoder|encoder|forced|draft|accepted|rejected)tokens?\Z"
)
_WEAK: Final = ("pass", "pwd", "auth", "credential", "credentials", "token", "authcode", "authstring")


def is_secret_name(name: str) -> bool:
    """Whether a member of this name, or an attribute like `http.request.header.x-api-key`, holds a secret."""
    return _is_secret(name) if len(name) > _LONGEST else _remembered(name)


def is_token_name(name: str) -> bool:
    """Whether a text of this name may be a secret: `github_token`, not `eos_token`; its looks must tell."""
    return _is_token(name) if len(name) > _LONGEST else _remembered_token(name)


def is_weak_name(name: str) -> bool:
    """As `is_token_name`, where nothing but settings is expected: `token`, `pass` and `auth` too."""
    return letters_of(name.rpartition(".")[2]).rstrip("0123456789") in _WEAK or is_token_name(name)


def without_suffix(letters: str) -> str:
    """A name's letters without a number, `value`, `confirmation` … behind it."""
    while (found := _SUFFIX.search(letters)) is not None and found.start():
        letters = letters[: found.start()]
    return letters


def _is_secret(name: str) -> bool:
    return any(letters in NAMES or letters.endswith(ENDINGS) for letters in _letters_of_parts(name))


def _letters_of_parts(name: str) -> Iterable[str]:
    whole, last = letters_of(name), name.rpartition(".")[2]
    parts = (whole,) if len(last) == len(name) else (letters_of(last), whole)
    return (*parts, *(short for part in parts if (short := without_suffix(part)) != part))


def _is_token(name: str) -> bool:
    letters = letters_of(name.rpartition(".")[2])
    return any(
        said.endswith("token") and _OTHER_TOKENS.search(said) is None for said in (letters, without_suffix(letters))
    )


_LONGEST = 100  # characters of a name that is remembered
_remembered = lru_cache(4096)(_is_secret)
_remembered_token = lru_cache(4096)(_is_token)


_PLACEHOLDER = re.compile(
    r"[$<{*%\[(]|\.\.\.|x{3,}|(?i:(?:none|null|nil|true|false|undefined|string|str|text|required|optional|missing"
    r"|invalid|incorrect|wrong|expired|empty|secret|redacted|masked|hidden|unset|not|must|is|was|and|or|in|for|your|the"
    r"|values?|self|cls|args|kwargs|await|new)"
    r"\b)"
)


def is_placeholder(value: str) -> bool:
    """Whether a value stands for one: `$TOKEN`, `<key>`, `None`, `password`."""
    return _PLACEHOLDER.match(value) is not None or (len(value) < _LONGEST and is_secret_name(value))


_MIXED = re.compile(r"(?=[^\s]*\d)(?=[^\s]*[A-Za-z])[^\s()\[\]{}]{8,}\Z")


def looks_random(value: str) -> bool:
    """Whether a value of a weak name is a secret by its looks: letters and digits, eight at least, no address."""
    value = value[:200]
    return (
        _MIXED.match(value) is not None
        and not value.startswith(("/", "~", "http:", "https:", "<", "$", "."))
        and not is_placeholder(value)
    )
