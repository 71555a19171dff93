"""Facts of a scope in words: head, overview, usage, errors, events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from relayweb.ui import formats
from relayweb.ui.inspect import jsonview
from relayweb.ui.inspect.subject import Subject

Node = Mapping[str, Any]
Pair = tuple[str, str]

EVENT_SHOWN = 24_000
CHILDREN = 100
"""Of what is inside a scope so many are named in its overview."""

FLAGS = {
    "synthetic": "The stream has no logical call around this attempt; it counts as one.",
    "late_child": "It began after its parent had ended.",
    "clock_skew": "It ended before it began: its clock ran differently. Raw times are kept.",
    "conflict": "Several different starts or ends were recorded. The earliest is shown, all are kept under Raw.",
    "orphan_drain": "Its stream went on after everything around it had ended.",
    "finish_reason_mismatch": "The stream and the final answer give different finish reasons; both are shown.",
    "no_successful_attempt": "The call ended as a success, but none of its attempts is on record as one.",
    "missing_parent": "The scope above it was never recorded.",
    "replaced_text": "Bytes that are no UTF-8, or values nested too deep, were replaced.",
    "derived_end": "No end is on record; the length runs to the last event seen.",
    "incomplete_tool_call": "The stream ended inside a tool call; what arrived of it is shown.",
    "unfinished_stream": "The stream ended without the provider saying that it was finished: more may be missing.",
    "unreadable_chunk": "The stream held data that is no JSON object; it is kept as text among the chunks.",
    "flattened": "Nested so deep that it is shown further up.",
}

ICONS = {
    "attempt": "llm",
    "logical_call": "call",
    "tool": "tool",
    "turn": "turn",
    "session": "session",
    "subagent": "subagent",
}
KINDS = {
    "attempt": "k-llm",
    "logical_call": "k-call",
    "tool": "k-tool",
    "turn": "k-agent",
    "session": "k-agent",
    "subagent": "k-agent",
}


def title(node: Node) -> str:
    if node["role"] == "attempt":
        return f"Attempt {node.get('attempt') or '?'}"
    if node["role"] == "logical_call":
        role = str(node.get("call_role") or "")
        return f"Call {role.partition(':')[2]}".strip() if ":" in role else "Call"
    name = str(node.get("name") or "")
    return name.removeprefix("relay.").removeprefix("hermes.") or str(node["role"])


def detail(node: Node) -> str:
    for key in ("model", "call_role", "asked", "category"):
        if node.get(key):
            return str(node[key])
    return ""


def head(subject: Subject) -> dict[str, Any]:
    """The line above the tabs."""
    node = subject.node
    guardrail = node.get("category") == "guardrail"
    badges = [node.get("api_mode"), node.get("finish_reason")] if subject.is_attempt else [node.get("call_role")]
    earlier = subject.earlier if subject.is_attempt else None
    return {
        "icon": "guardrail" if guardrail else ICONS.get(subject.role, "mark"),
        "kind": "k-guardrail" if guardrail else KINDS.get(subject.role, "k-mark"),
        "title": title(node),
        "detail": (node.get("model") or "") if subject.is_attempt else "",
        "badges": [b for b in badges if b],
        "ident": node.get("api_request_id") or "",
        "earlier": earlier,
        "earlier_name": subject.earlier_name if earlier else "",
    }


def number(value: int | None) -> str:
    """A count with its thousands apart: `24 014`."""
    return formats.UNKNOWN if value is None else f"{value:,}".replace(",", " ")


_COUNTS = (
    ("Read", "input_tokens"),
    ("of it audio", "audio_input"),
    ("of it images", "image_input"),
    ("of it cached", "cached_tokens"),
    ("written to the cache", "cache_write_tokens"),
    ("Written", "output_tokens"),
    ("of it reasoning", "reasoning_tokens"),
    ("of it audio", "audio_output"),
    ("of it images", "image_output"),
    ("Web searches", "web_searches"),
)


def usage(node: Node) -> list[Pair]:
    used = node.get("usage") or {}
    least = formats.least(node)
    counts = {**used, **(node.get("usage_details") or {})}
    pairs = [
        (label, formats.at_least(number(counts.get(key)), least))
        for label, key in _COUNTS
        if counts.get(key) is not None or key in ("input_tokens", "output_tokens")
    ]
    if node.get("service_tier"):
        pairs.append(("Service tier", str(node["service_tier"])))
    pairs.append(("Cost", formats.at_least(formats.cost(node.get("cost_usd")), least)))
    if "price_version" in node and used.get("input_tokens") is not None:
        pairs.append(("priced by", _priced_by(node)))
    if node.get("wasted_usd"):
        pairs.append(("of it wasted", formats.at_least(formats.cost(node["wasted_usd"]), least)))
    return pairs


def _priced_by(node: Node) -> str:
    """Whose figure the cost of an attempt is, or for what there is none."""
    tier, version = node.get("service_tier") or "standard", node["price_version"]
    if version == "relay":
        return "the provider's answer, Relay, or whoever recorded the call"
    if version is not None:
        return f"price table {version}, {tier} tier"
    details = node.get("usage_details") or {}
    beside = [name for name in ("audio", "image") if any(key.startswith(name) for key in details)]
    beside += ["web searches"] if "web_searches" in details else []
    beside += ["other tools of the provider"] if "unpriced" in details else []
    among = f" with {', '.join(beside)}" if beside else ""
    return f"the price table has no price for {node.get('model') or 'an unknown model'} in the {tier} tier{among}"


def stopped(subject: Subject) -> list[Pair]:
    node = subject.node
    told: list[Pair] = []
    if node.get("finish_reason"):
        told.append(("Finish reason", str(node["finish_reason"])))
    if node.get("stream_finish_reason") and node["stream_finish_reason"] != node.get("finish_reason"):
        told.append(("In the stream", str(node["stream_finish_reason"])))
    return told


def error_line(node: Node) -> str:
    found = node.get("error") or {}
    parts = [str(found[k]) for k in ("status", "type") if found.get(k) is not None]
    return " ".join(parts) or (str(found.get("message") or "") if found else "")


def error(subject: Subject) -> dict[str, Any] | None:
    """What went wrong, for the notice on top."""
    node = subject.node
    found = node.get("error")
    if not found and node["status"] not in ("failed", "blocked", "interrupted", "cancelled"):
        return None
    words = {
        "blocked": "Never sent: a guardrail or an intercept refused it.",
        "interrupted": "No end was recorded. Whatever ran it died, or stopped reporting.",
        "cancelled": "Cancelled before it was done.",
        "failed": "Failed.",
    }
    message = str((found or {}).get("message") or "")
    return {
        "status": node["status"],
        "title": error_line({"error": found} if found else {}) or words.get(str(node["status"]), ""),
        "message": message if message != error_line(node) else "",
        "outcome": node.get("outcome") or "",
    }


def failure(subject: Subject) -> dict[str, Any] | None:
    """What the provider answered to an attempt that failed."""
    found = subject.response.get("failure")
    if not isinstance(found, dict):
        return None
    body = found.get("body")
    rows = [
        ("Status", found.get("status")),
        ("Type", found.get("error_type")),
        ("Request id", found.get("request_id")),
        ("Retry after", found.get("retry_after")),
    ]
    text = body if isinstance(body, str) else jsonview.dump(body) if body is not None else ""
    return {
        "answered": found.get("status") is not None or body is not None,
        "rows": [(k, str(v)) for k, v in rows if v is not None],
        "body": text,
        "message": found.get("message") or "",
    }


def _times(node: Node, origin: int | None) -> list[Pair]:
    start = node.get("start_us")
    told = [("Started", str(node.get("started_at") or formats.UNKNOWN))]
    if start is not None and origin is not None and start != origin:
        told.append(("after the turn began", formats.duration(start - origin)))
    told.append(
        ("Ended", str(node.get("ended_at") or ("still running" if node["status"] == "running" else formats.UNKNOWN)))
    )
    told.append(("Duration", formats.duration(node.get("duration_us"))))
    if node.get("ttft_us") is not None:
        told.append(("First token after", formats.duration(node["ttft_us"])))
    return told


_ROUTE = (
    ("Model", "model"),
    ("Provider", "provider"),
    ("Wire format", "api_mode"),
    ("Role", "call_role"),
    ("Request id", "api_request_id"),
    ("Tool call id", "tool_call_id"),
    ("Session", "session_id"),
    ("Profile", "profile"),
    ("Category", "category"),
    ("Outcome", "outcome"),
)


def sections(subject: Subject) -> list[tuple[str, list[Pair]]]:
    """The overview as titled lists of name and value; what is unknown is left out or reads –."""
    from relayweb.recording.reading import queries

    node = subject.node
    turn = queries.turn_row(subject.turn)
    made = [("Time", _times(node, turn.start_us if turn else None))]
    made.append(("What it is", [(label, str(node[key])) for label, key in _ROUTE if node.get(key) is not None]))
    if node.get("usage") is not None:
        made.append(("Usage", usage(node)))
    if subject.is_attempt:
        streaming = {True: "streamed", False: "in one piece", None: formats.UNKNOWN}[node.get("streaming")]
        made.append(("Answer", [("Came", streaming), ("Chunks", number(node.get("chunk_count"))), *stopped(subject)]))
    made.append(
        (
            "On record",
            [
                ("Scope", str(node["uuid"])),
                ("Name", str(node.get("name") or formats.UNKNOWN)),
                ("Last change", f"no. {number(node.get('seq'))}"),
            ],
        )
    )
    return [(name, rows) for name, rows in made if rows]


def flags(node: Node) -> list[Pair]:
    return [(flag.replace("_", " "), FLAGS.get(flag, "")) for flag in node.get("flags") or ()]


def attempts(subject: Subject) -> list[dict[str, Any]]:
    before = None
    told = []
    for node in subject.siblings:
        gap = None
        if before and before.get("end_us") is not None and node.get("start_us") is not None:
            gap = node["start_us"] - before["end_us"]
        told.append(
            {"node": node, "title": title(node), "gap": gap if gap and gap > 0 else None, "error": error_line(node)}
        )
        before = node
    return told


def children(subject: Subject) -> list[dict[str, Any]]:
    return [
        {"node": node, "title": title(node), "detail": detail(node), "error": error_line(node)}
        for node in subject.children[:CHILDREN]
    ]


def event(subject: Subject, seq: int, text: bytes, marks: list[str]) -> dict[str, Any]:
    """One ATOF event as it was accepted."""
    value = jsonview.read(text, literal=True)
    named = value if isinstance(value, dict) else {}
    kind = named.get("scope_category") or named.get("kind") or "?"
    lines, skipped = jsonview.lines_of(value, 400)
    raw = text.decode("utf-8", "replace")
    return {
        "seq": seq,
        "kind": str(kind),
        "name": str(named.get("name") or ""),
        "at": str(named.get("timestamp") or ""),
        "size": len(text),
        "flags": [flag.replace("_", " ") for flag in marks],
        "html": jsonview.to_html(lines) if value is not None else "",
        "raw": raw[:EVENT_SHOWN],
        "skipped": skipped,
    }
