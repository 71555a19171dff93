"""Train the record's zstd dictionaries: `python -m bench.train_dictionaries VERSION ATOF_FILE…`.

The event dictionary learns the envelopes of the given streams (their own texts are taken out first); the content
dictionary learns from this project's own sources and papers, dressed as messages of the three wire formats. A
dictionary that has been released never changes: give a new VERSION and let `compression.Codec` name it.
"""

from __future__ import annotations

import json
import os
import random
import re
import sys
from pathlib import Path

import zstandard

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "relayweb.settings")

from relayweb.recording.events.atof import parse
from relayweb.recording.store import content, pieces

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "relayweb" / "recording" / "store" / "dictionaries"


def _identity(text: bytes) -> bytes:
    return text


def event_samples(paths: list[Path]) -> list[bytes]:
    """Skeletons of events, and the same under this project's own names."""
    samples = []
    for path in paths:
        store = content.Store()
        for line in path.read_bytes().split(b"\n"):
            if not line.strip():
                continue
            for variant in (line, line.replace(b"hermes.", b"relay.")):
                event = parse(variant)
                packed = store.pack(event)
                bare = pieces.Packed(packed.line, packed.text, [], False)
                samples.append(pieces.encode_event(event, bare, _identity)[1:])
        store.rolled_back()
    return samples


def content_samples() -> list[bytes]:
    """Pieces of our own files as messages, tool calls, results and schemas."""
    rng = random.Random(7)
    samples = []
    files = [
        p for pattern in ("relayweb/**/*.py", "adapters/*.py", "docs/*.md", "tests/**/*.py") for p in ROOT.glob(pattern)
    ]
    for path in files:
        text = path.read_text()
        lines = text.split("\n")
        for start in range(0, len(lines), 25):
            part = "\n".join(lines[start : start + rng.randint(3, 30)])
            call = f"call_{rng.getrandbits(60):x}"
            arguments = json.dumps({"path": str(path.relative_to(ROOT)), "content": part})
            function = {
                "arguments": arguments,
                "name": rng.choice(["write_file", "read_file", "terminal", "search", "edit_file"]),
            }
            samples += [
                _dump({"content": part, "role": "user"}),
                _dump({"content": part, "role": "tool", "tool_call_id": call}),
                _dump(
                    {
                        "content": None,
                        "role": "assistant",
                        "tool_calls": [{"function": function, "id": call, "type": "function"}],
                    }
                ),
                _dump({"content": [{"text": part, "type": "text"}], "role": "assistant"}),
                _dump({"content": [{"content": part, "tool_use_id": call, "type": "tool_result"}], "role": "user"}),
                _dump(part),
            ]
    names = sorted({w for p in files for w in re.findall(r"[a-z_]{4,14}", p.read_text())})
    for _ in range(300):
        properties = {
            rng.choice(names): {
                "description": " ".join(rng.choices(names, k=8)),
                "type": rng.choice(["string", "integer", "boolean", "array"]),
            }
            for _ in range(4)
        }
        parameters = {"properties": properties, "required": [next(iter(properties))], "type": "object"}
        samples.append(
            _dump(
                [
                    {
                        "function": {
                            "description": " ".join(rng.choices(names, k=14)),
                            "name": rng.choice(names),
                            "parameters": parameters,
                        },
                        "type": "function",
                    }
                ]
            )
        )
    return samples


def _dump(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def main() -> None:
    version, *paths = sys.argv[1:]
    for kind, samples, size in (
        ("event", event_samples([Path(p) for p in paths]), 12_000),
        ("content", content_samples(), 48_000),
    ):
        dictionary = zstandard.train_dictionary(size, [*samples], level=3)
        (OUT / f"{kind}.{version}.zdict").write_bytes(dictionary.as_bytes())
        print(kind, len(samples), "samples,", len(dictionary.as_bytes()), "bytes")


if __name__ == "__main__":
    main()
