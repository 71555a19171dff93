"""What every page shows around its content: the theme, the part of the site, and what is wrong with the recorder."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.urls import reverse

THEMES = ("light", "dark")
SECTIONS = {
    "turns": "turns",
    "turn": "turns",
    "sessions": "sessions",
    "session": "sessions",
    "events": "sessions",
    "compare": "compare",
    "statistics": "statistics",
}


def theme(request: HttpRequest) -> str:
    """The theme the reader chose, or "" for the system's."""
    chosen = request.COOKIES.get("theme", "")
    return chosen if chosen in THEMES else ""


def section(request: HttpRequest) -> str:
    """The entry of the main navigation that this page belongs to."""
    match = request.resolver_match
    if match is None:
        return ""
    if match.app_name == "admin":
        return "intercepts" if (match.url_name or "").startswith("intercepts_") else "admin"
    return SECTIONS.get((match.url_name or "").split("-")[0], "") if match.app_name == "ui" else ""


def recorder_notices() -> list[dict[str, str]]:
    """Faults of the recorder that readers must know of: it is degraded, or events were dropped."""
    from relayweb.recording.writing.writer import writer

    recorder = writer()
    notices = []
    state = recorder.state()
    if state["status"] == "degraded":
        notices.append(
            {
                "kind": "failed",
                "title": "The recorder is degraded.",
                "text": f"{state.get('reason') or 'Its writer reports a fault.'} Calls still run; some may be missing.",
            }
        )
    dropped = recorder.counters().get("dropped", 0)
    if dropped:
        notices.append(
            {
                "kind": "failed",
                "title": f"{dropped} event{'' if dropped == 1 else 's'} dropped since the start.",
                "text": "The in-process lane was full. Turns of that time may have gaps.",
            }
        )
    return notices + gateway_notices()


def gateway_notices() -> list[dict[str, str]]:
    """What went through the gateway and is not, or not wholly, on record."""
    from relayweb.gateway.app import counters

    found = counters()
    lost = [
        f"{count} {what if count == 1 else what + 's'}{how}"
        for what, how in (("call", " not recorded"), ("stream", " recorded in part"), ("chunk", " not recorded"))
        if (count := found.get(f"lost_{what}s", 0))
    ]
    if not lost:
        return []
    title = f"Through the gateway since the start: {', '.join(lost)}."
    return [{"kind": "failed", "title": title, "text": "The clients got their answers. The log says when and why."}]


def notices() -> list[dict[str, str]]:
    """What everybody should know of: faults of the recorder, and intercepts that the product stopped."""
    from relayweb.intercepts.models import InterceptConfig

    stopped = InterceptConfig.objects.exclude(stopped="")
    return recorder_notices() + [
        {
            "kind": "interrupted",
            "title": f"Intercept {config.key} is stopped.",
            "text": f"{config.stopped[:1].upper()}{config.stopped[1:]}.",
            "href": reverse("admin:intercepts_interceptconfig_rule", args=[config.key]),
        }
        for config in stopped
    ]


def context(request: HttpRequest) -> dict[str, Any]:
    """Context processor: `theme`, `section` and, for people who are logged in, `notices` (lazily)."""
    user = getattr(request, "user", None)
    return {
        "theme": theme(request),
        "section": section(request),
        "notices": notices if user is not None and user.is_authenticated else (),
    }
