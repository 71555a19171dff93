"""What tokens cost: a price table that carries its version and can be edited in the admin.

What a provider says a call cost wins, then Relay's own estimate where an event has one; this table prices the rest.
Costs are whole picodollars (10^-12 USD), so that sums do not depend on the order in which attempts arrive: a dollar a
million tokens is 10^6 of them a token.
"""

from __future__ import annotations

import fnmatch
import re
import threading
import time
from collections.abc import Iterable
from datetime import UTC, date, datetime
from functools import lru_cache

import msgspec

from relayweb.recording.conventions.details import STANDARD, Details
from relayweb.recording.conventions.usage import Usage

RELAY = "relay"
"""Stands in the place of a table's version where the event tells the cost: the provider's own, or Relay's estimate."""

_CHECK_EVERY = 5.0  # seconds until an edit in another process is seen


class Rate(msgspec.Struct, frozen=True):
    """Prices of the models that `pattern` names, in picodollars a token. None: such tokens cost as input."""

    pattern: str
    provider: str
    since: date
    input: int
    output: int
    cached: int | None = None
    cache_write: int | None = None
    cache_write_1h: int | None = None
    """Of what is kept for an hour. None: as what is kept for minutes."""
    tier: str = STANDARD
    above: int = 0
    """It holds for prompts of more tokens than this, cached ones included."""
    audio_input: int | None = None
    """None, as of all below: not known, so that a call that has some of it has no cost."""
    audio_output: int | None = None
    audio_cached: int | None = None
    image_input: int | None = None
    image_output: int | None = None
    image_cached: int | None = None
    web_search: int | None = None
    """Picodollars a search."""

    def cost(self, usage: Usage) -> int | None:
        """Picodollars; a lower bound where the usage is one, None where the input or a price is unknown."""
        if usage.input_tokens is None:
            return None
        cached, written = usage.cached_tokens or 0, usage.cache_write_tokens or 0
        fresh = max(usage.input_tokens - cached - written, 0)
        hour = min(usage.cache_write_1h_tokens or 0, written)
        write = self.input if self.cache_write is None else self.cache_write
        read = self.input if self.cached is None else self.cached
        text = (
            fresh * self.input
            + cached * read
            + (written - hour) * write
            + hour * (write if self.cache_write_1h is None else self.cache_write_1h)
            + (usage.output_tokens or 0) * self.output
        )
        if usage.details is None:
            return text
        more = self._beside_text(usage.details, fresh, cached, usage.output_tokens or 0)
        return None if more is None else text + more

    def _beside_text(self, told: Details, fresh: int, cached: int, output: int) -> int | None:
        """What audio, images and tools cost more than as much text; None where that is not known."""
        heard, seen = told.audio_input - told.audio_cached, told.image_input - told.image_cached
        read = self.input if self.cached is None else self.cached
        contradictory = (
            min(heard, seen) < 0
            or heard + seen > fresh
            or told.audio_cached + told.image_cached > cached
            or told.audio_output + told.image_output > output
        )
        if told.unpriced or contradictory:
            return None
        more = 0
        for count, price, as_text in (
            (heard, self.audio_input, self.input),
            (seen, self.image_input, self.input),
            (told.audio_cached, self.audio_cached, read),
            (told.image_cached, self.image_cached, read),
            (told.audio_output, self.audio_output, self.output),
            (told.image_output, self.image_output, self.output),
            (told.web_searches, self.web_search, 0),
        ):
            if count:
                if price is None:
                    return None
                more += count * (price - as_text)
        return more


Tariff = tuple[Rate, ...]
"""The rates of one model in one tier, those for longer prompts last."""


def cost(tariff: Tariff, usage: Usage) -> int | None:
    """Picodollars of one attempt by the rate for its size, None where there is none or the usage is unknown."""
    if usage.input_tokens is None:
        return None
    for rate in reversed(tariff):
        if rate.above == 0 or usage.input_tokens > rate.above:
            return rate.cost(usage)
    return None


_DATED = re.compile(r"(?:[-@](?:20\d\d-?[01]\d-?[0-3]\d)|-latest)\Z")
_BEDROCK = re.compile(r"^(?:(?:us|eu|apac|jp|au|global)\.)?(?:anthropic|amazon|meta)\.(.*?)(?:-v\d+(?::\d+)?)?\Z")


@lru_cache(4096)
def base_name(model: str) -> str:
    """The name a table lists a model under: no router's prefix, no region, no snapshot date.

    >>> base_name("openrouter/anthropic/claude-sonnet-4-5-20250929")
    'claude-sonnet-4-5'
    """
    name = model.lower().rsplit("/", 1)[-1]
    if found := _BEDROCK.match(name):
        name = found[1]
    return _DATED.sub("", name)


class Table(msgspec.Struct, frozen=True):
    """One state of the price table."""

    version: str
    rates: tuple[Rate, ...]

    def tariff(
        self, model: str | None, provider: str | None, day: date | None = None, tier: str | None = None
    ) -> Tariff:
        """The rates in force on `day` (today unless given) for a model in a tier (the standard one unless given).

        Of the most specific pattern, then of the most specific provider, then of the newest day.
        """
        if not model:
            return ()
        day, name, whole = day or datetime.now(UTC).date(), base_name(model), model.lower()
        tier = tier or STANDARD
        found: dict[tuple[int, int, date, str, str], list[Rate]] = {}
        for rate in self.rates:
            if rate.since > day or rate.tier != tier:
                continue
            if rate.provider and not fnmatch.fnmatchcase((provider or "").lower(), rate.provider):
                continue
            if not (fnmatch.fnmatchcase(name, rate.pattern) or fnmatch.fnmatchcase(whole, rate.pattern)):
                continue
            literal = len(rate.pattern) - rate.pattern.count("*") * 2
            order = (literal, len(rate.provider), rate.since, rate.pattern, rate.provider)
            found.setdefault(order, []).append(rate)
        return tuple(sorted(found[max(found)], key=lambda rate: rate.above)) if found else ()

    def rate(self, model: str | None, provider: str | None, day: date | None = None) -> Rate | None:
        """The rate in force for short prompts in the standard tier."""
        return next(iter(self.tariff(model, provider, day)), None)

    def cost(self, model: str | None, provider: str | None, usage: Usage, day: date | None = None) -> int | None:
        """Picodollars of one attempt, None where the model is not listed in its tier or the usage unknown."""
        return cost(self.tariff(model, provider, day, usage.tier), usage)


def picodollars(usd: float | None) -> int | None:
    return None if usd is None else round(usd * 1e12)


class _Current:
    """The table this process works with. Reading it costs one row at most every five seconds."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.table: Table | None = None
        self.checked = 0.0

    def get(self) -> Table:
        with self.lock:
            if self.table is None or time.monotonic() - self.checked > _CHECK_EVERY:
                version = _version()
                if self.table is None or self.table.version != version:
                    self.table = Table(version, tuple(_load()))
                self.checked = time.monotonic()
            return self.table

    def forget(self) -> None:
        with self.lock:
            self.table = None


_current = _Current()


def table() -> Table:
    """The price table in force. Edits in this process show at once, those of others within five seconds."""
    return _current.get()


def forget() -> None:
    _current.forget()


def _version() -> str:
    from relayweb.recording.prices import PriceTable

    return PriceTable.current().version


def _load() -> Iterable[Rate]:
    from relayweb.recording.prices import Price

    return [price.rate() for price in Price.objects.all()]
