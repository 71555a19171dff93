"""Provider bodies as a conversation: who said what, with tool calls, reasoning and pictures told apart.

One reader for all wire formats, by shape and not by declared format: what people record is often a mixture. What it
cannot place is listed, never dropped, and nothing that was recorded makes it raise.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.utils.safestring import SafeString

from relayweb.ui.inspect import jsonview, markdown
from relayweb.ui.inspect.jsonview import dump

PICTURES = frozenset(("image/png", "image/jpeg", "image/gif", "image/webp"))
"""Types of pictures that are shown: such as can hold no script."""
CUT = 6_000
"""Characters of a text that are shown before it is cut."""
LOOKED_UP = 16
"""Tool calls of one message whose results are read beside it."""
NESTED = 3
"""How deep content inside content (a result that holds blocks) is read."""


@dataclass
class Part:
    """A piece of a message. `kind` is text, reasoning, call, result, image, file or json."""

    kind: str
    text: str = ""
    html: SafeString | None = None
    title: str = ""
    id: str = ""
    note: str = ""
    pointer: str = ""
    size: int = 0
    cut: bool = False
    parts: list[Part] = field(default_factory=list)
    tool: Mapping[str, Any] | None = None
    """The tool scope that ran for this call."""
    outcome: str = ""
    """First words of what the tool gave back."""

    @property
    def lines(self) -> SafeString:
        """`text`, which is JSON, as coloured lines."""
        try:
            value = jsonview.load(self.text)
        except (ValueError, RecursionError):
            return SafeString("")
        small = jsonview.inline(value, 400)
        if small:
            return jsonview.to_html([jsonview.Line(0, tuple(small))])
        return jsonview.to_html(jsonview.lines_of(value, 200)[0])


@dataclass
class Message:
    role: str
    parts: list[Part] = field(default_factory=list)
    other: list[tuple[str, str]] = field(default_factory=list)
    pointer: str = ""
    note: str = ""
    name: str = ""

    @property
    def icon(self) -> str:
        return {"system": "system", "developer": "system", "user": "user", "tool": "tool", "function": "tool"}.get(
            self.role, "llm" if self.role in ("assistant", "model") else "mark"
        )

    @property
    def tone(self) -> str:
        return {"tool": "k-tool", "function": "k-tool", "assistant": "k-llm", "model": "k-llm"}.get(self.role, "k-mark")

    @property
    def css(self) -> str:
        return {"developer": "system"}.get(self.role, self.role if self.role in ("user", "system", "tool") else "")


@dataclass
class Body:
    """A request or a response, read."""

    messages: list[Message] = field(default_factory=list)
    settings: list[tuple[str, str]] = field(default_factory=list)
    tools: list[dict[str, Any]] = field(default_factory=list)
    other: list[tuple[str, str]] = field(default_factory=list)
    understood: bool = True
    stop: str = ""


_SETTINGS = (
    "model",
    "stream",
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "temperature",
    "top_p",
    "top_k",
    "seed",
    "stop",
    "stop_sequences",
    "tool_choice",
    "parallel_tool_calls",
    "reasoning_effort",
    "reasoning",
    "thinking",
    "response_format",
    "text",
    "service_tier",
    "previous_response_id",
    "output_config",
)
_CONVERSATION = {"messages", "system", "instructions", "input", "tools"}
_RESPONSE_FACTS = {"id", "object", "created", "created_at", "completed_at", "type", "model", "usage", "status", "role"}


def preview(value: Any, room: int = 60) -> str:
    """A value in a few characters: `null`, `{…} 2 members`, `"text…"`."""
    if isinstance(value, dict) and value:
        return f"{{…}} {len(value)} member{'s' if len(value) != 1 else ''}"
    if isinstance(value, list) and value:
        return f"[…] {len(value)} item{'s' if len(value) != 1 else ''}"
    text = dump(value)
    return text if len(text) <= room else text[: room - 1] + "…"


def request(body: Any) -> Body:
    """A request of any of the wire formats."""
    if not isinstance(body, dict):
        return Body(understood=False)
    made = Body()
    for key in ("system", "instructions"):
        if body.get(key) is not None:
            made.messages.append(Message("system", list(_parts(body[key], f"/{key}")), pointer=f"/{key}"))
    for key in ("messages", "input"):
        if key in body:
            made.messages += _messages(body[key], f"/{key}")
    made.settings = [(key, preview(body[key])) for key in _SETTINGS if key in body]
    made.tools = list(_tools(body.get("tools")))
    known = {*_SETTINGS, *_CONVERSATION}
    made.other = [(str(key), preview(value)) for key, value in body.items() if key not in known]
    made.understood = bool(made.messages or made.settings)
    return made


def response(body: Any) -> Body:
    """A response of any of the wire formats, or what was put together from a stream."""
    if isinstance(body, str) and body:
        return Body([Message("assistant", list(_parts(body, "")))])
    if not isinstance(body, dict) or not body:
        return Body(understood=False)
    made = Body()
    if isinstance(body.get("choices"), list):
        for n, choice in enumerate(body["choices"]):
            made.messages += _choice(choice, f"/choices/{n}")
            if isinstance(choice, dict) and isinstance(choice.get("finish_reason"), str):
                made.stop = choice["finish_reason"]
    elif "output" in body and isinstance(body["output"], list):
        made.messages += _messages(body["output"], "/output", "assistant")
    elif "content" in body or "tool_calls" in body:
        made.messages.append(_message(body, "", "assistant", known=_RESPONSE_FACTS | {"stop_reason", "finish_reason"}))
    for key in ("stop_reason", "finish_reason"):
        if isinstance(body.get(key), str):
            made.stop = body[key]
    placed = {*_RESPONSE_FACTS, "choices", "output", "content", "tool_calls", "stop_reason", "finish_reason"}
    if "content" not in body:
        made.other = [(str(k), preview(v)) for k, v in body.items() if k not in placed and v not in (None, [], {})]
    made.understood = bool(made.messages)
    return made


def _choice(choice: Any, pointer: str) -> Iterator[Message]:
    if not isinstance(choice, dict):
        yield Message("assistant", list(_parts(choice, pointer)), pointer=pointer)
        return
    for key in ("message", "delta"):
        if isinstance(choice.get(key), dict):
            yield _message(choice[key], f"{pointer}/{key}", "assistant")
            return
    if "text" in choice:
        yield Message("assistant", list(_parts(choice["text"], f"{pointer}/text")), pointer=pointer)


def _is_message(item: dict[str, Any]) -> bool:
    return "role" in item or item.get("type") == "message" or ("content" in item and "type" not in item)


def last_of(role: str, items: Sequence[bytes], pointer: str) -> Message | None:
    """The last message of a role, looked for from the end: a history may hold hundreds of thousands.

    Args:
        items: messages of a request as JSON texts; `pointer` is that of their list.
    """
    size = 4
    while True:
        first = max(0, len(items) - size)
        some = [jsonview.read(text) for text in items[first:]]
        found = [message for message in _messages(some, pointer, first=first) if message.role == role]
        if found or not first:
            return found[-1] if found else None
        size *= 16


def _messages(value: Any, pointer: str, role: str = "user", first: int = 0) -> list[Message]:
    """Messages of a list; items of the Responses format that follow each other are one message of the assistant."""
    if not isinstance(value, list):
        return [Message(role, list(_parts(value, pointer)), pointer=pointer)] if value is not None else []
    made: list[Message] = []
    for n, item in enumerate(value, first):
        at = f"{pointer}/{n}"
        if isinstance(item, dict) and _is_message(item):
            made.append(_message(item, at, role))
            continue
        parts = list(_parts([item], at, single=True))
        speaker = "tool" if parts and parts[0].kind == "result" else "assistant" if isinstance(item, dict) else role
        if made and made[-1].role == speaker and speaker == "assistant" and not made[-1].other:
            made[-1].parts += parts
        else:
            made.append(Message(speaker, parts, pointer=at))
    return made


def _message(item: dict[str, Any], pointer: str, role: str, known: set[str] | None = None) -> Message:
    said = item.get("role")
    made = Message(said if isinstance(said, str) else role, pointer=pointer)
    placed = {"role", "content", "type", "id", "status", "name", "tool_call_id", *(known or ())}
    for key in ("reasoning_content", "reasoning", "thinking"):
        if isinstance(item.get(key), str) and item[key]:
            made.parts.append(_text(item[key], f"{pointer}/{key}", "reasoning"))
            placed.add(key)
            break
    if isinstance(item.get("name"), str):
        made.name = item["name"]
    if made.role in ("tool", "function"):
        made.parts.append(_result(item, item.get("content"), f"{pointer}/content", str(item.get("tool_call_id") or "")))
    else:
        made.parts += _parts(item.get("content"), f"{pointer}/content")
    if isinstance(item.get("refusal"), str) and item["refusal"]:
        part = _text(item["refusal"], f"{pointer}/refusal", "text")
        part.note = "refusal"
        made.parts.append(part)
    placed.add("refusal")
    calls = item.get("tool_calls")
    if isinstance(calls, list):
        made.parts += [_chat_call(call, f"{pointer}/tool_calls/{n}") for n, call in enumerate(calls)]
        placed.add("tool_calls")
    if isinstance(item.get("function_call"), dict):
        made.parts.append(_chat_call({"function": item["function_call"]}, f"{pointer}/function_call"))
        placed.add("function_call")
    made.other = [(str(k), preview(v)) for k, v in item.items() if k not in placed and v not in (None, [], {})]
    return made


def _parts(content: Any, pointer: str, *, single: bool = False, depth: int = 0) -> Iterator[Part]:
    """The parts of a content, which is a text, a block or a list of them."""
    if content is None or content == "" or content == []:
        return
    if isinstance(content, str):
        yield _text(content, pointer, "text")
    elif isinstance(content, list):
        for n, block in enumerate(content):
            at = pointer if single else f"{pointer}/{n}"
            if isinstance(block, str):
                yield _text(block, at, "text")
            elif isinstance(block, dict) and isinstance(block.get("type"), str):
                yield from _block(block, at, depth)
            else:
                yield _json(block, at)
    elif isinstance(content, dict) and isinstance(content.get("type"), str):
        yield from _block(content, pointer, depth)
    else:
        yield _json(content, pointer)


def _block(block: dict[str, Any], pointer: str, depth: int) -> Iterator[Part]:
    kind: str = block["type"]
    reader = _BLOCKS.get(kind)
    if reader:
        yield reader(block, pointer, depth)
    elif kind.endswith(("_tool_result", "_call_output")):
        yield _result(block, block.get("content", block.get("output")), f"{pointer}/content", _ident(block), depth)
    elif kind.endswith("_call"):
        part = _call(kind.removesuffix("_call"), block.get("action", block.get("arguments")), _ident(block), pointer)
        part.note = "server tool"
        yield part
    else:
        yield _json(block, pointer, kind)


def _ident(block: Mapping[str, Any]) -> str:
    return str(block.get("call_id") or block.get("tool_use_id") or block.get("tool_call_id") or block.get("id") or "")


def _block_text(block: dict[str, Any], pointer: str, depth: int) -> Part:
    key = "refusal" if block["type"] == "refusal" else "text"
    value = block.get(key)
    if not isinstance(value, str):
        return _json(block, pointer, block["type"])
    part = _text(value, f"{pointer}/{key}", "text")
    part.note = "refusal" if key == "refusal" else ""
    citations = block.get("citations") or block.get("annotations")
    if isinstance(citations, list) and citations:
        part.note = f"{len(citations)} citation{'s' if len(citations) != 1 else ''}"
    return part


def _block_reasoning(block: dict[str, Any], pointer: str, depth: int) -> Part:
    for key in ("thinking", "text", "reasoning"):
        if isinstance(block.get(key), str):
            return _text(block[key], f"{pointer}/{key}", "reasoning")
    summary = block.get("summary") or block.get("content")
    texts = [s.get("text") for s in summary if isinstance(s, dict)] if isinstance(summary, list) else []
    said = "\n\n".join(t for t in texts if isinstance(t, str))
    part = _text(said, pointer, "reasoning")
    if not said:
        part.note = "encrypted or redacted by the provider"
    return part


def _block_call(block: dict[str, Any], pointer: str, depth: int) -> Part:
    given = block["input"] if "input" in block else block.get("arguments")
    part = _call(str(block.get("name") or "?"), given, _ident(block), pointer)
    if block["type"] in ("server_tool_use", "mcp_tool_use", "mcp_call"):
        part.note = "server tool"
    return part


def _block_result(block: dict[str, Any], pointer: str, depth: int) -> Part:
    key = "output" if "output" in block else "content"
    return _result(block, block.get(key), f"{pointer}/{key}", _ident(block), depth)


def _block_image(block: dict[str, Any], pointer: str, depth: int) -> Part:
    source = block.get("source")
    url = block.get("image_url")
    if isinstance(url, dict):
        url = url.get("url")
    if isinstance(source, dict):
        url = source.get("url") or f"data:{source.get('media_type')};base64,{source.get('data')}"
    if not isinstance(url, str):
        return _json(block, pointer, "image")
    if url.startswith("data:"):
        media = url[5:].partition(";")[0].partition(",")[0]
        if media.lower() not in PICTURES:
            title = f"Picture of type {media[:60] or 'unknown'}"
            return Part("file", title=title, note="not a type that is shown", pointer=pointer, size=len(url) * 3 // 4)
        return Part("image", title=media, pointer=pointer, size=len(url) * 3 // 4)
    return Part("image", title="picture elsewhere", text=url[:500], pointer=pointer)


def _block_file(block: dict[str, Any], pointer: str, depth: int) -> Part:
    name = block.get("filename") or block.get("title") or block.get("file_id") or block["type"]
    return Part("file", title=str(name), note=block["type"], pointer=pointer, size=jsonview.size_of(block))


def _block_item(block: dict[str, Any], pointer: str, depth: int) -> Part:
    made = _message(block, pointer, "assistant")
    return Part("group", parts=made.parts, pointer=pointer)


_BLOCKS: dict[str, Callable[[dict[str, Any], str, int], Part]] = {
    **dict.fromkeys(("text", "input_text", "output_text", "refusal", "summary_text"), _block_text),
    **dict.fromkeys(("thinking", "redacted_thinking", "reasoning", "reasoning.text"), _block_reasoning),
    **dict.fromkeys(
        ("tool_use", "server_tool_use", "mcp_tool_use", "function_call", "custom_tool_call", "mcp_call"), _block_call
    ),
    **dict.fromkeys(("tool_result", "function_call_output", "custom_tool_call_output"), _block_result),
    **dict.fromkeys(("image", "image_url", "input_image"), _block_image),
    **dict.fromkeys(("document", "file", "input_file", "input_audio", "audio"), _block_file),
    "message": _block_item,
}


def _text(text: str, pointer: str, kind: str) -> Part:
    cut = len(text) > CUT
    shown = text[:CUT] if cut else text
    html = markdown.render(text) if kind == "text" and not cut else None
    return Part(kind, shown, html, pointer=pointer, size=len(text.encode("utf-8", "replace")), cut=cut)


def _json(value: Any, pointer: str, title: str = "") -> Part:
    text = dump(value)
    return Part("json", text[:CUT], title=title, pointer=pointer, size=len(text), cut=len(text) > CUT)


def _chat_call(call: Any, pointer: str) -> Part:
    if not isinstance(call, dict):
        return _json(call, pointer, "tool call")
    inner = call.get("function") if isinstance(call.get("function"), dict) else call.get("custom")
    inner = inner if isinstance(inner, dict) else {}
    given = inner.get("arguments", inner.get("input"))
    return _call(str(inner.get("name") or "?"), given, str(call.get("id") or ""), pointer)


def _call(name: str, given: Any, ident: str, pointer: str) -> Part:
    """A call of a tool; arguments that are no JSON are shown as the text they are, and said so."""
    text = given if isinstance(given, str) else dump(given)
    note = ""
    if isinstance(given, str) and given:
        try:
            json.loads(given)
        except (ValueError, RecursionError):
            note = "arguments are not valid JSON"
    return Part(
        "call",
        "" if given is None else text[:CUT],
        title=name,
        id=ident,
        note=note,
        pointer=pointer,
        size=len(text),
        cut=len(text) > CUT,
    )


def _result(block: Mapping[str, Any], content: Any, pointer: str, ident: str, depth: int = 0) -> Part:
    part = Part("result", id=ident, title=str(block.get("name") or ""), pointer=pointer, size=jsonview.size_of(content))
    if block.get("is_error") is True:
        part.note = "error"
    if isinstance(content, str):
        part.text, part.cut = content[:CUT], len(content) > CUT
    elif depth < NESTED:
        part.parts = list(_parts(content, pointer, depth=depth + 1))
    else:
        part.parts = [_json(content, pointer)]
    return part


def _tools(tools: Any) -> Iterator[dict[str, Any]]:
    if not isinstance(tools, list):
        return
    for n, tool in enumerate(tools):
        inner = tool.get("function") if isinstance(tool, dict) and isinstance(tool.get("function"), dict) else tool
        if not isinstance(inner, dict):
            yield {"name": preview(tool), "description": "", "pointer": f"/tools/{n}"}
            continue
        name = inner.get("name") or inner.get("type") or "?"
        about = inner.get("description")
        yield {"name": str(name), "description": about if isinstance(about, str) else "", "pointer": f"/tools/{n}"}


def pair(
    bodies: Sequence[Body],
    tools: Mapping[str, Mapping[str, Any]],
    outputs: Callable[[Sequence[str]], Mapping[str, Any]],
) -> None:
    """Give each tool call the scope that ran for it, by tool call id, and the first words of what it gave back.

    Args:
        tools: scopes of the turn by tool call id.
        outputs: what tool scopes gave back, by their uuids; asked once.
    """
    ran = [part for body in bodies for part in _paired(body, tools)[:LOOKED_UP]]
    found = outputs(list({str(part.tool["uuid"]) for part in ran if part.tool}))
    for part in ran:
        value = found.get(str(part.tool["uuid"])) if part.tool else None
        text = value if isinstance(value, str) else "" if value is None else dump(value)
        part.outcome = " ".join(text[:400].split())[:200]


def _paired(body: Body, tools: Mapping[str, Mapping[str, Any]]) -> list[Part]:
    """The tool calls of a body that have a scope, now with it."""
    found, stack = [], [part for message in body.messages for part in message.parts]
    while stack:
        part = stack.pop()
        stack += part.parts
        if part.kind == "call" and part.id in tools:
            part.tool = tools[part.id]
            found.append(part)
    return found


__all__ = ["Body", "Message", "Part", "last_of", "pair", "preview", "request", "response"]
