"""Template tags of the inspector."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django import template
from django.urls import reverse

from relayweb.ui import formats
from relayweb.ui.inspect import facts

register = template.Library()

TONES = {"text": "c-text", "reasoning": "c-reasoning", "tool": "c-args"}
WORDS = {"tool": "tool arguments"}


@register.filter
def chunk_tone(kind: str) -> str:
    return TONES.get(kind, "c-other")


@register.filter
def chunk_word(kind: str) -> str:
    return WORDS.get(kind, kind)


@register.filter
def microseconds(us: int | None) -> str:
    return formats.duration(us)


@register.filter
def flag_words(node: Mapping[str, Any]) -> list[tuple[str, str]]:
    return facts.flags(node)


@register.simple_tag
def value_url(turn: UUID, ident: str, of: str, pointer: str) -> str:
    """The address of one recorded value in full."""
    return f"{reverse('ui:turn-value', args=[turn, ident])}?{urlencode({'of': of, 'at': pointer})}"
