"""The price table's rows; `pricing` reads them."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

from django.core.validators import MinValueValidator, RegexValidator
from django.db import models, transaction
from django.db.models import F

from relayweb.recording.conventions import pricing
from relayweb.recording.conventions.details import STANDARD

_NOT_NEGATIVE = [MinValueValidator(Decimal(0))]


_UNKNOWN = "Empty: not known, and calls with some have no cost."


def _per_million(help_text: str, *, null: bool = False) -> models.DecimalField[Any, Any]:
    return models.DecimalField(
        max_digits=12, decimal_places=6, null=null, blank=null, help_text=help_text, validators=_NOT_NEGATIVE
    )


class PriceTable(models.Model):
    """One row: which table the prices came from, and how often they were edited since."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    name = models.CharField(max_length=40, default="", help_text="Day of the list prices it began with.")
    revision = models.PositiveIntegerField(default=0)

    def __str__(self) -> str:
        return self.version

    @property
    def version(self) -> str:
        return f"{self.name}.{self.revision}"

    @classmethod
    def current(cls) -> PriceTable:
        return cls.objects.filter(id=1).first() or cls()


class Price(models.Model):
    """US dollars a million tokens for the models a pattern names."""

    model = models.CharField(
        max_length=200,
        validators=[
            RegexValidator(r"^[^\sA-Z]+\Z", "Give a name in small letters without spaces, for example gpt-4o*.")
        ],
        help_text="Name of a model without its date, in small letters; * and ? are wildcards.",
    )
    provider = models.CharField(
        max_length=100, blank=True, default="", help_text="Only for this provider, for example azure*; empty for all."
    )
    since = models.DateField(default=date(2020, 1, 1), help_text="First day of this price.")
    input = _per_million("US dollars a million tokens read.")
    output = _per_million("US dollars a million tokens written, reasoning included.")
    cached = _per_million("Tokens read from the provider's cache; empty: as input.", null=True)
    cache_write = _per_million("Tokens written to the provider's cache; empty: as input.", null=True)
    cache_write_1h = _per_million("Those of them that are kept for an hour; empty: as the others.", null=True)
    tier = models.CharField(
        max_length=40,
        default=STANDARD,
        validators=[RegexValidator(r"^[^\sA-Z]+\Z", "Give a name in small letters without spaces, for example flex.")],
        help_text="Service tier: standard, flex, batch, priority, fast … or two, batch+us. Calls of a tier that is "
        "not listed have no cost.",
    )
    above = models.PositiveBigIntegerField(
        default=0,
        help_text="Only for prompts of more tokens than this, for example 200000. A price of a newer day replaces "
        "those for all sizes.",
    )
    audio_input = _per_million(f"Audio read. {_UNKNOWN}", null=True)
    audio_output = _per_million(f"Audio written. {_UNKNOWN}", null=True)
    audio_cached = _per_million(f"Audio read from the cache. {_UNKNOWN}", null=True)
    image_input = _per_million(f"Images and video read, where the usage counts them apart. {_UNKNOWN}", null=True)
    image_output = _per_million(f"Images written. {_UNKNOWN}", null=True)
    image_cached = _per_million(f"Images read from the cache. {_UNKNOWN}", null=True)
    web_search = _per_million(f"US dollars a thousand web searches by the provider. {_UNKNOWN}", null=True)

    class Meta:
        ordering = ("model", "provider", "since", "tier", "above")
        constraints = (
            models.UniqueConstraint(
                fields=("model", "provider", "since", "tier", "above"),
                name="price_once",
                violation_error_message="This model, provider, day, tier and size already have a price; change that "
                "one.",
            ),
        )

    def __str__(self) -> str:
        return self.model

    def save(self, *args: Any, **kwargs: Any) -> None:
        with transaction.atomic():
            super().save(*args, **kwargs)
            _edited()

    def delete(self, *args: Any, **kwargs: Any) -> tuple[int, dict[str, int]]:
        with transaction.atomic():
            done = super().delete(*args, **kwargs)
            _edited()
        return done

    def rate(self) -> pricing.Rate:
        def each(value: Decimal | None) -> int | None:
            return None if value is None else int(value * 1_000_000)

        return pricing.Rate(
            pattern=self.model,
            provider=self.provider.lower(),
            since=self.since,
            input=each(self.input) or 0,
            output=each(self.output) or 0,
            cached=each(self.cached),
            cache_write=each(self.cache_write),
            cache_write_1h=each(self.cache_write_1h),
            tier=self.tier,
            above=self.above,
            **{name: each(getattr(self, name)) for name in BESIDE_TEXT},
            web_search=None if self.web_search is None else int(self.web_search * 1_000_000_000),
        )


BESIDE_TEXT = ("audio_input", "audio_output", "audio_cached", "image_input", "image_output", "image_cached")


def _edited() -> None:
    PriceTable.objects.get_or_create(id=1)
    PriceTable.objects.filter(id=1).update(revision=F("revision") + 1)
    transaction.on_commit(pricing.forget)
