"""Which calls a rule is for."""

from __future__ import annotations

import fnmatch
import random
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Self

from adapters.actions.base import Facts, Field, RuleError

_MATCH_FIELDS = (
    Field("profile", "list", "Profiles; globs, a leading ! excludes.", default=()),
    Field("provider", "list", "Providers or gateway upstreams; globs.", default=()),
    Field("model", "list", "Models as the app named them; globs, e.g. gpt-4*.", default=()),
    Field("call_role", "list", "primary, fallback, delegated, auxiliary:<task>; globs.", default=()),
    Field("api_mode", "list", "chat_completions, codex_responses, anthropic_messages; globs.", default=()),
    Field("session", "list", "Session ids; globs.", default=()),
    Field("stream", "bool", "Only streamed or only buffered calls.", default=None),
    Field("sample", "number", "Per cent of sessions, the same ones each time.", default=100.0, minimum=0, maximum=100),
)


@dataclass(frozen=True, slots=True)
class Match:
    """Which calls a rule is for; an empty field matches all."""

    profile: tuple[str, ...] = ()
    provider: tuple[str, ...] = ()
    model: tuple[str, ...] = ()
    call_role: tuple[str, ...] = ()
    api_mode: tuple[str, ...] = ()
    session: tuple[str, ...] = ()
    stream: bool | None = None
    sample: float = 100.0

    fields = _MATCH_FIELDS

    @classmethod
    def parse(cls, config: Mapping[str, Any]) -> Self:
        known = {f.name for f in _MATCH_FIELDS}
        for name in config:
            if name not in known:
                raise RuleError(f"match.{name}", f"is not known; a match has {', '.join(sorted(known))}")
        return cls(**{f.name: f.parse(config, "match") for f in _MATCH_FIELDS})

    def static(self, facts: Facts) -> bool:
        """Whether everything but session and sample fits."""
        return (
            (self.stream is None or self.stream == facts.stream)
            and _fits(self.model, facts.model)
            and self.fits_unread(facts)
        )

    def fits_unread(self, facts: Facts) -> bool:
        """Whether all fits that is known of a call without its body."""
        return (
            (facts.model is None or _fits(self.model, facts.model))
            and _fits(self.profile, facts.profile)
            and _fits(self.provider, facts.provider)
            and _fits(self.call_role, facts.call_role)
            and _fits(self.api_mode, facts.api_mode)
        )

    def session_fits(self, key: str, session_id: str | None) -> bool:
        """Whether session and sample fit; without a session each call is sampled for itself."""
        if self.session and not _fits(self.session, session_id):
            return False
        if self.sample >= 100:
            return True
        if session_id is None:
            return random.random() * 100 < self.sample
        return zlib.crc32(f"{key}\0{session_id}".encode("utf-8", "surrogatepass")) % 10_000 < self.sample * 100


def _fits(globs: tuple[str, ...], value: str | None) -> bool:
    if not globs:
        return True
    wanted, refused = _compiled(globs)
    text = value or ""
    return (wanted is None or wanted.match(text) is not None) and (refused is None or refused.match(text) is None)


@lru_cache(maxsize=4096)
def _compiled(globs: tuple[str, ...]) -> tuple[re.Pattern[str] | None, re.Pattern[str] | None]:
    wanted = [fnmatch.translate(glob) for glob in globs if not glob.startswith("!")]
    refused = [fnmatch.translate(glob[1:]) for glob in globs if glob.startswith("!")]
    return (
        re.compile("|".join(wanted)) if wanted else None,
        re.compile("|".join(refused)) if refused else None,
    )
