"""What the provider gets of the app's body, through the real Relay."""

from __future__ import annotations

import asyncio
import copy
import json
import logging
import random
from typing import Any

import nemo_relay
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adapters import json_patch, wire
from adapters.actions import ACTIONS
from adapters.actions.base import Action, Draft
from adapters.intercepts import Rule, RuleSet
from adapters.json_values import escape, json_equal
from adapters.wire import ProviderCall
from tests.adapters.relay_calls import MODES, body, intercept, passing, rules, run, text

each_mode = pytest.mark.parametrize("api_mode", MODES)
each_way = pytest.mark.parametrize("stream", [False, True], ids=["buffered", "streamed"])
TEMPERATURE = {"key": "t", "action": {"type": "set_parameters", "parameters": {"temperature": 0.1}}}

# -- R66 … R69: what Relay is told ------------------------------------------------------------------------------------


def test_R66_the_api_mode_chooses_operation_and_codec() -> None:
    calls = {
        m: ProviderCall({"model": "m", "messages": [], "input": []}, api_mode=m, provider="p", model="m") for m in MODES
    }
    assert [calls[m].operation for m in MODES] == ["openai.chat_completions", "openai.responses", "anthropic.messages"]
    assert [type(calls[m].response_codec) for m in MODES] == [
        nemo_relay.codecs.OpenAIChatCodec,
        nemo_relay.codecs.OpenAIResponsesCodec,
        nemo_relay.codecs.AnthropicMessagesCodec,
    ]
    other = ProviderCall({"prompt": "x"}, api_mode="own", provider="acme", model=None)
    assert (other.operation, other.codec, other.response_codec) == ("acme", None, None)


@each_mode
async def test_R68_the_timeout_stays_with_the_app_and_never_reaches_relay(api_mode: str) -> None:
    request = body(api_mode, timeout=3)
    done = await run(request, api_mode)
    assert "timeout" not in done.start["data"]["content"]
    assert done.sent["timeout"] == 3


@each_mode
async def test_R69_null_tools_are_hidden_from_the_codec_only(api_mode: str) -> None:
    request = body(api_mode, tools=None)
    done = await run(request, api_mode)
    assert done.call.codec is not None
    assert done.start["data"]["content"]["tools"] is None
    assert text(done.sent_body) == text(request)


async def test_R69_flat_function_tools_reach_the_annotation_and_stay_flat_in_the_body() -> None:
    done = await run(request := body("codex_responses"), "codex_responses")
    annotated = done.start["category_profile"]["annotated_request"]["tools"]
    assert [t.get("function", {}).get("name") for t in annotated][:2] == ["read", "write"]
    assert done.start["data"]["content"]["tools"] == request["tools"]


async def test_R69_a_chat_tool_without_a_type_stays_without_one() -> None:
    request = body("chat_completions", tools=[{"function": {"name": "read"}}])
    done = await run(request, "chat_completions")
    assert done.call.codec is not None
    assert text(done.sent_body) == text(request)


# -- R70 … R75: bodies -------------------------------------------------------------------------------------------------


@each_way
@each_mode
async def test_R71_an_untouched_body_keeps_its_objects_and_bytes(api_mode: str, stream: bool) -> None:
    request = body(api_mode)
    done = await run(request, api_mode, stream=stream)
    assert text(done.sent_body) == text(request)
    assert all(done.sent[key] is request[key] for key in request)
    assert not done.call.changed
    assert done.start["data"]["content"] == request


async def test_R71_nothing_changed_at_all_gives_the_very_request() -> None:
    request = {"prompt": "x", "zeta": 1}
    done = await run(request, "own")
    assert done.sent is request


@each_mode
async def test_events_show_the_whole_history_of_every_call_of_a_session(api_mode: str) -> None:
    history = "input" if api_mode == "codex_responses" else "messages"
    with nemo_relay.scope.scope("session", nemo_relay.ScopeType.Agent):
        for _ in range(3):
            done = await run(body(api_mode), api_mode)
            assert done.start["data"]["content"][history] == body(api_mode)[history]


@each_mode
async def test_a_rule_changes_nothing_when_none_matches(api_mode: str) -> None:
    with rules({**TEMPERATURE, "match": {"model": ["other-*"]}}):
        done = await run(request := body(api_mode), api_mode)
    assert text(done.sent_body) == text(request)
    assert done.rewrites == [] and done.late == []


ODD = {"seed": 2**64, "deep": -(2**70), "note": "x\ud83dy", "k\ud83d": [float("nan"), b"\x00\xff"]}


@each_way
@each_mode
async def test_R35_values_relay_cannot_hold_reach_the_provider_as_they_are(api_mode: str, stream: bool) -> None:
    request = body(api_mode, **ODD)
    done = await run(request, api_mode, stream=stream)
    assert all(done.sent[key] is request[key] for key in request)
    content = done.start["data"]["content"]
    assert content["seed"] == {"$int": str(2**64)}
    assert content["note"] == "x\\ud83dy"
    assert content["k\\ud83d"] == [{"$float": "nan"}, {"$bytes": "00ff"}]
    mark = done.request
    assert mark["escaped"] == ["/seed", "/deep", "/note", "/k\\ud83d", "/k\\ud83d/0", "/k\\ud83d/1"]


def _foreign_text(where: str) -> Any:
    """An intercept that adds a user message, by the annotation or, without a codec, in the body."""

    def change(headers: Any, annotation: Any, content: Any) -> Any:
        if annotation is not None:
            annotation.messages = [*annotation.messages, {"role": "user", "content": where}]
            return headers, content
        history = "input" if "input" in content else "messages"
        return headers, {**content, history: [*content[history], {"role": "user", "content": where}]}

    return passing(change)


@each_mode
async def test_R35_odd_values_survive_a_rule_and_a_foreign_intercept(api_mode: str) -> None:
    request = body(api_mode, **ODD)
    history = "input" if api_mode == "codex_responses" else "messages"
    with rules(TEMPERATURE), intercept("later", 10, _foreign_text("later")):
        done = await run(request, api_mode)
    assert len(done.sent[history]) == len(request[history]) + 1
    assert done.sent["temperature"] == 0.1
    assert all(done.sent[key] is request[key] for key in ODD)


@each_way
@each_mode
async def test_R70_R72_foreign_intercepts_before_and_after_ours_are_laid_over_the_apps_body(
    api_mode: str, stream: bool
) -> None:
    request = body(api_mode)
    history = "input" if api_mode == "codex_responses" else "messages"
    with (
        rules(TEMPERATURE),
        intercept("early", -10, _foreign_text("early")),
        intercept("later", 10, _foreign_text("later")),
    ):
        done = await run(request, api_mode, stream=stream)
    sent = done.sent_body
    assert [m["content"] if isinstance(m["content"], str) else m["content"][0]["text"] for m in sent[history][-2:]] == [
        "early",
        "later",
    ]
    assert text(sent[history][:-2]) == text(request[history])
    assert all(a is b for a, b in zip(sent[history], request[history], strict=False))
    assert text({k: v for k, v in sent.items() if k != history}) == text(
        {**{k: v for k, v in request.items() if k != history}, "temperature": 0.1}
    )
    assert done.start["data"]["content"] == json.loads(text(sent))


@each_mode
async def test_foreign_changes_stand_in_the_ledger_in_their_order(api_mode: str) -> None:
    with (
        rules(TEMPERATURE),
        intercept("early", -10, _foreign_text("early")),
        intercept("later", 10, _foreign_text("later")),
    ):
        done = await run(body(api_mode), api_mode)
    marks = done.rewrites
    assert [(m["position"], m["key"], m["result"]) for m in marks] == [
        (0, "foreign", "hit"),
        (1, "t", "hit"),
        (2, "foreign", "hit"),
    ]
    assert [m["patch"][0]["op"] for m in marks if m["key"] == "foreign"] == ["add", "add"]
    assert marks[0]["bytes_after"] > marks[0]["bytes_before"]
    request = done.request
    assert request["app"] == body(api_mode)


async def test_a_foreign_intercept_without_a_codec_changes_the_body_itself() -> None:
    request = {"prompt": "x", "zeta": {"b": 1, "a": 2}, "list": [1, {"q": 1}]}
    with intercept("early", -10, passing(lambda h, a, c: (h, {**c, "prompt": "y"}))):
        done = await run(request, "own")
    assert text(done.sent_body) == text({**request, "prompt": "y"})
    assert done.sent["zeta"] is request["zeta"]


@each_mode
async def test_R73_reasoning_comes_back_when_an_intercept_rebuilds_a_message(api_mode: str) -> None:
    def rebuild(headers: Any, annotation: Any, content: Any) -> Any:
        messages = copy.deepcopy(annotation.messages)
        for message in messages:
            if message.get("role") == "user" and isinstance(message.get("content"), str):
                message["content"] = message["content"].upper()
        annotation.messages = messages
        return headers, content

    with intercept("later", 10, passing(rebuild)):
        done = await run(request := body(api_mode), api_mode)
    history = "input" if api_mode == "codex_responses" else "messages"
    changed = [i for i, (a, b) in enumerate(zip(request[history], done.sent[history], strict=True)) if a != b]
    kept = [i for i in range(len(request[history])) if i not in changed]
    assert changed and all(done.sent[history][i] is request[history][i] for i in kept)
    if api_mode == "chat_completions":
        assert done.sent[history][2]["reasoning_content"] == "first, look"
        assert done.sent[history][2]["reasoning_details"] == request[history][2]["reasoning_details"]


class _BrokenCodec:
    """Decodes, but gives nonsense or raises when it should encode."""

    broken: Any = None

    def __init__(self) -> None:
        self._codec = nemo_relay.codecs.OpenAIChatCodec()

    def decode(self, request: Any) -> Any:
        return self._codec.decode(request)

    def encode(self, annotation: Any, request: Any) -> Any:
        if isinstance(self.broken, Exception):
            raise self.broken
        return nemo_relay.LLMRequest({}, self.broken)

    def decode_response(self, response: Any) -> Any:
        return self._codec.decode_response(response)


@pytest.mark.parametrize("broken", [RuntimeError("codec"), ["no object"], None], ids=["raises", "a list", "null"])
async def test_R74_B57_a_codec_that_fails_means_no_rewrite_by_others_and_a_warning(
    broken: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(_BrokenCodec, "broken", broken)
    known = wire.WIRES["chat_completions"]
    monkeypatch.setitem(wire.WIRES, "chat_completions", known._replace(codec=_BrokenCodec))
    request = body("chat_completions")
    with caplog.at_level(logging.WARNING), intercept("later", 10, _foreign_text("later")):
        done = await run(request, "chat_completions")
    assert text(done.sent_body) == text(request)
    assert "rewrites by other intercepts are ignored" in caplog.text
    assert done.start["data"]["content"] == request


async def test_R74_our_own_rules_do_not_need_the_codec(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_BrokenCodec, "broken", RuntimeError("codec"))
    known = wire.WIRES["chat_completions"]
    monkeypatch.setitem(wire.WIRES, "chat_completions", known._replace(codec=_BrokenCodec))
    with rules(TEMPERATURE):
        done = await run(request := body("chat_completions"), "chat_completions")
    assert text(done.sent_body) == text({**request, "temperature": 0.1})


@pytest.mark.parametrize("content", [None, "text", [1], 5])
def test_R75_a_content_that_is_no_object_is_no_rewrite(content: Any) -> None:
    request = {"prompt": "x"}
    call = ProviderCall(request, api_mode="own", provider="p", model=None)
    assert call.outgoing(nemo_relay.LLMRequest({}, content)) is request
    (mark,) = [data for _, data in call.late_marks()]
    assert mark == {"provider": request}


async def test_R75_on_the_real_relay() -> None:
    with intercept("early", -10, passing(lambda headers, _annotation, _content: (headers, "nonsense"))):
        done = await run(request := {"prompt": "x"}, "own")
    assert done.sent is request


@each_mode
async def test_a_body_the_codec_refuses_runs_without_one_and_rules_apply(api_mode: str) -> None:
    request = body(api_mode, messages="nonsense", input=7, tools="odd")
    with rules(TEMPERATURE):
        done = await run(request, api_mode)
    assert done.call.codec is None
    assert text(done.sent_body) == text({**request, "temperature": 0.1})


@each_mode
async def test_rules_may_make_a_body_the_codec_does_not_hold(api_mode: str) -> None:
    patch = [{"op": "add", "path": "/tools", "value": "odd"}, {"op": "add", "path": "/new", "value": None}]
    with rules({"key": "p", "action": {"type": "json_patch", "patch": patch}}):
        done = await run(request := body(api_mode), api_mode)
    assert text(done.sent_body) == text({**request, "tools": "odd", "new": None})
    assert done.start["data"]["content"]["tools"] == "odd"


async def test_no_call_goes_without_rules_when_a_foreign_intercept_breaks_the_chain() -> None:
    with rules(TEMPERATURE), intercept("greedy", -10, _foreign_text("early"), break_chain=True):
        done = await run(request := body("chat_completions"), "chat_completions")
    assert done.sent["temperature"] == 0.1
    assert done.sent["messages"][:-1] == request["messages"]
    late = [data["key"] for name, data in done.late if name == "relay.rewrite"]
    assert late == ["foreign", "t"]
    assert done.start["data"]["content"] == done.sent_body


async def test_nor_where_there_is_no_codec() -> None:
    def change(headers: Any, _annotation: Any, content: Any) -> Any:
        return headers, {**content, "more": 1}

    with rules(TEMPERATURE), intercept("greedy", -10, passing(change), break_chain=True):
        done = await run(request := {"prompt": "x"}, "own")
    assert done.sent_body == {**request, "more": 1, "temperature": 0.1}
    mark = done.request
    assert mark["provider"] == done.sent_body


async def test_R72_an_execution_intercept_of_the_host_may_try_again_with_another_body() -> None:
    sent: list[Any] = []

    async def twice(_name: str, request: Any, _context: Any, proceed: Any) -> Any:
        await proceed(nemo_relay.LLMRequest(request.headers, {**request.content, "seed": 1}))
        return await proceed(nemo_relay.LLMRequest(request.headers, {**request.content, "note": "again"}))

    request = body("chat_completions", zeta={"b": 1, "a": 2**64})
    call = ProviderCall(request, api_mode="chat_completions", provider="p", model="m")
    nemo_relay.intercepts.register_llm_execution("retrying", 1, twice)
    try:
        with rules(TEMPERATURE), call.activate():
            await nemo_relay.llm.execute(
                call.operation, call.relay_request, lambda p: sent.append(call.outgoing(p)) or {}, codec=call.codec
            )
    finally:
        nemo_relay.intercepts.deregister_llm_execution("retrying")
    bodies = [{k: v for k, v in s.items() if k != "extra_headers"} for s in sent]
    assert [text(b) for b in bodies] == [
        text({**request, "temperature": 0.1, "seed": 1}),
        text({**request, "temperature": 0.1, "note": "again"}),
    ]
    assert [r["key"] for r in call.rewrites] == ["t", "foreign", "foreign"]


# -- R76, R77: headers -------------------------------------------------------------------------------------------------


@each_mode
async def test_R76_headers_of_interceptors_win_and_the_callers_dict_stays(api_mode: str) -> None:
    def stamp(headers: Any, _annotation: Any, content: Any) -> Any:
        return {**{k: v for k, v in headers.items() if k != "X-A"}, "X-A": "theirs", "x-b": "new"}, content

    given = {"X-A": "mine", "x-c": "kept"}
    request = body(api_mode, extra_headers=given)
    with intercept("later", 10, passing(stamp)):
        done = await run(request, api_mode)
    headers = done.sent["extra_headers"]
    assert {k: v for k, v in headers.items() if k != "traceparent"} == {"X-A": "theirs", "x-b": "new", "x-c": "kept"}
    assert given == {"X-A": "mine", "x-c": "kept"} and done.sent is not request
    (mark,) = [data for name, data in done.late if name == "relay.rewrite"]
    assert (mark["key"], mark["headers"], mark["patch"]) == ("foreign", ["X-A", "x-b"], [])


async def test_R76_relays_internal_headers_never_leave_whatever_their_case() -> None:
    request = body("chat_completions", extra_headers={"X-Dynamo-Session-ID": "s", "x-dynamo-parent-session-id": "p"})
    done = await run(request, "chat_completions")
    assert {k.lower() for k in done.sent["extra_headers"]} == {"traceparent"}


@each_mode
async def test_R77_traceparent_goes_out_in_the_known_modes(api_mode: str) -> None:
    done = await run(body(api_mode), api_mode)
    assert done.sent["extra_headers"]["traceparent"].startswith("00-")


async def test_R77_a_custom_request_gets_traceparent_only_where_it_has_extra_headers() -> None:
    done = await run({"prompt": "x", "extra_headers": {"a": "b"}}, "own")
    assert set(done.sent["extra_headers"]) == {"a", "traceparent"}
    done = await run(request := {"prompt": "x"}, "own")
    assert done.sent is request


async def test_R77_other_headers_of_interceptors_stay_for_a_native_transport() -> None:
    with intercept("later", 10, passing(lambda headers, _a, content: ({**headers, "x-b": "1"}, content))):
        done = await run({"prompt": "x"}, "own")
    assert done.sent["extra_headers"] == {"x-b": "1"}


async def test_header_values_that_relay_cannot_carry_still_go_out() -> None:
    omitted = object()
    request = body("chat_completions", extra_headers={"x-odd": "\ud83d", "x-omit": omitted, "x-fine": "1"})
    done = await run(request, "chat_completions")
    assert done.sent["extra_headers"]["x-odd"] == "\ud83d"
    assert done.sent["extra_headers"]["x-omit"] is omitted
    assert done.start["data"]["headers"].get("x-fine") == "1"


async def test_a_removed_header_is_named_for_the_transport() -> None:
    with rules({"key": "h", "action": {"type": "headers", "remove": ["X-Client"]}}):
        done = await run(body("chat_completions", extra_headers={"x-client": "1"}), "chat_completions")
    assert set(done.sent["extra_headers"]) == {"traceparent"}
    assert done.sent["extra_headers"].removed == ("X-Client",)


# -- arguments that are objects ----------------------------------------------------------------------------------------


class _Omit:
    """Looks like the SDKs' own marker."""


_Omit.__name__ = "Omit"


async def test_objects_of_the_sdk_stay_objects_where_nothing_changed_them() -> None:
    class Part:
        def __init__(self) -> None:
            self.role, self.content = "user", "hi"

    part, omit = Part(), _Omit()
    request = {"model": "m", "messages": [part, {"role": "user", "content": "go on"}], "tools": omit}
    with rules(TEMPERATURE):
        done = await run(request, "chat_completions")
    assert done.sent["messages"][0] is part and done.sent["tools"] is omit
    assert done.sent["temperature"] == 0.1
    assert done.start["data"]["content"]["messages"][0] == {"role": "user", "content": "hi"}
    assert "tools" not in done.start["data"]["content"]


# -- any patch is exact (property) -------------------------------------------------------------------------------------


class _Becomes(Action):
    """An action of the tests: the body becomes another one."""

    type = "becomes"

    def __init__(self, wanted: Any) -> None:
        self.wanted = wanted

    def apply(self, draft: Draft) -> Draft:
        return draft.with_body(self.wanted)


def _paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    below = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [p for key, member in below for p in [(*path, key), *_paths(member, (*path, key))]]


def _mutated(value: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """The body with one to three random changes anywhere."""
    out = copy.deepcopy(value)
    for _ in range(rng.randint(1, 3)):
        paths = _paths(out)
        if not paths:
            break
        *way, key = rng.choice(paths)
        parent: Any = out
        for step in way:
            parent = parent[step]
        kind = rng.choice(["remove", "replace", "add", "insert"])
        if kind == "remove":
            del parent[key]
        elif kind == "replace":
            parent[key] = rng.choice([None, "new", 1, 1.0, True, 2**64, "x\ud83dy", [], {"b": 1, "a": 2}])
        elif kind == "add" and isinstance(parent, dict):
            parent[f"added{rng.randrange(9)}"] = {"v": [1, None, True]}
        elif isinstance(parent, list):
            parent.insert(rng.randrange(len(parent) + 1), copy.deepcopy(rng.choice(parent)))
    return out


@each_mode
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32), odd=st.booleans())
def test_whatever_a_rule_makes_of_a_body_is_what_the_provider_gets(api_mode: str, seed: int, odd: bool) -> None:
    rng = random.Random(seed)
    request = body(api_mode, **({"seed": 2**64, "note": "x\ud83dy"} if odd else {}))
    wanted = _mutated(request, rng)
    original = text(request)

    async def check() -> None:
        with rules():
            wire.rules.swap(RuleSet([Rule(key="b", action=_Becomes(copy.deepcopy(wanted)))], "e"))
            done = await run(request, api_mode)
        assert text(done.sent_body) == text(wanted)
        assert text(request) == original
        assert [m["key"] for m in done.rewrites] == ["b"]

    asyncio.run(check())


def test_every_action_has_a_distinct_type_title_and_fields() -> None:
    assert all(ACTIONS[name].type == name and ACTIONS[name].title and ACTIONS[name].fields for name in ACTIONS)


@each_mode
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32), rounds=st.integers(0, 5))
def test_any_body_an_app_may_send_passes_with_its_own_objects_and_is_recorded_whole(
    api_mode: str, seed: int, rounds: int
) -> None:
    rng = random.Random(seed)
    request = body(api_mode)
    for _ in range(rounds):
        request = _mutated(request, rng)
    before = text(request)

    async def check() -> None:
        done = await run(request, api_mode)
        assert text(done.sent_body) == before
        assert all(done.sent[key] is request[key] for key in request)
        assert json_equal(done.start["data"]["content"], escape(request)[0])

    asyncio.run(check())


def _edited(messages: list[Any], rng: random.Random) -> list[Any]:
    """What a host's intercept may do to the messages of an annotation."""
    out = copy.deepcopy(messages)
    kind = rng.choice(["append", "prepend", "drop", "swap", "edit"])
    if kind == "append":
        out.append({"role": "user", "content": "appended"})
    elif kind == "prepend":
        out.insert(0, {"role": "user", "content": "prepended"})
    elif kind == "drop" and out:
        del out[rng.randrange(len(out))]
    elif kind == "swap" and len(out) > 1:
        out[0], out[-1] = out[-1], out[0]
    else:
        for message in out:
            if message.get("role") == "user" and isinstance(message.get("content"), str):
                message["content"] += " edited"
    return out


@each_mode
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32))
def test_R72_whatever_a_host_does_to_the_messages_all_else_keeps_objects_and_order(api_mode: str, seed: int) -> None:
    rng = random.Random(seed)
    request = body(api_mode, big=2**64, note="x\ud83dy")
    history = "input" if api_mode == "codex_responses" else "messages"
    where = rng.choice([-10, 10])

    def change(headers: Any, annotation: Any, content: Any) -> Any:
        annotation.messages = _edited(annotation.messages, rng)
        return headers, content

    async def check() -> None:
        with rules(TEMPERATURE), intercept("host", where, passing(change)):
            done = await run(request, api_mode)
        sent = done.sent_body
        others = {k: v for k, v in request.items() if k not in (history, "system", "instructions")}
        assert text({k: v for k, v in sent.items() if k in others or k == "temperature"}) == text(
            {**others, "temperature": 0.1}
        )
        known = {text(m): m for m in request[history]}
        assert all(m is known[text(m)] for m in sent[history] if text(m) in known)
        stage: Any = escape(request)[0]
        ledger = done.rewrites
        for rewrite in ledger:
            stage = json_patch.apply(stage, rewrite["patch"])
        assert json_equal(stage, escape(sent)[0])

    asyncio.run(check())
