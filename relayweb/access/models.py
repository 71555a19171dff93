"""Who may come in: tokens for programs, one-time links for people. Secrets are stored as digests only."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils import timezone


class Token(models.Model):
    """A secret a program shows at a door, good for one scope until it is revoked."""

    class Scope(models.TextChoices):
        INGEST = "ingest", "send events"
        GATEWAY = "gateway", "call providers through the gateway"
        READ = "read", "read the API"

    name = models.CharField(max_length=100)
    scope = models.CharField(max_length=10, choices=Scope.choices)
    # Unique, because every request at a door looks a token up by it.
    digest = models.BinaryField(max_length=32, unique=True, editable=False)
    hint = models.CharField(max_length=4, editable=False, help_text="The last characters, to tell tokens apart.")
    per_minute = models.PositiveIntegerField(
        "requests a minute", null=True, blank=True, help_text="Empty: as many as come. A websocket counts once."
    )
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    revoked_at = models.DateTimeField(null=True, blank=True, editable=False)

    class Meta:
        ordering = ["pk"]
        # Of the whole product, not of tokens: Django wants a model to hang permissions on.
        permissions = [("view_record", "Can see what was recorded"), ("edit_intercepts", "Can change intercepts")]

    def __str__(self) -> str:
        return f"{self.name} ({self.scope} …{self.hint})"


class LoginLink(models.Model):
    """A link that logs one person in, once, within a few minutes."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE)
    digest = models.BinaryField(max_length=32, unique=True, editable=False)
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return f"for {self.user} until {self.expires_at:%Y-%m-%d %H:%M}"
