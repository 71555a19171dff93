"""Markdown of models and users as HTML that can do nothing: no scripts, no pictures from elsewhere, no raw HTML."""

from __future__ import annotations

import nh3
from django.utils.safestring import SafeString, mark_safe
from markdown_it import MarkdownIt

LONGEST = 40_000
"""Characters from which text is shown as it is: nobody reads a book as Markdown here."""

# `image` is off so that a picture stays a link: loading it would tell its host that somebody reads this turn.
_parser = (
    MarkdownIt("commonmark", {"html": False, "linkify": False}).enable(["table", "strikethrough"]).disable("image")
)

_TAGS = {
    "a", "blockquote", "br", "code", "del", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "li", "ol", "p", "pre", "s",
    "strong", "table", "tbody", "td", "th", "thead", "tr", "ul",
}  # fmt: skip

_SCHEMES = {"http", "https", "mailto"}
_REL = "noopener noreferrer nofollow"


def render(text: str) -> SafeString | None:
    """HTML of a Markdown text; None when it is better shown as plain text (too long, or the parser failed)."""
    if len(text) > LONGEST:
        return None
    try:
        html = _parser.render(text)
    except Exception:  # noqa: BLE001 - a parser bug must not hide what was said
        return None
    html = html.encode("utf-8", "backslashreplace").decode()  # half a character is none
    clean = nh3.clean(html, tags=_TAGS, attributes={"a": {"href"}}, url_schemes=_SCHEMES, link_rel=_REL)
    return mark_safe(clean)
