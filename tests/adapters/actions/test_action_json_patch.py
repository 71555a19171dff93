"""JSON Patch as an action."""

from __future__ import annotations

import time
from typing import Any

import pytest

from adapters.intercepts import Rule, RuleError
from tests.adapters.relay_calls import MODES, body, rules, run, text

each_mode = pytest.mark.parametrize("api_mode", MODES)
each_way = pytest.mark.parametrize("stream", [False, True], ids=["buffered", "streamed"])


def patch(*operations: Any, **more: Any) -> dict[str, Any]:
    return {"key": "p", "action": {"type": "json_patch", "patch": list(operations)}, **more}


@each_way
@each_mode
async def test_the_provider_gets_exactly_the_patched_body(api_mode: str, stream: bool) -> None:
    history = "input" if api_mode == "codex_responses" else "messages"
    operations = [
        {"op": "test", "path": "/model", "value": "m"},
        {"op": "replace", "path": "/tools/0", "value": None},
        {"op": "add", "path": f"/{history}/0", "value": {"role": "user", "content": "zero"}},
        {"op": "remove", "path": f"/{history}/3"},
        {"op": "copy", "from": "/model", "path": "/vendor2"},
    ]
    with rules(patch(*operations)):
        done = await run(request := body(api_mode), api_mode, stream=stream)
    wanted = {**request, "tools": [None, *request["tools"][1:]], "vendor2": "m"}
    wanted[history] = [{"role": "user", "content": "zero"}, *request[history]]
    del wanted[history][3]
    assert text(done.sent_body) == text(wanted)


@each_mode
async def test_a_failed_test_operation_means_not_this_call(api_mode: str) -> None:
    operations = ({"op": "remove", "path": "/model"}, {"op": "test", "path": "/tools/0/nope", "value": 1})
    with rules(patch(*operations)):
        done = await run(request := body(api_mode), api_mode)
    assert text(done.sent_body) == text(request)
    assert done.rewrites[0]["result"] == "miss"


async def test_a_misfit_is_an_error_of_the_rule() -> None:
    with rules(patch({"op": "remove", "path": "/nowhere"})):
        done = await run(request := body("chat_completions"), "chat_completions")
    assert text(done.sent_body) == text(request)
    assert done.rewrites[0]["result"] == "error"
    assert done.rewrites[0]["error"] == "PatchError: /nowhere: there is no member 'nowhere'"


async def test_copies_of_copies_fail_the_rule_and_not_the_process() -> None:
    """Each doubles the body: forty of them are more than any memory holds."""
    doubling = [{"op": "copy", "from": "", "path": f"/copy{i}"} for i in range(40)]
    began = time.process_time()
    with rules(patch(*doubling)):
        done = await run(request := body("chat_completions"), "chat_completions")
    assert time.process_time() - began < 5
    assert text(done.sent_body) == text(request)
    assert "the copies make the document too large" in done.rewrites[0]["error"]


@pytest.mark.parametrize(
    "operations, says",
    [
        ([], "must not be empty"),
        ("text", "must be a list of operations"),
        ([5], "operation 1 must be an object"),
        ([{"op": "test", "path": "", "value": 1}, {"op": "merge", "path": "/a"}], "operation 2: op must be one of add"),
        ([{"op": "add", "path": "/a"}], "operation 1: value is missing"),
        ([{"op": "move", "path": "/a"}], "operation 1: from is missing"),
        ([{"op": "remove"}], "operation 1: path is missing"),
        ([{"op": "remove", "path": "a"}], "must be empty or start with '/'"),
        ([{"op": "copy", "path": "/a", "from": 5}], "operation 1: from must be text"),
        ([{"op": "replace", "path": "", "value": []}], "can only become another object"),
        ([{"op": "remove", "path": ""}], "can only become another object"),
        ([{"op": "remove", "path": "/a"}] * 1001, "has 1001 operations; a patch may have 1000"),
    ],
)
def test_wrong_operations_are_named(operations: Any, says: str) -> None:
    with pytest.raises(RuleError) as error:
        Rule.parse({"key": "k", "action": {"type": "json_patch", "patch": operations}})
    assert error.value.field == "action.patch" and says in error.value.message
