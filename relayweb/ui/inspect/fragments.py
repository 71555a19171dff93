"""What the templates of the inspector are given: words and lines, no decisions left to take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from django.urls import NoReverseMatch, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from relayweb.intercepts.models import Revision
from relayweb.recording.reading import bodies
from relayweb.ui import formats
from relayweb.ui.inspect import again, facts, jsonview, messages, pipeline, streams, transcript
from relayweb.ui.inspect.subject import Subject
from relayweb.ui.templatetags.relay import icon

Context = dict[str, Any]

FORMS = ("pretty", "json", "raw")
SHOWN_MESSAGES = 30
"""Messages at the end of a conversation that are shown before the earlier ones are asked for."""
EARLIER_MESSAGES = 100
"""Earlier messages that one press brings."""

TABS = {
    "attempt": ("overview", "request", "rewrites", "response", "chunks", "raw"),
    "tool": ("overview", "request", "response", "raw"),
    "logical_call": ("overview", "rewrites", "raw"),
}
LABELS = {"request": "Input", "response": "Output"}


def inspector(subject: Subject, query: Mapping[str, str]) -> Context:
    """The context of turns/turn_inspector.html for the tab, form and picks that the query asks for."""
    tabs = TABS.get(subject.role, ("overview", "request", "response", "raw"))
    default = "response" if subject.is_attempt else "overview"
    tab = query.get("tab") if query.get("tab") in tabs else default
    form = query.get("form") if query.get("form") in FORMS else "pretty"
    context: Context = {
        "node": subject.node,
        "ident": subject.ident,
        "turn": subject.turn,
        "subject_turn": subject.turn,
        "subject_ident": subject.ident,
        "head": facts.head(subject),
        "tab": tab,
        "form": form,
        "forms": FORMS if tab in ("request", "response") else (),
        "template": f"turns/turn_tab_{tab}.html",
    }
    context |= _MAKERS[str(tab)](subject, str(form), query)
    context["tabs"] = [(name, _label(subject, name), _count(subject, name, context)) for name in tabs]
    return context


def _label(subject: Subject, tab: str) -> str:
    return tab.capitalize() if subject.is_attempt else LABELS.get(tab, tab.capitalize())


def _count(subject: Subject, tab: str, context: Context) -> int | None:
    if tab == "chunks":
        return subject.node.get("chunk_count") or None
    if tab == "rewrites":
        return len(subject.node.get("rewrites") or ()) or None
    return context.get("message_count") if tab == "request" and subject.is_attempt else None


def value_url(subject: Subject, of: str, pointer: str = "", **more: str) -> str:
    """The address of one recorded value in full."""
    path = reverse("ui:turn-value", args=[subject.turn, subject.ident])
    return f"{path}?{urlencode({'of': of, 'at': pointer, **more})}"


def _overview(subject: Subject, form: str, query: Mapping[str, str]) -> Context:
    return {
        "sections": facts.sections(subject),
        "attempts": facts.attempts(subject) if subject.role == "logical_call" else [],
        "error": facts.error(subject),
        "children": facts.children(subject) if subject.role not in ("attempt", "logical_call") else [],
        "child_count": subject.child_count,
    }


def _document(subject: Subject, of: str, form: str) -> Context:
    """A body as JSON lines, or as raw text."""
    holder = subject.request if of == "request" else subject.response
    value = holder.get(of)
    size = jsonview.size_of(value)
    context: Context = {"of": of, "size": size, "nothing": value is None, "whole": value_url(subject, of)}
    if form == "json":
        lines, skipped = jsonview.lines_of(value)
        context |= {"lines": jsonview.to_html(lines, load=lambda at: value_url(subject, of, at)), "skipped": skipped}
    elif form == "raw":
        text = jsonview.dump(value)
        context |= {"raw": text[:RAW_SHOWN], "raw_cut": len(text) > RAW_SHOWN}
    return context


RAW_SHOWN = 60_000


def _request(subject: Subject, form: str, query: Mapping[str, str]) -> Context:
    context = _document(subject, "request", form)
    value = subject.request.get("request")
    if subject.is_attempt:
        shown = 0 if form != "pretty" else EARLIER_MESSAGES if "before" in query else SHOWN_MESSAGES
        body = messages.request(value, _number(query, "before"), shown)
        context["message_count"] = body.count or None
        if form == "pretty":
            context |= {"body": body, "messages": body.messages, "hidden": body.first}
            context["next"] = min(body.first, EARLIER_MESSAGES)
            context["again"] = again.FORMS if again.can_send(value, subject.node.get("api_mode")) else None
            context["escaped"] = subject.request.get("escaped") or []
            if not body.understood:
                context |= _document(subject, "request", "json")
    elif form == "pretty":
        context |= _document(subject, "request", "json")
    return context


def _response(subject: Subject, form: str, query: Mapping[str, str]) -> Context:
    context = _document(subject, "response", form)
    value = subject.response.get("response")
    if not subject.is_attempt:
        return context | (_document(subject, "response", "json") if form == "pretty" else {})
    context |= _stream(subject)
    context |= {
        "partial": subject.response.get("partial"),
        "failure": facts.failure(subject),
        "error": facts.error(subject),
        "usage": facts.usage(subject.node),
        "stopped": facts.stopped(subject),
        "live": subject.node["status"] == "running" and bool(subject.node.get("streaming") or subject.chunks),
        "live_pieces": _pieces(subject.chunks) if subject.node["status"] == "running" else (),
    }
    if form == "pretty":
        body = messages.response(value)
        messages.pair([body], subject.tools, transcript.outputs)
        context["body"] = body
        if not body.understood and not body.untold and value not in (None, {}, ""):
            context |= _document(subject, "response", "json")
        if not body.messages and value in ({}, ""):
            context["no_text"] = True
    return context


_TONES = {"reasoning": "c-reasoning", "tool": "c-args"}


def _pieces(chunks: list[dict[str, Any]]) -> list[dict[str, str]]:
    """What has arrived so far, neighbours of one kind together."""
    pieces: list[dict[str, str]] = []
    for chunk in chunks:
        tone = _TONES.get(chunk["kind"] or "", "c-plain")
        if pieces and pieces[-1]["tone"] == tone:
            pieces[-1]["text"] += chunk["text"] or ""
        elif chunk["text"]:
            pieces.append({"tone": tone, "text": chunk["text"]})
    return pieces


def _stream(subject: Subject) -> Context:
    chunks = subject.chunks
    rhythm = streams.rhythm(chunks, subject.node["start_us"])
    tokens = (subject.node.get("usage") or {}).get("output_tokens")
    seconds = (subject.node.get("duration_us") or 0) / 1e6
    stalled = rhythm.stalled_us / 1e6
    least = formats.least(subject.node)
    moving = seconds - stalled
    return {
        "rhythm": rhythm,
        "streamed": bool(chunks),
        "ttft": subject.node.get("ttft_us"),
        "rate": f"{least}{round(tokens / seconds)}" if tokens and seconds else None,
        "rate_moving": f"{least}{round(tokens / moving)}" if tokens and stalled and moving > 0 else None,
        "live_from": 1 + max((n for n, chunk in enumerate(chunks) if chunk["text"] is not None), default=-1),
    }


def _chunks(subject: Subject, form: str, query: Mapping[str, str]) -> Context:
    context = _stream(subject)
    rows = streams.table(subject.chunks, subject.node["start_us"], context["rhythm"])
    return context | {"rows": rows, "all_url": reverse("ui:turn-chunk-table", args=[subject.turn, subject.ident])}


def all_chunks(subject: Subject) -> Context:
    rhythm = streams.rhythm(subject.chunks, subject.node["start_us"])
    return {"rows": streams.table(subject.chunks, subject.node["start_us"], rhythm, whole=True)}


def _raw(subject: Subject, form: str, query: Mapping[str, str]) -> Context:
    offset = _number(query, "offset") or 0
    found = bodies.events(subject.uuid, limit=40, offset=offset)
    events = []
    for seq, text, flags in zip(found["seqs"], found["events"], found["flags"], strict=True) if found else ():
        events.append(facts.event(subject, seq, text, flags))
    return {"events": events, "more": found["next"] if found else None, "chunk_count": subject.node.get("chunk_count")}


def _number(query: Mapping[str, str], name: str) -> int | None:
    text = query.get(name, "")
    return int(text[:9]) if text.isdecimal() else None


def rule_url(key: str, revision: int | None) -> str | None:
    """Where the intercept that did something is configured."""
    try:
        url = reverse("admin:intercepts_interceptconfig_rule", args=[key])
        return url if revision is None else f"{url}?r={revision}"
    except NoReverseMatch:
        return None


def _rewrites(subject: Subject, form: str, query: Mapping[str, str]) -> Context:
    against = {**subject.earlier, "called": subject.earlier_name} if query.get("against") and subject.earlier else None
    line = pipeline.Pipeline(subject.rewrites["stages"], subject.request, _earlier_body(subject, against), against)
    authors = Revision.authors((stage.key, stage.revision) for stage in line.stages if stage.key)
    for stage in line.stages:
        stage.author = authors.get((stage.key, stage.revision), "")
    a, b = line.picks(query.get("a"), query.get("b"))
    how = query.get("diff") if query.get("diff") in ("structure", "text", "patch") else "structure"

    def who(by: int) -> SafeString:
        stage = line.stages[by]
        url = rule_url(stage.key, stage.revision)
        tag = format_html("{}{}{}", icon("rewrite"), stage.key, "" if stage.revision is None else f" r{stage.revision}")
        by_whom = f"Published by {stage.author}" if stage.author else ""
        if not url or stage.key == "foreign":
            return tag
        return format_html('<a href="{}" title="{}">{}</a>', url, by_whom, tag)

    shown = line.compare(a, b, str(how))
    blamed = line.blamed()
    return {
        "line": line,
        "a": a,
        "b": b,
        "diff": how,
        "diff_forms": (("structure", "Structure"), ("text", "Text"), ("patch", "Patch")),
        "shown": shown,
        "shown_html": jsonview.to_html(shown.lines),
        "blamed": blamed,
        "blamed_html": jsonview.to_html(blamed.lines, load=lambda at: value_url(subject, "request", at), who=who),
        "whole": value_url(subject, "request"),
        "against": against,
    }


def _earlier_body(subject: Subject, against: Mapping[str, Any] | None) -> Any:
    if against is None:
        return None
    other = Subject.find(subject.turn, str(against["uuid"]))
    return other.request.get("request") if other else None


_MAKERS = {
    "overview": _overview,
    "request": _request,
    "rewrites": _rewrites,
    "response": _response,
    "chunks": _chunks,
    "raw": _raw,
}


def _run(run: Mapping[str, Any]) -> str:
    """An intercept that ran; in brackets why it changed nothing."""
    unchanged = "shadow" if run["mode"] == "shadow" else run["result"]
    return f"{run['key']} r{run['revision']}" + ("" if run["changed"] else f" ({unchanged})")


def span_row(node: Mapping[str, Any], origin_us: int | None) -> Context:
    """One row of the table that says what the timeline shows."""
    start = node.get("start_us")
    offset = None if start is None or origin_us is None else start - origin_us
    what = facts.title(node)
    hits = [r for r in node.get("rewrites") or () if r["result"] != "miss"]
    return {
        "uuid": ("call:" if node["role"] == "logical_call" and "synthetic" in node["flags"] else "") + node["uuid"],
        "indent": min(node.get("depth") or 0, 9),
        "title": what,
        "detail": facts.detail(node),
        "status": node["status"],
        "start": "–" if offset is None else f"+{offset / 1e6:.3f}",
        "duration": formats.duration(node.get("duration_us")),
        "chunks": node.get("chunk_count"),
        "rewrites": ", ".join(map(_run, hits)),
        "error": facts.error_line(node),
    }
