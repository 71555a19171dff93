"""Events of the Responses API to one response."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from adapters.accumulators.base import RECORDED, combined, gathered, grown, index_of, settled

_UNPLACED = 1 << 20  # beyond any index that a stream tells
_MOST_PARTS = 10_000


class ResponsesStreamAccumulator:
    """Events of the Responses API to one `response`: the terminal event's object, else what the deltas add up to."""

    _TERMINAL = frozenset({"response.completed", "response.incomplete", "response.failed", "response.done"})

    def __init__(self) -> None:
        self._response: dict[str, Any] = {}
        self._items: dict[int, dict[str, Any]] = {}
        self._places: dict[str, int] = {}  # of items that came without an index, by id
        self._terminal = False

    def observe(self, chunk: Any) -> None:
        if not isinstance(chunk, Mapping):
            return
        kind = chunk.get("type")
        if not isinstance(kind, str):
            return
        if isinstance(chunk.get("response"), Mapping) and kind.startswith("response."):
            self._terminal = self._terminal or kind in self._TERMINAL
            self._response.update(chunk["response"])
            return
        if kind == "error":
            self._response["error"] = {k: v for k, v in chunk.items() if k not in ("type", "sequence_number")}
            return
        index = index_of(chunk.get("output_index"))
        if index is None:  # some servers tell only the item's id
            index = self._index_by_id(chunk)
        if index is not None:
            self._item_event(kind, index, chunk)

    def _index_by_id(self, chunk: Mapping[str, Any]) -> int | None:
        item = chunk.get("item")
        id = item.get("id") if isinstance(item, Mapping) else chunk.get("item_id")
        if not isinstance(id, str):
            return None
        return self._places.setdefault(id, _UNPLACED + len(self._places))

    def _item_event(self, kind: str, index: int, chunk: Mapping[str, Any]) -> None:
        if kind in ("response.output_item.added", "response.output_item.done"):
            if isinstance(chunk.get("item"), Mapping):
                self._items[index] = dict(chunk["item"])
            return
        item = self._items.setdefault(index, _new_item(kind, chunk))
        part, delta = chunk.get("part"), chunk.get("delta")
        if kind.startswith("response.content_part.") and isinstance(part, Mapping):
            _put(item, "content", index_of(chunk.get("content_index")) or 0, part)
        elif kind.startswith("response.reasoning_summary_part.") and isinstance(part, Mapping):
            _put(item, "summary", index_of(chunk.get("summary_index")) or 0, part)
        elif kind in ("response.output_text.annotation.added",):
            target = _part(item, "content", index_of(chunk.get("content_index")) or 0, "output_text")
            target["annotations"] = gathered(target.get("annotations"), [chunk.get("annotation")])
        elif kind.endswith(".delta") and isinstance(delta, str):
            self._text(kind, item, chunk, delta, append=True)
        elif kind.endswith(".done"):
            self._text(kind, item, chunk, _first_text(chunk), append=False)

    def _text(
        self, kind: str, item: dict[str, Any], chunk: Mapping[str, Any], text: str | None, *, append: bool
    ) -> None:
        if text is None:
            return
        where = _TEXT_PLACES.get(kind.removeprefix("response.").rpartition(".")[0])
        if where is None:
            return
        member, part_type, field = where
        target = item
        if part_type is not None:
            number = chunk.get("summary_index") if member == "summary" else chunk.get("content_index")
            target = _part(item, member, index_of(number) or 0, part_type)
        target[field] = grown(target.get(field), text) if append else text

    def finalize(self) -> dict[str, Any]:
        return self._build(RECORDED)

    def _build(self, most: int | None) -> dict[str, Any]:
        out: dict[str, Any] = {"object": "response", **self._response}
        items = [settled(self._items[i]) for i in sorted(self._items)[:most]]
        if items and not (self._terminal and out.get("output")):
            out["output"] = items
        out.setdefault("output", [])
        return out

    def response(self, base: Mapping[str, Any] | None = None) -> dict[str, Any]:
        return combined(base, self._build(None))


_TEXT_PLACES: dict[str, tuple[str, str | None, str]] = {
    "output_text": ("content", "output_text", "text"),
    "refusal": ("content", "refusal", "refusal"),
    "reasoning_text": ("content", "reasoning_text", "text"),
    "reasoning_summary_text": ("summary", "summary_text", "text"),
    "function_call_arguments": ("", None, "arguments"),
    "custom_tool_call_input": ("", None, "input"),
    "mcp_call_arguments": ("", None, "arguments"),
    "code_interpreter_call_code": ("", None, "code"),
}


def _new_item(kind: str, chunk: Mapping[str, Any]) -> dict[str, Any]:
    place = kind.removeprefix("response.").partition(".")[0]
    types = {
        "function_call_arguments": "function_call",
        "custom_tool_call_input": "custom_tool_call",
        "mcp_call_arguments": "mcp_call",
        "code_interpreter_call_code": "code_interpreter_call",
    }
    item: dict[str, Any] = {"type": "reasoning" if place.startswith("reasoning") else types.get(place, "message")}
    if isinstance(chunk.get("item_id"), str):
        item["id"] = chunk["item_id"]
    return item


def _first_text(chunk: Mapping[str, Any]) -> str | None:
    for name in ("text", "refusal", "arguments", "input", "code"):
        if isinstance(chunk.get(name), str):
            return str(chunk[name])
    return None


def _part(item: dict[str, Any], member: str, index: int, part_type: str) -> dict[str, Any]:
    parts = item.get(member)
    if not isinstance(parts, list) or index >= len(parts) or not isinstance(parts[index], dict):
        _put(item, member, index, {"type": part_type})
    found: dict[str, Any] = item[member][index]
    return found


def _put(item: dict[str, Any], member: str, index: int, part: Mapping[str, Any]) -> None:
    parts = item.get(member)
    parts = list(parts) if isinstance(parts, list) else []
    if not 0 <= index <= min(len(parts) + 64, _MOST_PARTS):
        return
    while len(parts) <= index:
        parts.append({})
    parts[index] = dict(part)
    item[member] = parts
