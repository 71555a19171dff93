"""Pieces of a message: text, reasoning, tool calls and results, pictures and files, whatever format they came in.

One reader for all wire formats, by shape and not by declared format: what people record is often a mixture. What it
cannot place is shown as JSON, never dropped, and nothing that was recorded makes it raise.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from django.utils.safestring import SafeString

from relayweb.ui.inspect import jsonview, markdown
from relayweb.ui.inspect.jsonview import dump

PICTURES = frozenset(("image/png", "image/jpeg", "image/gif", "image/webp"))
"""Types of pictures that are shown: such as can hold no script."""
CUT = 6_000
"""Characters of a text that are shown before it is cut."""
BLOCKS = 500
"""Blocks of one content that are told one by one."""
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


def preview(value: Any, room: int = 60) -> str:
    """A value in a few characters: `null`, `{…} 2 members`, `"text…"`."""
    if isinstance(value, dict) and value:
        return f"{{…}} {len(value)} member{'s' if len(value) != 1 else ''}"
    if isinstance(value, list) and value:
        return f"[…] {len(value)} item{'s' if len(value) != 1 else ''}"
    text = dump(value)
    return text if len(text) <= room else text[: room - 1] + "…"


def of_message(item: dict[str, Any], pointer: str, role: str) -> tuple[list[Part], set[str]]:
    """What a message holds, and the names of the members that hold it."""
    made: list[Part] = []
    placed = {"content", "refusal"}
    for key in ("reasoning_content", "reasoning", "thinking"):
        if isinstance(item.get(key), str) and item[key]:
            made.append(_text(item[key], f"{pointer}/{key}", "reasoning"))
            placed.add(key)
            break
    content = item.get("content")
    if role in ("tool", "function"):
        made.append(_result(item, content, f"{pointer}/content", str(item.get("tool_call_id") or "")))
    else:
        made += read(content, f"{pointer}/content")
    if isinstance(item.get("refusal"), str) and item["refusal"]:
        made.append(_text(item["refusal"], f"{pointer}/refusal", "text", note="refusal"))
    calls = item.get("tool_calls")
    if isinstance(calls, list):
        made += [_chat_call(call, f"{pointer}/tool_calls/{n}") for n, call in enumerate(calls)]
        placed.add("tool_calls")
    if isinstance(item.get("function_call"), dict):
        made.append(_chat_call({"function": item["function_call"]}, f"{pointer}/function_call"))
        placed.add("function_call")
    return made, placed


def is_result(item: Any) -> bool:
    """Whether `read` makes the result of a tool of this item."""
    kind = item.get("type") if isinstance(item, dict) else None
    if not isinstance(kind, str):
        return False
    return _BLOCKS.get(kind, _block_result if kind.endswith(_RESULTS) else None) is _block_result


def read(content: Any, pointer: str, *, single: bool = False, depth: int = 0) -> Iterator[Part]:
    """The parts of a content, which is a text, a block or a list of them."""
    if content is None or content == "" or content == []:
        return
    if isinstance(content, str):
        yield _text(content, pointer, "text")
    elif isinstance(content, list):
        for n, block in enumerate(content[:BLOCKS]):
            at = pointer if single else f"{pointer}/{n}"
            if isinstance(block, str):
                yield _text(block, at, "text")
            elif isinstance(block, dict) and isinstance(block.get("type"), str):
                yield from _block(block, at, depth)
            else:
                yield _json(block, at)
        if len(content) > BLOCKS:
            title = f"{len(content) - BLOCKS} more"
            yield Part("json", preview(content), title=title, pointer=pointer, size=jsonview.size_of(content), cut=True)
    elif isinstance(content, dict) and isinstance(content.get("type"), str):
        yield from _block(content, pointer, depth)
    else:
        yield _json(content, pointer)


def _block(block: dict[str, Any], pointer: str, depth: int) -> Iterator[Part]:
    kind: str = block["type"]
    reader = _BLOCKS.get(kind)
    if reader:
        yield reader(block, pointer, depth)
    elif kind.endswith(_RESULTS):
        yield _result(block, block.get("content", block.get("output")), f"{pointer}/content", _ident(block), depth)
    elif kind.endswith("_call"):
        part = _call(kind.removesuffix("_call"), block.get("action", block.get("arguments")), _ident(block), pointer)
        part.note = "server tool"
        yield part
    else:
        yield _json(block, pointer, kind)


_RESULTS = ("_tool_result", "_call_output")


def _ident(block: Mapping[str, Any]) -> str:
    return str(block.get("call_id") or block.get("tool_use_id") or block.get("tool_call_id") or block.get("id") or "")


def _block_text(block: dict[str, Any], pointer: str, depth: int) -> Part:
    key = "refusal" if block["type"] == "refusal" else "text"
    value = block.get(key)
    if not isinstance(value, str):
        return _json(block, pointer, block["type"])
    part = _text(value, f"{pointer}/{key}", "text", note="refusal" if key == "refusal" else "")
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
    return Part("group", parts=of_message(block, pointer, "assistant")[0], pointer=pointer)


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


def _text(text: str, pointer: str, kind: str, note: str = "") -> Part:
    cut = len(text) > CUT
    shown = text[:CUT] if cut else text
    html = markdown.render(text) if kind == "text" and not cut else None
    size = len(text.encode("utf-8", "replace"))
    return Part(kind, shown, html, pointer=pointer, note=note, size=size, cut=cut)


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
        part.parts = list(read(content, pointer, depth=depth + 1))
    else:
        part.parts = [_json(content, pointer)]
    return part


__all__ = ["PICTURES", "Part", "is_result", "of_message", "preview", "read"]
