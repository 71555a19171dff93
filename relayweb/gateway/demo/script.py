"""What the demo upstream says: a small on-call story, chosen by what the request asks for. Deterministic."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

from relayweb.gateway.conversation import MESSAGES, RESPONSES, read_question

MODELS = {
    "demo": "answers at a human pace, with reasoning and tool calls",
    "demo-flaky": "the same, but the first attempt of each new question is answered with 503",
    "demo-mini": "short answers without reasoning",
    "demo-small-context": "always answers 400, the prompt is too long",
    "demo-cut": "breaks the connection off in the middle of its answer",
}

QUESTION = "Checkout errors went up shortly after 14:00. Find out why, and tell me what to do."
SYSTEM = (
    "You are the on-call assistant of a small web shop. Use the tools to look at metrics, deploys and logs before you "
    "draw a conclusion. Be brief."
)
TOOLS: dict[str, tuple[str, dict[str, str]]] = {
    "query_metrics": ("Read a time series of a service.", {"service": "string", "metric": "string", "since": "string"}),
    "list_deploys": ("List the deploys of a service.", {"service": "string", "since": "string"}),
    "search_logs": ("Search the logs of a service.", {"service": "string", "query": "string", "limit": "integer"}),
}
# What the tools answer, and the seconds they take, when run_turn plays the agent.
RESULTS: dict[str, tuple[float, Any]] = {
    "query_metrics": (
        0.9,
        {"before_14_00": {"error_rate": 0.002}, "after_14_05": {"error_rate": 0.061, "status": 502}},
    ),
    "list_deploys": (0.4, [{"service": "payments", "version": "2.18.0", "at": "14:03", "by": "release-bot"}]),
    "search_logs": (0.7, ["14:05:11 payments-client: connection pool exhausted (10 of 10 in use), waited 5000 ms"] * 3),
}


@dataclass(frozen=True, slots=True)
class Tool:
    id: str
    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer, before it is written in a wire format."""

    id: str
    model: str
    reasoning: str = ""
    text: str = ""
    tools: list[Tool] = field(default_factory=list)
    input_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0

    @property
    def output_tokens(self) -> int:
        said = len(self.text.split()) * 4 // 3 + sum(len(json.dumps(t.arguments)) // 4 + 8 for t in self.tools)
        return self.reasoning_tokens + said


_Step = tuple[str, str, list[tuple[str, dict[str, Any]]]]

_LOOK: _Step = (
    "The user says checkout errors rose after 14:00. Two things can tell me most: the error rate of checkout "
    "itself, and whether anything was deployed around then. Neither needs the other, so I ask for both at once.",
    "I will look at the error rate and at what was deployed.",
    [
        ("query_metrics", {"service": "checkout", "metric": "error_rate", "since": "13:45"}),
        ("list_deploys", {"service": "payments", "since": "13:45"}),
    ],
)
_DIG: _Step = (
    "Errors jump at 14:05 with status 502, and payments 2.18.0 went out at 14:03. That fits in time but is no proof. "
    "A 502 from checkout means that its call to payments failed; the logs of checkout should say how.",
    "The deploy of payments fits in time. The logs should show how the two are connected.",
    [("search_logs", {"service": "checkout", "query": "payments-client level:error since:14:03", "limit": 3})],
)
_CONCLUDE = (
    "The pool of connections to payments runs full: ten of ten in use, with waits of five seconds. So payments answers "
    "more slowly since 2.18.0, and checkout gives up waiting. Rolling back is quick and safe.",
    "**Cause.** Since `payments` 2.18.0 (14:03) each payment call holds its connection longer. The pool of `checkout` "
    "has ten connections; from 14:05 on all of them are in use, callers wait five seconds and get a 502. The rate of "
    "errors rose from 0.2 % to 6.1 %.\n\n**What to do.** Roll `payments` back to 2.17.x now. Before it is released "
    "again, compare its latency under load with the old version, and let `checkout` fail fast when the pool is full.",
)
NEXT_STEP = (
    "\n\n**Next step.** `deploy payments 2.17.4 --now`, then watch the error rate of `checkout` for ten minutes."
)


def reply(api_mode: str, body: dict[str, Any]) -> Reply:
    """The answer to a request body; which of the story's tools it asks for depends on those the request offers."""
    question = read_question(api_mode, body)
    model = question.model or "demo"
    size = len(json.dumps(body))
    mark = hashlib.blake2b(json.dumps(body, sort_keys=True).encode(), digest_size=8).hexdigest()
    base: dict[str, Any] = {"id": mark, "model": model, "input_tokens": size // 4}
    if model == "demo-mini":
        return Reply(**base, text="Checkout errors after the payments deploy")
    offered = _offered(body)
    for wanted in (_LOOK, _DIG):
        names = [name for name, _ in wanted[2]]
        if all(name in offered for name in names) and not _called(names[0], body):
            tools = [Tool(f"call_{mark[:8]}_{i}", *call) for i, call in enumerate(wanted[2])]
            cached = size // 8 if question.tool_results else 0
            return Reply(
                **base,
                reasoning=wanted[0],
                text=wanted[1],
                tools=tools,
                cached_tokens=cached,
                reasoning_tokens=len(wanted[0].split()),
            )
    text = _CONCLUDE[1] + (NEXT_STEP if "next step" in _system(api_mode, body).lower() else "")
    return Reply(
        **base, reasoning=_CONCLUDE[0], text=text, cached_tokens=size // 6, reasoning_tokens=len(_CONCLUDE[0].split())
    )


def tool_definitions(api_mode: str) -> list[dict[str, Any]]:
    """The story's tools as a request of this wire format offers them."""
    out = []
    for name, (description, parameters) in TOOLS.items():
        schema = {
            "type": "object",
            "properties": {p: {"type": kind} for p, kind in parameters.items()},
            "required": list(parameters),
        }
        if api_mode == MESSAGES:
            out.append({"name": name, "description": description, "input_schema": schema})
        elif api_mode == RESPONSES:
            out.append({"type": "function", "name": name, "description": description, "parameters": schema})
        else:
            function = {"name": name, "description": description, "parameters": schema}
            out.append({"type": "function", "function": function})
    return out


def _offered(body: dict[str, Any]) -> set[str]:
    tools = body.get("tools")
    names = set()
    for tool in tools if isinstance(tools, list) else []:
        if isinstance(tool, dict):
            inner = tool.get("function")
            names.add(str((inner if isinstance(inner, dict) else tool).get("name")))
    return names


def _called(name: str, body: dict[str, Any]) -> bool:
    """Whether the history since the last question of the user already holds a call of this tool."""
    history = body.get("messages") or body.get("input")
    since: list[Any] = []
    for item in history if isinstance(history, list) else []:
        plain = isinstance(item, dict) and item.get("role") == "user" and "tool_result" not in json.dumps(item)
        since = [] if plain else [*since, item]
    return f'"name": "{name}"' in json.dumps(since)


def _system(api_mode: str, body: dict[str, Any]) -> str:
    if api_mode == MESSAGES:
        return json.dumps(body.get("system"))
    if api_mode == RESPONSES:
        return json.dumps(body.get("instructions"))
    messages = body.get("messages")
    listed = messages if isinstance(messages, list) else []
    return json.dumps([m for m in listed if isinstance(m, dict) and m.get("role") in ("system", "developer")])
