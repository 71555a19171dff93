"""Pages with text that UTF-8 cannot hold."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.template import loader


def render(request: HttpRequest, template: str, context: dict[str, Any]) -> HttpResponse:
    """As Django's, for templates that show recorded text: half a character (a lone surrogate) stands as its escape."""
    return HttpResponse(loader.render_to_string(template, context, request).encode("utf-8", "backslashreplace"))
