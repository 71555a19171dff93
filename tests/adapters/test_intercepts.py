"""The one permanent dispatcher in Relay, and the set it reads."""

from __future__ import annotations

import asyncio
import contextvars
import json
import threading
from collections.abc import Iterator
from typing import Any

import nemo_relay
import pytest

from adapters import intercepts, marks, relay_llm
from adapters.intercepts import RuleSet
from adapters.wire import ProviderCall
from tests.adapters.relay_calls import MODES, body, dispatched, intercept, passing, rules, run, text

COOL = {"key": "cool", "action": {"type": "set_parameters", "parameters": {"temperature": 0.125}}}


def numbered(n: int) -> RuleSet:
    """A set whose two rules both write its number."""
    return RuleSet.parse(
        [
            {"key": "a", "revision": n, "action": {"type": "set_parameters", "parameters": {"seed": n}}},
            {"key": "b", "revision": n, "action": {"type": "set_parameters", "parameters": {"n": n}}},
        ],
        f"etag-{n}",
    )


@pytest.fixture(params=[True, False], ids=["dispatched", "alone"])
def way(request: pytest.FixtureRequest) -> Iterator[None]:
    with dispatched(request.param):
        yield


async def test_200_changes_during_2000_calls_leave_each_call_under_exactly_one_set(way: None) -> None:
    previous = intercepts.swap(numbered(0))
    request = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
    seen: list[tuple[Any, Any, list[Any], str | None]] = []
    done = threading.Event()
    swaps = 0

    def keep_swapping() -> None:
        nonlocal swaps
        while not done.is_set() or swaps < 200:
            swaps += 1
            intercepts.swap(numbered(swaps))
            done.wait(0.002)

    async def one() -> None:
        call = ProviderCall(request, api_mode="chat_completions", provider="p", model="m")

        def provider(passed: Any) -> Any:
            sent = call.outgoing(passed)
            seen.append((sent.get("seed"), sent.get("n"), [r["revision"] for r in call.rewrites], call.ruleset))
            return {"ok": 1}

        with call.activate():
            await nemo_relay.llm.execute(call.operation, call.relay_request, provider, codec=call.codec, model_name="m")

    swapper = threading.Thread(target=keep_swapping)
    swapper.start()
    try:
        with nemo_relay.scope.scope("agent", nemo_relay.ScopeType.Agent):
            for _ in range(100):
                await asyncio.gather(*(one() for _ in range(20)))
    finally:
        done.set()
        swapper.join()
        intercepts.swap(previous)
    assert len(seen) == 2000 and swaps >= 200
    assert all(
        seed is not None and seed == n and revisions == [n, n] and etag == f"etag-{n}"
        for seed, n, revisions, etag in seen
    )
    assert len({n for _, n, _, _ in seen}) > 20


def test_the_dispatcher_is_registered_once_from_many_threads() -> None:
    threads = [threading.Thread(target=intercepts.ensure_dispatcher) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    intercepts.ensure_dispatcher()
    with pytest.raises(RuntimeError, match="already exists"):
        nemo_relay.intercepts.register_llm_request(intercepts.NAME, 0, False, passing())


async def test_a_call_that_is_not_ours_passes_the_dispatcher() -> None:
    with rules({"key": "k", "action": {"type": "block", "message": "no"}}):
        got = await nemo_relay.llm.execute(
            "x", nemo_relay.LLMRequest({}, body("chat_completions")), lambda passed: {"model": passed.content["model"]}
        )
    assert got == {"model": "m"}


class _Codec:
    """Relay's own codec, as another library may use it."""

    def __init__(self) -> None:
        self._native = nemo_relay.codecs.OpenAIChatCodec()
        self.decode, self.encode = self._native.decode, self._native.encode


@pytest.mark.parametrize("codec", [_Codec(), None], ids=["with a codec", "without"])
@pytest.mark.parametrize("where", ["guardrail", "intercept", "callback"])
async def test_a_model_called_on_the_way_of_a_call_of_ours_is_left_alone(where: str, codec: Any) -> None:
    inner = {"model": "judge", "messages": [{"role": "user", "content": "is it fine?"}]}
    asked: list[Any] = []
    answers: list[Any] = []

    async def judge() -> None:
        if not asked:
            asked.append(inner)
            given = nemo_relay.LLMRequest({}, inner)
            answers.append(
                await nemo_relay.llm.execute("openai.chat_completions", given, lambda p: p.content, codec=codec)
            )

    async def guardrail(_request: Any) -> None:
        await judge()

    async def before(_name: str, request: Any, annotation: Any) -> Any:
        if where == "intercept":
            await judge()
        return nemo_relay.LLMRequestInterceptOutcome(request, annotation)

    request = body("chat_completions")
    call = ProviderCall(request, api_mode="chat_completions", provider="p", model="m")
    sent: list[Any] = []

    async def provider(passed: Any) -> Any:
        sent.append(call.outgoing(passed))
        if where == "callback":
            await judge()
        return {}

    if where == "guardrail":
        nemo_relay.guardrails.register_llm_conditional_execution("judge", 0, guardrail)
    try:
        seed = {"key": "k", "action": {"type": "set_parameters", "parameters": {"seed": 1}}}
        with rules(seed), intercept("host", -10, before), call.activate():
            await nemo_relay.llm.execute(call.operation, call.relay_request, provider, codec=call.codec)
    finally:
        if where == "guardrail":
            nemo_relay.guardrails.deregister_llm_conditional_execution("judge")
    assert answers == [inner]
    ((outgoing),) = sent
    assert text({k: v for k, v in outgoing.items() if k != "extra_headers"}) == text({**request, "seed": 1})
    assert [r["key"] for r in call.rewrites] == ["k"]


@pytest.mark.parametrize("api_mode", MODES)
async def test_each_rewrite_is_a_mark_under_its_attempt_with_an_exact_patch(api_mode: str) -> None:
    configs = [
        {"key": "s", "revision": 4, "title": "Seed", "action": {"type": "set_parameters", "parameters": {"seed": 1}}},
        {"key": "m", "priority": 200, "action": {"type": "remove_parameters", "names": ["nowhere"]}},
    ]
    with rules(*configs, etag="etag-9"):
        done = await run(body(api_mode), api_mode)
    found = [e for e in done.events if e["name"] == marks.REWRITE]
    assert [e["parent_uuid"] for e in found] == [done.start["uuid"]] * 2
    hit, miss = (e["data"] for e in found)
    duration = hit.pop("duration_us")
    assert 0 < duration < 1e6
    size = hit["bytes_before"]
    assert hit == {
        "position": 0,
        "key": "s",
        "revision": 4,
        "title": "Seed",
        "action": "set_parameters",
        "priority": 100,
        "mode": "enforce",
        "result": "hit",
        "patch": [{"op": "add", "path": "/seed", "value": 1}],
        "headers": [],
        "bytes_before": size,
        "bytes_after": size + len(',"seed":1'),
        "ruleset": "etag-9",
    }
    assert size == len(json.dumps(body(api_mode), separators=(",", ":"), ensure_ascii=False).encode())
    assert (miss["position"], miss["result"], miss["patch"]) == (1, "miss", [])


async def test_texts_of_a_config_that_relay_cannot_hold_are_escaped_in_the_mark() -> None:
    config = {"key": "k\ud83d", "title": "\ud800", "action": {"type": "block", "message": "no \udc00"}}
    with rules(config, etag="\ud801"):
        done = await run(body("chat_completions"), "chat_completions")
    assert done.call.decision is not None and done.call.decision.key == "k\ud83d"
    (mark,) = done.rewrites
    assert [mark[k] for k in ("key", "title", "reason", "ruleset")] == ["k\\ud83d", "\\ud800", "no \\udc00", "\\ud801"]


async def test_a_preview_and_a_live_call_agree() -> None:
    configs = [
        {"key": "a", "action": {"type": "system_text", "where": "prepend", "text": "x"}},
        {"key": "b", "action": {"type": "trim_history", "keep_messages": 2}},
        {"key": "c", "action": {"type": "redact", "pii": ["email"]}},
    ]
    for api_mode in MODES:
        with rules(*configs) as rule_set:
            done = await run(request := body(api_mode), api_mode)
            rewrites, sent, decision = intercepts.preview(rule_set, request, api_mode=api_mode)
        assert text(sent) == text(done.sent_body) and decision is None
        for rewrite in [*rewrites, *done.rewrites]:
            rewrite["duration_us"] = 0
        assert rewrites == done.rewrites


async def test_a_fault_of_ours_in_carrying_out_rules_never_fails_the_call(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("adapters.wire.rules.run", lambda *_args: 1 / 0)
    config = {"key": "k", "action": {"type": "set_parameters", "parameters": {"seed": 1}}}
    with rules(config):
        done = await run(request := body("chat_completions"), "chat_completions")
    assert text(done.sent_body) == text(request) and done.call.decision is None
    assert "could not be applied" in caplog.text
    with rules({**config, "on_error": "closed"}):
        done = await run(request, "chat_completions")
    assert done.call.decision is not None and done.call.decision.key == "k"


@pytest.mark.parametrize("model", [None, 5, ["m"], {"m": 1}])
async def test_a_model_that_is_no_text_does_not_lead_past_the_rules(model: Any) -> None:
    with rules({"key": "k", "action": {"type": "block", "message": "no"}}):
        done = await run(body("chat_completions", model=model), "chat_completions")
        _, _, decision = intercepts.preview(intercepts.current(), {"model": model}, api_mode="chat_completions")
    assert done.call.decision is not None and decision is not None


async def test_many_calls_at_once_keep_their_decisions_apart() -> None:
    block = {"key": "k", "match": {"session": ["odd-*"]}, "action": {"type": "block", "message": "no"}}

    def started(i: int) -> asyncio.Task[Any]:
        session = f"{'odd' if i % 2 else 'even'}-{i}"
        # In a context of its own, where no test before has left a scope stack that all would share.
        one = run(body("chat_completions"), "chat_completions", session_id=session)
        return asyncio.create_task(one, context=contextvars.Context())

    with rules(block):
        calls = await asyncio.gather(*map(started, range(40)))
    assert [done.call.decision is not None for done in calls] == [bool(i % 2) for i in range(40)]


async def test_a_raising_intercept_of_the_host_still_leaves_the_ledger() -> None:
    def boom(_name: str, _request: Any, _annotation: Any) -> Any:
        raise LookupError("host")

    call = ProviderCall(body("chat_completions"), api_mode="chat_completions", provider="p", model="m")
    config = {"key": "k", "action": {"type": "set_parameters", "parameters": {"seed": 1}}}
    with rules(config), intercept("later", 10, boom), call.activate(), pytest.raises(LookupError, match="host"):
        await nemo_relay.llm.execute(call.operation, call.relay_request, lambda _p: {}, codec=call.codec)
    assert [r["key"] for r in call.rewrites] == ["k"]
    assert call.held_request()["seed"] == 1


@pytest.fixture
def unregistered() -> Iterator[None]:
    """Our intercept is not in Relay, as in a process that has not needed it yet."""
    with dispatched(False):
        yield


def registrations() -> list[str]:
    return [r.local_name for r in nemo_relay.runtime_registrations.list_runtime_registrations()]


def managed(request: dict[str, Any], seen: list[Any], api_mode: str = "chat_completions") -> None:
    facts = {"api_mode": api_mode, "api_request_id": "a"}
    relay_llm.execute_current(request, lambda r: seen.append(r) or {}, name="p", metadata=facts)


def test_rules_do_without_our_intercept_where_there_is_no_other(unregistered: None, talk: Any, events: Any) -> None:
    seen: list[Any] = []
    previous = intercepts.swap(numbered(3))
    try:
        managed(body("chat_completions"), seen)
    finally:
        intercepts.swap(previous)
    assert seen[0]["n"] == 3 and intercepts.NAME not in registrations()
    (attempt,) = events.attempts()
    assert attempt["data"]["content"]["n"] == 3
    marks_under = [(e["name"], e["parent_uuid"]) for e in events.all() if e["name"].startswith("relay.re")]
    assert marks_under == [(name, attempt["uuid"]) for name in ("relay.rewrite", "relay.rewrite", "relay.request")]


@pytest.mark.parametrize(("priority", "seen"), [(-5, [1]), (5, [0.125])])
def test_our_intercept_comes_where_another_asks_for_an_order(
    unregistered: None, talk: Any, priority: int, seen: list[float]
) -> None:
    order: list[float] = []

    def host(headers: Any, annotation: Any, content: Any) -> Any:
        order.append(annotation.params["temperature"])
        return headers, content

    with rules(COOL), intercept("host", priority, passing(host)):
        managed(body("chat_completions", temperature=1), [])
    assert intercepts.NAME in registrations() and order == seen


def test_a_guardrail_of_the_hosts_sees_what_the_app_gave(unregistered: None, talk: Any) -> None:
    seen: list[float] = []
    sent: list[Any] = []
    nemo_relay.guardrails.register_llm_conditional_execution(
        "host", 0, lambda request: seen.append(request.content["temperature"])
    )
    try:
        with rules(COOL):
            managed(body("chat_completions", temperature=1), sent)
    finally:
        nemo_relay.guardrails.deregister_llm_conditional_execution("host")
    assert seen == [1] and sent[0]["temperature"] == 0.125 and intercepts.NAME in registrations()


def test_a_call_without_a_codec_does_without_our_intercept(unregistered: None, talk: Any, events: Any) -> None:
    sent: list[Any] = []
    with rules(COOL):
        managed(body("chat_completions"), sent, "own")
    (attempt,) = events.attempts()
    assert sent[0]["temperature"] == attempt["data"]["content"]["temperature"] == 0.125
    assert intercepts.NAME not in registrations()
    assert [m["data"]["key"] for m in events.marks("relay.rewrite")] == ["cool"]


def test_what_a_hosts_intercept_changes_is_in_the_ledger_without_ours(
    unregistered: None, talk: Any, events: Any
) -> None:
    def add(headers: Any, annotation: Any, content: Any) -> Any:
        annotation.params = {**(annotation.params or {}), "temperature": 0.25}
        return headers, content

    seen: list[Any] = []
    with intercept("host", 5, passing(add)):
        managed(body("chat_completions"), seen)
    assert intercepts.NAME not in registrations() and seen[0]["temperature"] == 0.25
    (mark,) = events.marks("relay.rewrite")
    assert (mark["data"]["key"], mark["data"]["result"]) == ("foreign", "hit")
    assert mark["parent_uuid"] == events.attempts()[0]["uuid"]


def test_the_first_rules_are_not_for_a_call_that_is_on_its_way(unregistered: None, talk: Any, events: Any) -> None:
    """It runs under the empty set that was in force when it began; the next one is under the rules."""
    previous = intercepts.current()

    def put_in_force(headers: Any, annotation: Any, content: Any) -> Any:
        intercepts.swap(numbered(7))
        return headers, content

    seen: list[Any] = []
    try:
        with intercept("host", 5, passing(put_in_force)):
            managed(request := body("chat_completions"), seen)
            managed(request, seen)
    finally:
        intercepts.swap(previous)
    assert "seed" not in seen[0] and (seen[1]["seed"], seen[1]["n"]) == (7, 7)
    assert [m["data"]["revision"] for m in events.marks("relay.rewrite")] == [7, 7]


def test_relays_own_view_of_a_call_shows_what_the_rules_made_of_it(unregistered: None, talk: Any, events: Any) -> None:
    text = {"type": "system_text", "where": "replace", "text": "Be brief."}
    previous = intercepts.swap(RuleSet.parse([{"key": "brief", "action": text}]))
    try:
        managed(body("chat_completions"), [])
    finally:
        intercepts.swap(previous)
    annotated = events.attempts()[0]["category_profile"]["annotated_request"]
    assert annotated["messages"][0]["content"] == "Be brief."


def test_a_scope_of_the_hosts_own_may_change_headers_after_our_rules(
    unregistered: None, talk: Any, events: Any
) -> None:
    """An intercept of one scope is not among those that Relay lists."""

    def tag(_name: str, request: Any, annotation: Any) -> Any:
        tagged = nemo_relay.LLMRequest({**request.headers, "x-host": "1"}, request.content)
        return nemo_relay.LLMRequestInterceptOutcome(tagged, annotation)

    seen: list[Any] = []
    rule = {"key": "h", "action": {"type": "headers", "set": {"x-rule": "2"}, "remove": ["x-old"]}}
    previous = intercepts.swap(RuleSet.parse([rule]))
    try:
        facts = {"api_mode": "chat_completions"}
        request = {**body("chat_completions"), "extra_headers": {"x-old": "0", "x-app": "3"}}
        with talk.turn.scope.entered():
            nemo_relay.scope_local.register_llm_request(talk.turn.handle, "tag", 1, False, tag)
            relay_llm.execute_current(request, lambda r: seen.append(r) or {}, name="p", metadata=facts)
    finally:
        intercepts.swap(previous)
    headers = {k: v for k, v in seen[0]["extra_headers"].items() if k != "traceparent"}
    assert intercepts.NAME not in registrations()
    assert headers == {"x-app": "3", "x-rule": "2", "x-host": "1"}
    assert [m["data"]["key"] for m in events.marks("relay.rewrite")] == ["h", "foreign"]
