"""Setting and removing parameters."""

from __future__ import annotations

from typing import Any

import pytest

from adapters.intercepts import Rule, RuleError
from tests.adapters.relay_calls import MODES, body, rules, run, text

each_mode = pytest.mark.parametrize("api_mode", MODES)
each_way = pytest.mark.parametrize("stream", [False, True], ids=["buffered", "streamed"])


def setting(only_if_absent: bool = False, **parameters: Any) -> dict[str, Any]:
    action = {"type": "set_parameters", "parameters": parameters, "only_if_absent": only_if_absent}
    return {"key": "s", "action": action}


@each_way
@each_mode
async def test_a_set_parameter_changes_in_place_and_a_new_one_comes_last(api_mode: str, stream: bool) -> None:
    with rules(setting(temperature=0, seed=2**64)):
        done = await run(request := body(api_mode), api_mode, stream=stream)
    assert text(done.sent_body) == text({**request, "temperature": 0, "seed": 2**64})
    (mark,) = done.rewrites
    verb = "replace" if "temperature" in request else "add"
    assert mark["patch"] == [
        {"op": verb, "path": "/temperature", "value": 0},
        {"op": "add", "path": "/seed", "value": {"$int": str(2**64)}},
    ]
    assert mark["bytes_after"] - mark["bytes_before"] > 20


async def test_an_equal_value_of_another_json_type_is_a_change() -> None:
    with rules(setting(top_p=1.0)):
        done = await run(body("chat_completions"), "chat_completions")
    assert type(done.sent["top_p"]) is float and done.rewrites[0]["result"] == "hit"


@each_mode
async def test_a_parameter_that_has_the_value_already_is_a_miss(api_mode: str) -> None:
    request = body(api_mode, temperature=0.5)
    with rules(setting(temperature=0.5)):
        done = await run(request, api_mode)
    assert text(done.sent_body) == text(request)
    assert (done.rewrites[0]["result"], done.rewrites[0]["patch"]) == ("miss", [])


@each_mode
async def test_only_if_absent_leaves_what_the_app_said(api_mode: str) -> None:
    request = body(api_mode, temperature=None)
    with rules(setting(only_if_absent=True, temperature=0.9, seed=4)):
        done = await run(request, api_mode)
    assert text(done.sent_body) == text({**request, "seed": 4})


async def test_a_dot_goes_into_an_object_and_makes_it_where_it_is_missing() -> None:
    with rules(setting(**{"reasoning.effort": "high", "text.format.type": "text"})):
        done = await run(request := body("codex_responses"), "codex_responses")
    assert text(done.sent_body) == text(
        {**request, "reasoning": {"effort": "high"}, "text": {"format": {"type": "text"}}}
    )


async def test_a_parameter_the_sdk_was_given_in_extra_body_changes_there() -> None:
    with rules(setting(top_k=9), {"key": "z", "action": {"type": "remove_parameters", "names": ["top_k"]}}):
        done = await run(body("chat_completions"), "chat_completions")
    assert done.sent["extra_body"] == {} and "top_k" not in done.sent
    assert done.rewrites[0]["patch"] == [{"op": "replace", "path": "/extra_body/top_k", "value": 9}]


@each_way
@each_mode
async def test_removed_parameters_are_gone_and_nothing_else(api_mode: str, stream: bool) -> None:
    names = ["temperature", "tools", "metadata.user_id", "reasoning.effort", "nowhere.at.all"]
    with rules({"key": "r", "action": {"type": "remove_parameters", "names": names}}):
        done = await run(request := body(api_mode), api_mode, stream=stream)
    wanted = {k: v for k, v in request.items() if k not in ("temperature", "tools")}
    if api_mode == "anthropic_messages":
        wanted["metadata"] = {}
    if api_mode == "codex_responses":
        wanted["reasoning"] = {}
    assert text(done.sent_body) == text(wanted)


@pytest.mark.parametrize(
    "action, field, says",
    [
        ({"type": "set_parameters"}, "action.parameters", "is required"),
        ({"type": "set_parameters", "parameters": {}}, "action.parameters", "must not be empty"),
        ({"type": "set_parameters", "parameters": [1]}, "action.parameters", "must be a JSON object, not a list"),
        ({"type": "set_parameters", "parameters": {"a..b": 1}}, "action.parameters", "'a..b' is no parameter name"),
        ({"type": "set_parameters", "parameters": {"messages": []}}, "action.parameters", "is the conversation"),
        ({"type": "set_parameters", "parameters": {"model": 5}}, "action.parameters", "model must be text"),
        (
            {"type": "set_parameters", "parameters": {"a": 1}, "only_if_absent": "yes"},
            "action.only_if_absent",
            "true or false",
        ),
        (
            {"type": "set_parameters", "parameters": {"a": 1}, "nmae": 1},
            "action.nmae",
            "is not a field of set_parameters",
        ),
        ({"type": "remove_parameters", "names": []}, "action.names", "must not be empty"),
        ({"type": "remove_parameters", "names": ["model"]}, "action.names", "cannot be removed"),
        ({"type": "remove_parameters", "names": [5]}, "action.names", "entry 1 must be a text"),
    ],
)
def test_wrong_values_name_their_field(action: dict[str, Any], field: str, says: str) -> None:
    with pytest.raises(RuleError) as error:
        Rule.parse({"key": "k", "action": action})
    assert error.value.field == field and says in error.value.message
