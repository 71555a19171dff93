"""Every action on any body: it never raises, never changes the app's body, and its patches lead to what is sent."""

from __future__ import annotations

import copy
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters import json_patch
from adapters.intercepts import ACTIONS, RuleSet, failures, preview
from adapters.json_values import same
from tests.adapters.relay_calls import MODES, body, text

SAMPLES: list[dict[str, Any]] = [
    {"type": "set_parameters", "parameters": {"temperature": 0.1, "reasoning.effort": "low", "metadata.a.b": None}},
    {"type": "set_parameters", "parameters": {"top_k": 5, "n": 2}, "only_if_absent": True},
    {"type": "remove_parameters", "names": ["tools", "metadata.u", "reasoning.effort", "top_k", "n"]},
    {"type": "swap_model", "model": "other"},
    *({"type": "system_text", "where": w, "text": "Be brief."} for w in ("prepend", "append", "replace")),
    {"type": "regex_replace", "pattern": "[aeiou]", "replacement": "_"},
    {"type": "regex_replace", "pattern": "o", "replacement": "0", "roles": ["tool", "assistant"]},
    *({"type": "tools", "mode": m, "names": n} for m in ("keep", "drop") for n in (["read"], ["*"], ["nope"])),
    *({"type": "trim_history", "keep_turns": n, "keep_first": f} for n in (1, 2) for f in (True, False)),
    *({"type": "trim_history", "keep_messages": n, "keep_first": f} for n in (1, 3) for f in (True, False)),
    {"type": "json_patch", "patch": [
        {"op": "test", "path": "/model", "value": "m"}, {"op": "add", "path": "/x", "value": 1}
    ]},
    {"type": "headers", "set": {"x-a": "1"}, "remove": ["x-b"]},
    {"type": "redact", "paths": ["$..text", "$.messages[*].content"], "pii": ["email", "phone"], "patterns": ["i+"]},
    {"type": "block", "message": "no"},
    {"type": "respond", "text": "canned", "tool": "f"},
    {"type": "fault", "status": 500},
    {"type": "fault", "cut_after": 1},
]  # fmt: skip

MEMBERS = (
    "messages",
    "input",
    "tools",
    "system",
    "instructions",
    "tool_choice",
    "model",
    "metadata",
    "extra_body",
    "stream_options",
)
JUNK = [
    None,
    True,
    0,
    2**70,
    1.5,
    "",
    "text \ud83d",
    [],
    [None],
    ["x", 5, {}],
    {},
    {"type": "text"},
    [[["deep"]]],
    {"a": {"b": []}},
]
ITEMS = [
    {"role": "user"}, {"role": "user", "content": None}, {"role": "tool"}, {"role": 5, "content": {}},
    {"role": "assistant", "tool_calls": "x"}, {"role": "assistant", "tool_calls": [None, {"id": []}]},
    {"type": "function_call"}, {"type": "function_call_output"}, {"type": ["x"]}, {"role": ["user"], "content": "x"},
    {"role": "user", "content": [{"type": "tool_result"}, {"type": "text", "text": 5}, None]},
    {"role": "system", "content": [None, {"type": "text", "cache_control": None}]}, {"role": "system", "content": 7},
]  # fmt: skip


def odd_body(api_mode: str, rng: random.Random) -> dict[str, Any]:
    request = body(api_mode)
    for _ in range(rng.randint(0, 3)):
        request[rng.choice(MEMBERS)] = copy.deepcopy(rng.choice(JUNK))
    for name in ("messages", "input"):
        if isinstance(request.get(name), list):
            for _ in range(rng.randint(0, 3)):
                request[name].insert(rng.randint(0, len(request[name])), copy.deepcopy(rng.choice([*ITEMS, *JUNK])))
    return request


def test_there_is_a_sample_of_every_action() -> None:
    assert {sample["type"] for sample in SAMPLES} == set(ACTIONS)


@pytest.mark.parametrize("api_mode", MODES)
@given(seed=st.integers(0, 2**32), chosen=st.lists(st.sampled_from(range(len(SAMPLES))), min_size=1, max_size=5))
def test_no_action_stumbles(api_mode: str, seed: int, chosen: list[int]) -> None:
    request = odd_body(api_mode, random.Random(seed))
    before = text(request)
    configs = [{"key": f"k{i}", "priority": i, "action": SAMPLES[n]} for i, n in enumerate(chosen)]
    redacts = any(SAMPLES[n]["type"] == "redact" for n in chosen)
    rewrites, sent, _ = preview(RuleSet.parse(configs), request, api_mode=api_mode, stream=True)
    assert text(request) == before
    assert [r.get("error") for r in rewrites if r["result"] == "error"] == []
    if not redacts and "\\ud83d" not in before and str(2**70) not in before:
        stage: Any = request
        for rewrite in rewrites:
            stage = json_patch.apply(stage, rewrite["patch"])
        assert same(stage, sent)
    failures.clear()
