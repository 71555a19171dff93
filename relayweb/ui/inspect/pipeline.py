"""The way of one request: what the app sent, each intercept, what the provider got; and any two of these compared."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from relayweb.ui import formats
from relayweb.ui.inspect import structure
from relayweb.ui.inspect.jsonview import MAX_LINES, Line, dump, lines_of, size_of

TEXT_LIMIT = 400_000
"""Characters of JSON up to which two stages are compared as text."""


_ICONS = {
    "app": "app",
    "provider": "cloud",
    "earlier": "undo",
    "miss": "rewrite-o",
    "shadow": "rewrite-s",
    "stop": "blocked",
    "held": "blocked",
}


@dataclass
class Stage:
    """One station. `kind` is earlier, app, hit, miss, shadow, stop, provider, held."""

    index: int
    kind: str
    name: str
    body: Any
    key: str = ""
    revision: int | None = None
    first: str = ""
    second: str = ""
    patch: list[Any] = field(default_factory=list)
    problem: str = ""
    author: str = ""
    """Who published the revision."""

    @property
    def icon(self) -> str:
        return _ICONS.get(self.kind, "rewrite")

    @property
    def css(self) -> str:
        return self.kind if self.kind in ("hit", "miss", "shadow", "stop") else ""


def _counted(body: Any) -> str:
    size = formats.size(size_of(body))
    for key in ("messages", "input"):
        if isinstance(body, dict) and isinstance(body.get(key), list):
            count = len(body[key])
            return f"{size}, {count} message{'s' if count != 1 else ''}"
    return size


def _signed(octets: int) -> str:
    return ("+" if octets > 0 else "−") + formats.size(abs(octets))


class Pipeline:
    """Stages of one request.

    Args:
        recorded: the stages of `bodies.rewrites`.
        request: what `bodies.request` tells, for escaped values.
        earlier_body: what the provider got in the attempt before, to compare with, or None.
        earlier: that attempt, with what it is `called`.
    """

    def __init__(
        self,
        recorded: Sequence[Mapping[str, Any]],
        request: Mapping[str, Any],
        earlier_body: Any,
        earlier: Mapping[str, Any] | None,
    ) -> None:
        self.request = request
        self.stages: list[Stage] = []
        if earlier is not None:
            name = f"{earlier['called']} got"
            self._add(
                "earlier", name, earlier_body, first=str(earlier.get("model") or ""), second=_counted(earlier_body)
            )
        for stage in recorded:
            self._take(stage)

    def _add(self, kind: str, name: str, body: Any, **more: Any) -> None:
        self.stages.append(Stage(len(self.stages), kind, name, body, **more))

    def _take(self, stage: Mapping[str, Any]) -> None:
        name = stage.get("name")
        if name == "app":
            model = stage["body"].get("model") if isinstance(stage["body"], dict) else None
            self._add("app", "App sent", stage["body"], first=str(model or ""), second=_counted(stage["body"]))
        elif name == "held":
            self._add("held", "Never sent", stage["body"], first="held back", second=_counted(stage["body"]))
        elif name == "provider":
            escaped = len(self.request.get("escaped") or ())
            said = f"{escaped} value{'s' if escaped != 1 else ''} escaped" if escaped else self._change(stage["body"])
            self._add("provider", "Provider got", stage["body"], first=said, second=_counted(stage["body"]))
        else:
            self._intercept(stage)

    def _change(self, body: Any) -> str:
        first = next((s for s in self.stages if s.kind == "app"), None)
        if first is None:
            return ""
        if structure.canonical(first.body) == structure.canonical(body):
            return "as sent"
        return f"{_signed(size_of(body) - size_of(first.body))} against the app"

    def _intercept(self, stage: Mapping[str, Any]) -> None:
        result, mode = str(stage.get("result") or "?"), stage.get("mode")
        shadow = mode == "shadow"
        kind = "shadow" if shadow and result != "miss" else {"hit": "hit", "miss": "miss"}.get(result, "stop")
        before, after = stage.get("bytes_before"), stage.get("bytes_after")
        change = after - before if isinstance(before, int) and isinstance(after, int) else 0
        patch, headers = ([*found] if isinstance(found := stage.get(k), list) else [] for k in ("patch", "headers"))
        said = [f"{'shadow, ' if shadow else ''}{result}"]
        if result == "hit":
            count = len(patch) + len(headers)
            said.append(f"{count} change{'s' if count != 1 else ''}")
        elif stage.get("reason"):
            said.append(str(stage["reason"]))
        elif stage.get("error"):
            said.append(str(stage["error"]))
        took = stage.get("duration_us")
        second = [f"r{stage['revision']}" if stage.get("revision") is not None else "not ours"]
        if isinstance(took, int | float) and math.isfinite(took):
            second.append(formats.duration(took))
        if change:
            second.append(_signed(change))
        if shadow and result == "hit":
            second.append("not applied")
        self._add(
            kind,
            str(stage.get("key") or "?"),
            stage.get("body"),
            key=str(stage.get("key") or "?"),
            revision=stage.get("revision"),
            first=", ".join(said),
            second=", ".join(second),
            patch=[*patch, *({"op": "header", "path": str(h)} for h in headers)],
            problem=str(stage.get("problem") or ""),
        )

    def picks(self, a: str | None, b: str | None) -> tuple[int, int]:
        """Which two stages are compared: the ends unless told otherwise."""
        last = len(self.stages) - 1

        def number(text: str | None, default: int) -> int:
            return min(int(text), last) if text is not None and text.isdecimal() else default

        return number(a, 0), number(b, last)

    def compare(self, a: int, b: int, how: str) -> structure.Difference:
        """What changed from one stage to the other, as structure, as text, or as the patches in between."""
        if not self.stages:
            return structure.Difference([], 0, 0)
        if how == "patch":
            return self._patches(a, b)
        before, after = self.stages[a], self.stages[b]
        if how == "text":
            return _text_difference(before.body, after.body)
        if after.kind == "shadow" and b == a + 1:
            return self._patches(a, b)
        return structure.difference(before.body, after.body)

    def _patches(self, a: int, b: int) -> structure.Difference:
        lines: list[Line] = []
        changes = 0
        for stage in self.stages[min(a, b) + 1 : max(a, b) + 1]:
            if stage.key:
                what = "would have changed" if stage.kind == "shadow" else "changed"
                said = f"{stage.key}: {len(stage.patch)} {what}" if stage.patch else f"{stage.key}: nothing"
                lines.append(_note(said))
                lines += [line for op in stage.patch for line in lines_of(op, 60)[0]]
                changes += len(stage.patch)
                if stage.problem:
                    lines.append(_note(f"The patch does not fit what was recorded: {stage.problem}"))
        if not lines:
            lines = [_note("No intercept ran between these two.")]
        return structure.Difference(lines[:MAX_LINES], changes, max(0, len(lines) - MAX_LINES))

    def blamed(self) -> structure.Difference:
        """What the provider got, with the intercept to blame for each changed part."""
        ours = [s for s in self.stages if s.kind != "earlier" and s.kind != "shadow"]
        if not ours:
            return structure.Difference([], 0, 0)
        root = structure.blame([s.body for s in ours])
        told = structure.blamed_lines(root)
        # What changed after the last intercept is nobody's: the overlay puts it there; such lines carry no name.
        named = {n: s.index for n, s in enumerate(ours) if s.key}
        told.lines = [replace(line, by=named.get(line.by) if line.by is not None else None) for line in told.lines]
        told.changes = sum(1 for line in told.lines if line.first and line.by is not None)
        return told

    @property
    def was_held(self) -> bool:
        """Whether the request never reached the provider."""
        return any(s.kind == "held" for s in self.stages)

    @cached_property
    def untouched(self) -> bool:
        return not any(s.kind in ("hit", "stop") for s in self.stages)


def _note(text: str) -> Line:
    return Line(0, (("x", text),), mark="fold")


def _text_difference(before: Any, after: Any) -> structure.Difference:
    old, new = dump(before, indent=2), dump(after, indent=2)
    if len(old) + len(new) > TEXT_LIMIT:
        return structure.Difference([_note("Too long to compare as text; see Structure.")], 0, 0)
    lines: list[Line] = []
    changes = 0
    for text in difflib.unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=2):
        if text.startswith(("---", "+++")):
            continue
        mark = {"+": "add", "-": "del", "@": "fold"}.get(text[:1], "")
        changes += mark in ("add", "del")
        lines.append(Line(0, (("x", text if mark == "fold" else text[1:]),), mark=mark))
    if not lines:
        lines = [_note("No difference.")]
    return structure.Difference(lines[:MAX_LINES], changes, max(0, len(lines) - MAX_LINES))
