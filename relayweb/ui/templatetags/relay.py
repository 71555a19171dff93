"""Template tags of the product: icons, status, and the formats of relayweb.ui.formats."""

from __future__ import annotations

import time
from typing import Any
from urllib.parse import urlencode

from django import template
from django.templatetags.static import static
from django.utils.html import format_html
from django.utils.safestring import SafeString

from relayweb.ui import formats

register = template.Library()

for _name in ("duration", "age", "count", "cost", "size", "short_id"):
    register.filter(_name, getattr(formats, _name))

STATUSES = ("running", "ok", "failed", "blocked", "interrupted", "cancelled")


@register.simple_tag
def icon(name: str, classes: str = "") -> SafeString:
    """One symbol of icons.svg, decorative; the word beside it (or `.sr` text) carries the meaning."""
    return format_html(
        '<svg class="icon{}" aria-hidden="true"><use href="{}#{}"/></svg>',
        f" {classes}" if classes else "",
        static("relayweb/icons.svg"),
        name,
    )


@register.simple_tag
def status(value: str | None, *, word: bool = True) -> SafeString:
    """A status as glyph, colour and word; the word is for screen readers only when `word` is false."""
    name = value if value in STATUSES else "cancelled"
    said = value or "unknown"
    spin = "spin" if name == "running" else ""
    return format_html(
        '<span class="status st-{}" title="{}">{}<span{}>{}</span></span>',
        name,
        said,
        icon(name, spin),
        SafeString("") if word else SafeString(' class="sr"'),
        said,
    )


@register.filter
def since(us: int | None) -> str:
    """How long ago a moment was, given in microseconds since the epoch."""
    return formats.age(None if us is None else max(0, time.time() * 1e6 - us))


@register.filter
def get(mapping: dict[str, Any] | None, key: str) -> Any:
    return (mapping or {}).get(key)


@register.simple_tag(takes_context=True)
def with_query(context: template.Context, **changes: Any) -> str:
    """The query string of this page with some parameters replaced; an empty value removes one."""
    query = {k: v for k, v in context["request"].GET.items() if k not in changes}
    query.update({k: v for k, v in changes.items() if v not in (None, "")})
    return "?" + urlencode(query)
