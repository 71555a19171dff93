"""Names of members that stand for secrets."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

MASK: Final = "[masked]"

NAMES: Final = frozenset(
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
        "cookies",
    )
)
ENDINGS: Final = (
    *("apikey", "accesskey", "secretkey", "privatekey", "accountkey", "subscriptionkey", "masterkey", "signingkey"),
    *("accesstoken", "securitytoken", "sessiontoken", "refreshtoken", "idtoken", "apitoken", "privatetoken"),
    *("clientsecret", "webhooksecret", "password", "passwd", "passphrase"),
)
NO_LETTER: Final = re.compile(r"[^a-z0-9]+")


def is_secret_name(name: str) -> bool:
    """Whether a member of this name, or an attribute like `http.request.header.x-api-key`, holds a secret."""
    return _is_secret(name) if len(name) > _LONGEST else _remembered(name)


def _is_secret(name: str) -> bool:
    last = NO_LETTER.sub("", name.lower().rpartition(".")[2])
    return last in NAMES or last.endswith(ENDINGS) or NO_LETTER.sub("", name.lower()) in NAMES


_LONGEST = 100  # characters of a name that is remembered
_remembered = lru_cache(4096)(_is_secret)
