"""What the server says when it is ready. On the first start that is all a person needs to begin."""

from __future__ import annotations

from django.db import connections

from relayweb import conf
from relayweb.access import links, tokens
from relayweb.access.models import Token


def text(local: str, *, always_link: bool) -> str:
    """Where the server is, how to log in, and where agents connect.

    Tokens are made and shown on the first start only, because only their digests are kept.

    Args:
        local: the URL the server listens at, without a slash at its end.
        always_link: print a login link even if somebody has logged in before.
    """
    base = conf.PUBLIC_URL or local
    try:
        where = f"relayweb is at {base}" + (f", listening at {local}" if base != local else "")
        lines = [where, ""]
        if always_link or not links.anyone_has_logged_in():
            lines += ["Log in with this link; it works once, within half an hour:", f"  {base}{links.create()}", ""]
        else:
            lines += ["`relayweb login` prints a link to log in.", ""]
        lines += _first_start(base) if not Token.objects.exists() else _later_start(base)
        return "\n".join([*lines, f"State is in {conf.HOME}. Ctrl-C stops.", ""])
    finally:
        connections.close_all()


def _first_start(base: str) -> list[str]:
    gateway = tokens.create("first start", "gateway")
    ingest = tokens.create("first start", "ingest")
    return [
        "Agents use the gateway in place of their provider; their API keys pass through. Tokens are shown this once.",
        f"  export OPENAI_BASE_URL={base}/gw/t/{gateway}/openai/v1",
        f"  export ANTHROPIC_BASE_URL={base}/gw/t/{gateway}/anthropic",
        f"  without any key, a scripted provider: {base}/gw/t/{gateway}/demo/v1",
        "",
        "NeMo Relay's exporters send events to",
        f"  {base}/ingest/atof with the header authorization: Bearer {ingest}",
        "",
    ]


def _later_start(base: str) -> list[str]:
    return [
        f"Gateway: {base}/gw/openai, /gw/anthropic, /gw/demo. Events: {base}/ingest/atof.",
        "`relayweb token create --scope gateway` (or ingest, read) makes a token.",
        "",
    ]
