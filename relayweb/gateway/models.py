"""The providers the gateway may call. The list is the allow list: nothing else is ever contacted."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

from django.core.exceptions import ValidationError
from django.core.validators import RegexValidator
from django.db import models

from relayweb.gateway.addresses import is_forbidden_address

DEMO_SCHEME = "demo"


def validate_base_url(value: str) -> None:
    """Refuses what can never be a provider: other schemes, credentials, queries, forbidden addresses.

    A host name that resolves to a forbidden address is refused later, when the connection is made.
    """
    try:
        url = urlsplit(value)
        host, _ = url.hostname, url.port
    except ValueError as error:
        raise ValidationError(f"{value!r} is not a URL: {error}") from None
    if url.scheme not in ("http", "https", DEMO_SCHEME) or not host:
        raise ValidationError(f"{value!r} must look like https://host/v1")
    if re.search(r"[@?#]", value):
        raise ValidationError("give the base URL without user, password, query or fragment; keys come from the client")
    if re.search(r"[\s\x00-\x1f\x7f\\]", value):
        raise ValidationError(f"{value!r} holds a space, a control character or a backslash")
    if is_forbidden_address(host):
        raise ValidationError(
            f"{host} is a link-local, reserved or metadata address; the gateway never connects to those"
        )


class Upstream(models.Model):
    """A provider by name. Keys are not here: the client sends its own, and they are passed through and never stored."""

    class ApiMode(models.TextChoices):
        CHAT_COMPLETIONS = "chat_completions", "OpenAI Chat Completions"
        CODEX_RESPONSES = "codex_responses", "OpenAI Responses"
        ANTHROPIC_MESSAGES = "anthropic_messages", "Anthropic Messages"

    name = models.CharField(
        max_length=64,
        unique=True,
        validators=[
            RegexValidator(r"^(?!t\Z)[a-z0-9][a-z0-9._-]*\Z", "use a-z, 0-9, '.', '_' and '-' ('t' alone is reserved)")
        ],
        help_text="the part of the gateway's URL that names it: /gw/NAME/…",
    )
    base_url = models.CharField(
        max_length=500,
        validators=[validate_base_url],
        help_text="as the provider gives it, for example https://host/v1",
    )
    api_mode = models.CharField(
        max_length=32,
        choices=ApiMode.choices,
        help_text="its main wire format; the others still work where the provider has them",
    )
    enabled = models.BooleanField(default=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name

    def save(self, *args: Any, **kwargs: Any) -> None:
        self.base_url = self.base_url.rstrip("/")
        super().save(*args, **kwargs)

    def clean(self) -> None:
        self.base_url = self.base_url.rstrip("/")
