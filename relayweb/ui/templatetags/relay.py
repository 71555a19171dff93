"""Template tags of the product: icons, status, and the formats of relayweb.ui.formats."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from django import template
from django.templatetags.static import static
from django.utils.html import escape, format_html
from django.utils.safestring import SafeString

from relayweb.recording.reading.query_language import FIELDS
from relayweb.ui import formats

register = template.Library()


def _format(function: Callable[[Any], str]) -> Callable[[Any], str]:
    """A format as a filter: what a template cannot find is "", and means unknown."""
    return lambda value: function(None if value == "" else value)


for _name in ("duration", "age", "count", "cost", "size"):
    register.filter(_name, _format(getattr(formats, _name)))
register.filter("short_id", formats.short_id)


@register.filter
def at_least(said: str, of: dict[str, Any]) -> str:
    """A figure in words, "≥ " before it where the usage of this turn or scope is a lower bound."""
    return formats.at_least(said, formats.least(of))


@register.filter
def whole_cost(of: dict[str, Any]) -> SafeString | str:
    """The cost of turns in words; where an attempt has no price it is a lower bound, and says why and what to do."""
    said = formats.cost(of.get("cost_usd"))
    if of.get("cost_complete") is not False or said == formats.UNKNOWN:
        return formats.at_least(said, formats.least(of))
    return format_html(
        '<bdi title="{why}">≥ {said}<span class="sr">. {why}</span></bdi>',
        said="$0" if said.startswith("<") else said,
        why=formats.UNPRICED,
    )


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


@register.filter
def trouble(turn: dict[str, Any]) -> str:
    """Why a turn did not end well, or what a running one waits for, in a few words, or ""."""
    waits = turn.get("awaiting_retry")
    if turn.get("status") == "ok" or (turn.get("status") == "running" and not waits):
        return ""
    error = turn.get("error")
    if waits:
        return f"{_named(error) or 'Failed'}, may be retried"
    return _named(error)


def _named(error: Any) -> str:
    if isinstance(error, dict):
        return str(error.get("type") or error.get("message") or error.get("status") or "")
    return str(error or "")


@register.filter
def tokens(turn: dict[str, Any]) -> str:
    """Everything read and written; "≥" when a part of it is not known."""
    usage = turn.get("usage") or {}
    total = usage.get("total_tokens")
    if total is None:
        parts = [n for n in (usage.get("input_tokens"), usage.get("output_tokens")) if n is not None]
        total = sum(parts) if parts else None
    if total is None:
        return formats.UNKNOWN
    return ("" if usage.get("complete") or turn.get("status") == "running" else "≥ ") + formats.count(total)


@register.simple_tag
def durcell(turn: dict[str, Any], largest: int | None) -> SafeString:
    """A duration with its bar: on a square-root scale, amber from half of the largest."""
    us = turn.get("duration_us")
    running = turn.get("status") == "running"
    if us is None and running and turn.get("start_us") is not None:
        us = max(0, int(time.time() * 1e6) - turn["start_us"])
    if us is None:
        return format_html('<span class="faint">{}</span>', formats.UNKNOWN)
    share = min(1.0, us / largest) if largest else 0.0
    hot = not running and share >= 0.5
    width = round(100 * share**0.5, 1)
    return format_html(
        '<span class="dur{}">{}</span>'
        '<svg class="durbar" preserveAspectRatio="none" viewBox="0 0 100 3" aria-hidden="true">'
        '<rect class="{}" x="{}" width="{}" height="3" rx="1"/></svg>',
        " heat-1" if hot else "",
        formats.duration(us),
        "go" if running else "hot" if hot else "",
        round(100 - width, 1),
        width,
    )


@register.filter
def widget_kind(field: Any) -> str:
    """How a bound form field is laid out: "checkbox", "radio", "checks" or "" for a labelled control."""
    name = type(field.field.widget).__name__
    return {"CheckboxInput": "checkbox", "RadioSelect": "radio", "CheckboxSelectMultiple": "checks"}.get(name, "")


@register.filter
def is_short(field: Any) -> bool:
    """Whether a bound form field needs little room, so that three stand in a row."""
    widget = field.field.widget
    return "inputmode" in widget.attrs or type(widget).__name__ in ("RadioSelect", "Select")


@register.filter
def ticks(text: str) -> SafeString:
    """Text with what stands in backticks as code."""
    parts = [format_html("<code>{}</code>", part) if i % 2 else escape(part) for i, part in enumerate(text.split("`"))]
    return SafeString("".join(parts))


@register.inclusion_tag("shell/_fields.html")
def search_fields() -> dict[str, Any]:
    """What a search can ask for, offered while one writes: each field, and the values of those that have few."""
    found: list[tuple[str, str]] = []
    for name, field in FIELDS.items():
        choices = ("yes", "no") if field.kind == "yesno" else field.choices
        found += [(f"{name}:{choice}", field.help) for choice in choices] or [(f"{name}:", field.help)]
    return {"fields": found}


@register.filter
def spaced(number: int | None) -> str:
    """A whole number with its thousands apart: `1 204`."""
    return formats.UNKNOWN if number is None else f"{number:,}".replace(",", "\u202f")


@register.filter
def signed_size(octets: int | None) -> str:
    """Bytes more or fewer: `+1.2 KB`, `−18.6 KB`, `0 B`."""
    if not octets:
        return formats.size(octets)
    return ("+" if octets > 0 else "−") + formats.size(abs(octets))


@register.filter
def when(moment: datetime) -> str:
    """A moment as people say it: `now`, `4 m ago`, `6 d ago`."""
    said = formats.age((time.time() - moment.timestamp()) * 1e6)
    return said if said in ("now", formats.UNKNOWN) else f"{said} ago"


@register.simple_tag
def span_us(start: int | None, end: int | None) -> str:
    """The time between two moments, both in microseconds."""
    return formats.UNKNOWN if start is None or end is None else formats.duration(max(0, end - start))


@register.filter
def signed_count(number: float) -> str:
    """A count more or fewer: `+288`, `−18.4k`."""
    return ("+" if number > 0 else "−" if number < 0 else "") + formats.count(abs(number))


@register.simple_tag
def change_share(before: float, after: float) -> str:
    """How much more or less, in per cent: `−43 %`."""
    if not before:
        return formats.UNKNOWN
    share = 100 * (after - before) / before
    return f"{'+' if share > 0 else '−' if share < 0 else ''}{abs(share):.1f} %"


@register.simple_tag
def quantile_us(report: Any, share: float) -> str:
    return formats.duration(report.quantile(share))


@register.filter
def json_text(value: Any) -> str:
    """A value as JSON, for people to read."""
    return json.dumps(value, ensure_ascii=False, indent=1)


@register.filter
def per_cent(share: float | str | None) -> str:
    """A share of one: `4.0 %`."""
    return formats.percent(None if isinstance(share, str) else share, 1)
