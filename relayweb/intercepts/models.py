"""Configured intercepts and their history. Every change is a new revision; rewrites point to the one that made them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from django.core.validators import RegexValidator
from django.db import models, transaction
from django.db.models import F, Max
from django.utils import timezone

MATCH_FIELDS = ("profile", "provider", "model", "call_role", "api_mode", "session", "stream", "sample")

Value = dict[str, Any]
"""A config as adapters.intercepts.Rule.parse takes it, without `revision`."""


KEY_FORM = r"^[a-z0-9][a-z0-9._-]*\Z"
KEY = RegexValidator(KEY_FORM, "Small letters, figures, dots and dashes, for example trim-history.")


class StaleError(Exception):
    """The config is another one than the change was made on; nothing was saved."""


class InterceptConfig(models.Model):
    """One rule as it is in force now. Change it by `publish`, which keeps the history and tells every process."""

    class Mode(models.TextChoices):
        SHADOW = "shadow", "Shadow"
        ENFORCE = "enforce", "Enforce"

    class OnError(models.TextChoices):
        OPEN = "open", "Open"
        CLOSED = "closed", "Closed"

    key = models.CharField(
        max_length=64,
        unique=True,
        validators=[KEY],
    )
    title = models.CharField(max_length=120)
    enabled = models.BooleanField(default=True)
    mode = models.CharField(max_length=8, choices=Mode.choices, default=Mode.SHADOW)
    priority = models.IntegerField(default=100)
    break_chain = models.BooleanField(default=False)
    on_error = models.CharField(max_length=8, choices=OnError.choices, default=OnError.OPEN)
    match = models.JSONField(default=dict, blank=True)
    action = models.JSONField(default=dict)
    revision = models.PositiveIntegerField(default=0, editable=False)
    stopped = models.TextField(blank=True, editable=False)
    """Why the product itself disabled the rule; empty when a person did, or nobody."""
    updated_at = models.DateTimeField(default=timezone.now, editable=False)
    draft = models.JSONField(null=True, editable=False)
    """A value that somebody works on; nothing of it is in force. A config that was never published has only that."""
    draft_by = models.CharField(max_length=150, blank=True, editable=False)
    draft_at = models.DateTimeField(null=True, editable=False)

    class Meta:
        # The order in which rules run.
        ordering = ["priority", "key"]
        verbose_name = "intercept"

    def __str__(self) -> str:
        return self.title or self.key

    @property
    def action_type(self) -> str:
        return str(self.action.get("type", ""))

    @property
    def stamp(self) -> str:
        """Says whether two readings are of the same config: its revision and its draft."""
        return f"{self.revision}-{self.draft_at.isoformat() if self.draft_at else ''}"

    def expect(self, stamp: str | None) -> None:
        """Raises StaleError where this is not what somebody read with that stamp; None expects nothing."""
        if stamp is not None and stamp != self.stamp:
            raise StaleError(self.key)

    def value(self) -> Value:
        """The config as plain data, without its revision: what is stored in history, exported and parsed."""
        return {
            "key": self.key,
            "title": self.title,
            "enabled": self.enabled,
            "mode": self.mode,
            "priority": self.priority,
            "break_chain": self.break_chain,
            "on_error": self.on_error,
            "match": dict(self.match),
            "action": dict(self.action),
        }

    @classmethod
    def published(cls) -> models.QuerySet[InterceptConfig]:
        """Those that are more than a draft, in the order in which they run."""
        return cls.objects.filter(revision__gt=0)

    @classmethod
    def publish(
        cls, value: Value, author: str, note: str = "", stopped: str = "", *, stamp: str | None = None
    ) -> InterceptConfig:
        """Put a value in force as a new revision, in every process.

        Args:
            value: as `value()` gives it; its key says which config. The caller has checked it with Rule.parse.
            author: the name of who did it, kept even when the account goes.
            note: why, or what led to it ("rolled back to r3").
            stopped: why the product itself disabled the rule, if it did.
            stamp: that of the config the change was made on.

        An unchanged value makes no revision.

        Raises:
            StaleError: the config has changed since it had that stamp.
        """
        from relayweb.intercepts import publish

        with transaction.atomic():
            config = cls.objects.select_for_update().filter(key=value["key"]).first() or cls(key=value["key"])
            config.expect(stamp)
            if config.revision and config.value() == value and config.stopped == stopped:
                return config
            for name, item in value.items():
                setattr(config, name, item)
            config.revision, config.stopped, config.updated_at = Revision.next(config.key), stopped, timezone.now()
            config.save()
            Revision.objects.create(
                config=config, key=config.key, number=config.revision, value=value, author=author, note=note
            )
            Publication.bump()
        publish.announce()
        return config

    @classmethod
    def stop(cls, key: str, reason: str) -> None:
        """Take a rule that keeps failing out of force, visibly, until a person publishes it again.

        One that fails open is disabled as a new revision. One that fails closed goes on blocking, which is what it was
        set to do; it is only marked.
        """
        config = cls.objects.filter(key=key, enabled=True, stopped="").first()
        if config is None:
            return
        if config.on_error == cls.OnError.CLOSED:
            cls.objects.filter(pk=config.pk).update(stopped=reason)
        else:
            cls.publish({**config.value(), "enabled": False}, "relayweb", "stopped: it kept failing", stopped=reason)

    @classmethod
    def keep_draft(cls, value: Value, author: str, *, stamp: str | None = None) -> InterceptConfig:
        """Store a value to go on with later; what is in force stays as it is. The caller has checked it.

        Raises StaleError, as `publish`.
        """
        with transaction.atomic():
            stored = cls.objects.select_for_update().filter(key=value["key"]).first()
            config = stored or cls(**{**value, "enabled": False})
            config.expect(stamp)
            config.draft, config.draft_by, config.draft_at = value, author, timezone.now()
            config.save()
        return config

    def drop_draft(self) -> None:
        """Forget the draft; a config that was never published goes with it."""
        if not self.revision:
            self.delete()
        elif self.draft is not None:
            self.draft, self.draft_by, self.draft_at = None, "", None
            self.save(update_fields=["draft", "draft_by", "draft_at"])

    def withdraw(self, author: str) -> None:
        """Delete the config. Its revisions stay, because recorded rewrites point to them."""
        from relayweb.intercepts import publish

        if not self.revision:
            self.delete()
            return
        with transaction.atomic():
            number = Revision.next(self.key)
            Revision.objects.create(key=self.key, number=number, value=None, author=author, note="deleted")
            self.delete()
            Publication.bump()
        publish.announce()


class Revision(models.Model):
    """What a config was from one change to the next; never changed. A null value says it was deleted."""

    # The key is repeated because revisions outlive their config.
    config = models.ForeignKey(InterceptConfig, models.SET_NULL, null=True, related_name="revisions")
    key = models.CharField(max_length=64)
    number = models.PositiveIntegerField()
    value = models.JSONField(null=True)
    author = models.CharField(max_length=150, blank=True)
    note = models.CharField(max_length=200, blank=True)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["-number"]
        # Serves the history of a config and the link from a recorded rewrite (key, revision).
        constraints = [models.UniqueConstraint(fields=["key", "number"], name="one_revision_a_number")]

    def __str__(self) -> str:
        return f"{self.key} r{self.number}"

    @classmethod
    def authors(cls, wanted: Iterable[tuple[str, int | None]]) -> dict[tuple[str, int | None], str]:
        """Who published which revision, by (key, number); those that are not on record here are missing."""
        # What agents told may be no key at all; PostgreSQL refuses to look for some characters.
        pairs = {(key, number) for key, number in wanted if number is not None and re.fullmatch(KEY_FORM, key)}
        found = cls.objects.filter(key__in={key for key, _ in pairs}, number__in={number for _, number in pairs})
        return {(key, number): author for key, number, author in found.values_list("key", "number", "author")}

    @classmethod
    def next(cls, key: str) -> int:
        """The number after the last. A deleted config leaves its history; one of the same key goes on from there."""
        return (cls.objects.filter(key=key).aggregate(newest=Max("number"))["newest"] or 0) + 1


class Publication(models.Model):
    """One row: how often the rules have changed. Processes compare it to know whether to read them again."""

    number = models.PositiveBigIntegerField(default=0)

    def __str__(self) -> str:
        return str(self.number)

    @classmethod
    def bump(cls) -> None:
        cls.objects.get_or_create(pk=1)
        cls.objects.filter(pk=1).update(number=F("number") + 1)

    @classmethod
    def current(cls) -> int:
        return cls.objects.filter(pk=1).values_list("number", flat=True).first() or 0
