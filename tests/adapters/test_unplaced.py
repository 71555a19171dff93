"""Calls that a fault of ours keeps from the rules: they go out, unless a rule that fails closed is for them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from adapters import coordinator, relay_llm, wire
from adapters.relay_runtime import NoopRelayRuntime, install_runtime
from adapters.runtime_host import RelayRuntime
from tests.adapters.conftest import Conversation, body, call
from tests.adapters.relay_calls import rules

GUARD: dict[str, Any] = {
    "key": "guard",
    "revision": 2,
    "on_error": "closed",
    "match": {"model": ["m"], "api_mode": ["chat_completions"]},
    "action": {"type": "set_parameters", "parameters": {"temperature": 0}},
}
LENIENT = [
    {**GUARD, "on_error": "open"},
    {**GUARD, "enabled": False},
    {**GUARD, "mode": "shadow"},
    {**GUARD, "match": {"model": ["other"]}},
    {**GUARD, "match": {"provider": ["other"]}},
    {**GUARD, "match": {"call_role": ["delegated"]}},
    {**GUARD, "match": {"profile": ["other"]}},
    {**GUARD, "match": {"session": ["other"]}},
]


def broken(*_args: Any, **_kwargs: Any) -> Any:
    raise RuntimeError("the recorder is broken")


@pytest.fixture(params=["no attempt", "no turn", "no session", "no relay"])
def fault(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """A live turn, or a session, in which no call can be managed; gives what more a call takes then."""
    more: dict[str, Any] = {}
    if request.param == "no relay":
        install_runtime(NoopRelayRuntime(profile_key=coordinator.current_profile_key()))
    if request.param == "no turn":
        monkeypatch.setattr(coordinator, "Scope", broken)
    talk = Conversation()
    if request.param == "no attempt":
        monkeypatch.setattr(wire, "ProviderCall", broken)
    if request.param == "no session":
        monkeypatch.setattr(RelayRuntime, "ensure_session", broken)
        more["session_id"] = "session-2"
    yield more
    monkeypatch.undo()
    talk.end()


def execute(request: Any, provider: Any, more: dict[str, Any]) -> Any:
    form = relay_llm.execute if more else relay_llm.execute_current
    return form(request, provider, **call("a"), **more)


def stream(request: Any, provider: Any, more: dict[str, Any]) -> Any:
    form = relay_llm.stream if more else relay_llm.stream_current
    return list(form(request, lambda r: iter([provider(r)]), **call("a"), **more))[0]


@pytest.mark.parametrize("form", [execute, stream])
def test_a_rule_that_fails_closed_refuses_a_call_that_cannot_be_managed(fault: dict[str, Any], form: Any) -> None:
    with rules(GUARD), pytest.raises(relay_llm.CallBlocked, match="intercept guard could not be applied") as caught:
        form(body(), lambda r: pytest.fail("the provider was asked"), fault)
    assert (caught.value.key, caught.value.revision) == ("guard", 2)


async def test_it_refuses_the_asynchronous_forms_as_well(fault: dict[str, Any]) -> None:
    execute_async = relay_llm.execute_async if fault else relay_llm.execute_current_async
    stream_async = relay_llm.stream_async if fault else relay_llm.stream_current_async
    with rules(GUARD):
        for form in (execute_async, stream_async):
            with pytest.raises(relay_llm.CallBlocked):
                await form(body(), lambda r: pytest.fail("the provider was asked"), **call("a"), **fault)


@pytest.mark.parametrize("form", [execute, stream])
def test_without_one_for_it_the_call_goes_out_as_the_app_made_it(fault: dict[str, Any], form: Any) -> None:
    request = body()
    assert form(request, lambda r: r, fault) is request
    for lenient in LENIENT:
        with rules(lenient):
            assert form(request, lambda r: r, fault) is request


def test_where_it_cannot_be_told_which_rules_match_any_of_them_refuses(
    fault: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with rules({**GUARD, "match": {"model": ["other"]}}):
        monkeypatch.setattr("adapters.rules.RuleSet.matching", broken)
        with pytest.raises(relay_llm.CallBlocked):
            execute(body(), lambda r: pytest.fail("the provider was asked"), fault)


def test_what_is_not_to_be_managed_is_not_refused() -> None:
    request = body()
    with rules(GUARD):
        assert execute(request, lambda r: r, {}) is request  # no turn
        talk = Conversation(managed=False)
        assert execute(request, lambda r: r, {}) is request  # no consumer
        talk.host.retain_managed_execution("tests")
        sent = execute(request, lambda r: r, {})
        assert sent is not request and sent["temperature"] == 0
        talk.end()
        assert execute(request, lambda r: r, {}) is request  # the turn is over
