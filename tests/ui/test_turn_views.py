"""The turn page's views: who may see them, what they answer to odd requests."""

# ruff: noqa: E501 (addresses and events read best on a line of their own)

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from bench._agent import Agent, lines
from relayweb.intercepts.models import InterceptConfig
from relayweb.recording.writing.writer import Writer
from relayweb.ui.inspect import again, fragments, parts
from tests.recording.recorded import Talk
from tests.recording.streams import mark

pytestmark = pytest.mark.django_db(transaction=True)

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"0" * 40).decode()


@pytest.fixture
def told() -> Iterator[tuple[Agent, str]]:
    """A turn with one finished attempt; its uuid."""
    agent = Agent("views")
    attempt, events = agent.attempt("What is in the picture?")
    picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}
    script = {"type": "image_url", "image_url": {"url": "data:image/svg+xml;base64,PHN2Zz4="}}
    content = {
        "model": "m",
        "messages": [{"role": "user", "content": [{"type": "text", "text": "x" * 9_000}, picture, script]}],
    }
    events[1]["data"] = {"content": content, "headers": {}}
    call = events[0]["uuid"]
    end = agent.end(attempt, "openai.chat_completions", "llm", call, {"choices": [{"message": {"content": "A cat."}}]})
    end["metadata"] = events[1]["metadata"]
    writer = Writer()
    writer.start()
    writer.submit_sync(lines([*agent.begin(), *events, end]), source="post")
    writer.close()
    yield agent, attempt


def routes(agent: Agent, attempt: str) -> list[str]:
    turn = agent.turn
    return [
        reverse("ui:turn", args=[turn]),
        reverse("ui:turn-frame", args=[turn]),
        reverse("ui:turn-chunks", args=[turn]) + f"?attempt={attempt}",
        reverse("ui:turn-spans", args=[turn]),
        reverse("ui:turn-transcript", args=[turn]),
        reverse("ui:turn-scope", args=[turn, attempt]),
        reverse("ui:turn-value", args=[turn, attempt]) + "?of=request",
        reverse("ui:turn-again", args=[turn, attempt, "curl"]),
        reverse("ui:turn-chunk-table", args=[turn, attempt]),
    ]


def test_a_viewer_sees_everything_and_nobody_may_cache_it(told: Any, viewer: Client) -> None:
    for url in routes(*told):
        answer = viewer.get(url)
        assert answer.status_code == 200, url
        assert "private" in answer["cache-control"]


def test_without_a_login_there_is_only_the_way_to_one(told: Any) -> None:
    for url in routes(*told):
        answer = Client().get(url)
        assert answer.status_code == 302 and "login" in answer["location"], url


def test_a_login_without_the_right_to_see_is_refused(told: Any) -> None:
    client = Client()
    client.force_login(User.objects.create_user("nobody"))
    for url in routes(*told):
        assert client.get(url).status_code == 403, url


def test_what_is_not_on_record_is_not_found(told: Any, viewer: Client) -> None:
    agent, attempt = told
    for url in [
        *routes_of_another(attempt),
        reverse("ui:turn-scope", args=[agent.turn, "no-uuid"]),
        reverse("ui:turn-scope", args=[agent.turn, uuid4()]),
    ]:
        assert viewer.get(url).status_code == 404, url
    for query in (
        "of=request&at=/nothing",
        "of=other",
        "of=stage:99",
        "of=request&at=/messages/x",
        "of=request&at=/model/deep",
    ):
        assert viewer.get(reverse("ui:turn-value", args=[agent.turn, attempt]) + f"?{query}").status_code == 404, query


def routes_of_another(attempt: str) -> list[str]:
    other = uuid4()
    return [reverse(f"ui:{name}", args=[other]) for name in ("turn", "turn-frame", "turn-spans", "turn-transcript")]


@pytest.mark.parametrize(
    "query",
    [
        "tab=nonsense",
        "form=odd",
        "a=x&b=-1&tab=rewrites",
        "diff=what&tab=rewrites",
        "tab=raw&offset=x",
        "tab=raw&offset=99999",
        "against=1&tab=rewrites",
        "tab=request&part=odd",
    ],
)
def test_odd_queries_get_the_nearest_sense(told: Any, viewer: Client, query: str) -> None:
    agent, attempt = told
    answer = viewer.get(reverse("ui:turn-scope", args=[agent.turn, attempt]) + f"?{query}")
    assert answer.status_code == 200
    assert b"tablist" in answer.content


def test_a_request_offers_the_lines_that_send_it_again(told: Any, viewer: Client) -> None:
    agent, attempt = told
    shown = viewer.get(reverse("ui:turn-scope", args=[agent.turn, attempt]) + "?tab=request").content.decode()
    for form in again.FORMS:
        url = reverse("ui:turn-again", args=[agent.turn, attempt, form])
        assert url in shown
        answer = viewer.get(url)
        assert answer["content-type"] == "text/plain; charset=utf-8" and b"x" * 9_000 in answer.content
    assert viewer.get(reverse("ui:turn-again", args=[agent.turn, attempt, "perl"])).status_code == 404


def test_an_attempt_is_compared_with_the_one_before_it_of_its_call_or_of_the_call_before(viewer: Client) -> None:
    talk = Talk()
    calls = [
        talk.call(start, start + 90, role=role)
        for start, role in ((0, "primary"), (100, "auxiliary:title"), (200, "primary"))
    ]
    first = talk.attempt(calls[0], start=10, end=20, asks="one")
    second = talk.attempt(calls[0], start=30, end=40, asks="one")
    title = talk.attempt(calls[1], start=110, end=120, asks="name it")
    last = talk.attempt(calls[2], start=210, end=220, asks="two")
    talk.record()

    def shown(attempt: str, query: str = "") -> str:
        url = reverse("ui:turn-scope", args=[talk.turn, attempt])
        return viewer.get(url + query).content.decode()

    for attempt, before, name in ((second, first, "Attempt 1"), (last, second, "Call before")):
        assert f'data-against="{before}"' in shown(attempt) and name in shown(attempt)
        compared = shown(attempt, "?tab=rewrites&against=1")
        assert f"{name} got" in compared and ("two" in compared) is (attempt == last)
    assert "data-against" not in shown(first) and "data-against" not in shown(title)


def test_a_long_history_is_read_from_its_end_some_messages_at_a_press(
    viewer: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk = Talk()
    attempt = talk.attempt(talk.call())
    history = [{"role": "user", "content": f"message number {n}."} for n in range(3_000)]
    start = next(e for e in talk.events if e["uuid"] == attempt and e["scope_category"] == "start")
    start["data"]["content"]["messages"] = history
    talk.record()
    read: list[Any] = []
    real = parts.of_message
    monkeypatch.setattr(parts, "of_message", lambda *args: read.append(args) or real(*args))
    url = reverse("ui:turn-scope", args=[talk.turn, attempt])
    page = viewer.get(url + "?tab=request").content.decode()
    assert page.count("<article") == len(read) == 30 and "message number 2970." in page
    assert "100 of 2\u202f970 earlier messages" in page and "before=2970" in page
    read.clear()
    page = viewer.get(url + "?tab=request&part=messages&before=2970").content.decode()
    assert page.count("<article") == len(read) == 100 and "number 2870." in page and "before=2870" in page
    assert "before=" not in viewer.get(url + "?tab=request&part=messages&before=60").content.decode()
    read.clear()
    for form in ("json", "raw"):
        assert "3000" in viewer.get(url + f"?tab=request&form={form}").content.decode()
    assert not read


def test_a_call_of_which_only_figures_were_told_says_so(viewer: Client) -> None:
    talk = Talk()
    out = {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4}}
    attempt = talk.attempt(talk.call(), out=out)
    start = next(e for e in talk.events if e["uuid"] == attempt and e["scope_category"] == "start")
    start["data"]["content"] = {"model": "m"}
    talk.record()
    for tab in ("request", "response"):
        page = viewer.get(reverse("ui:turn-scope", args=[talk.turn, attempt]) + f"?tab={tab}").content.decode()
        assert "What was said is not recorded" in page and "does not know this shape" not in page


def test_a_cut_text_is_had_in_full_and_as_text(told: Any, viewer: Client) -> None:
    agent, attempt = told
    shown = viewer.get(reverse("ui:turn-scope", args=[agent.turn, attempt]) + "?tab=request").content.decode()
    assert "x" * 7_000 not in shown and "Show all 9.0 KB" in shown
    answer = viewer.get(
        reverse("ui:turn-value", args=[agent.turn, attempt]) + "?of=request&at=/messages/0/content/0/text"
    )
    assert answer.content == b"x" * 9_000
    assert answer["content-type"] == "text/plain; charset=utf-8"
    assert answer["x-content-type-options"] == "nosniff"


def test_pictures_are_served_as_pictures_unless_they_could_hold_a_script(told: Any, viewer: Client) -> None:
    agent, attempt = told
    at = reverse("ui:turn-value", args=[agent.turn, attempt]) + "?of=request&as=image&at=/messages/0/content/"
    good = viewer.get(at + "1")
    assert good["content-type"] == "image/png" and good.content.startswith(b"\x89PNG")
    assert "sandbox" in good["content-security-policy"]
    assert viewer.get(at + "2").status_code == 404
    assert viewer.get(at + "0").status_code == 404
    shown = viewer.get(reverse("ui:turn-scope", args=[agent.turn, attempt]) + "?tab=request").content.decode()
    assert PNG not in shown


def test_the_table_of_spans_is_paged(viewer: Client) -> None:
    agent = Agent("paged")
    events = agent.begin()
    for k in range(450):
        events.append(
            agent.scope("start", f"019b76da-0000-7000-8000-{k:012x}", f"tool{k}", "tool", agent.turn, data={})
        )
    writer = Writer()
    writer.start()
    writer.submit_sync(lines(events), source="post")
    writer.close()
    seen = 0
    for page in (1, 2, 3):
        content = viewer.get(reverse("ui:turn-spans", args=[agent.turn]) + f"?page={page}").content.decode()
        rows = content.count("<tr>") - 1
        assert rows <= 200
        seen += rows
    assert seen == 451
    assert (
        viewer.get(reverse("ui:turn-spans", args=[agent.turn]) + "?page=99").content
        == viewer.get(reverse("ui:turn-spans", args=[agent.turn]) + "?page=3").content
    )


def test_the_frame_since_a_cursor_holds_only_what_changed(told: Any, viewer: Client) -> None:
    agent, _ = told
    whole = json.loads(viewer.get(reverse("ui:turn-frame", args=[agent.turn])).content)
    rest = json.loads(viewer.get(reverse("ui:turn-frame", args=[agent.turn]) + f"?since={whole['cursor']}").content)
    assert len(whole["nodes"]["uuid"]) == 3
    assert "nodes" not in rest and rest["cursor"] == whole["cursor"]


def test_opening_the_page_takes_few_queries(told: Any, viewer: Client, django_assert_max_num_queries: Any) -> None:
    agent, attempt = told
    with django_assert_max_num_queries(15):
        viewer.get(reverse("ui:turn-frame", args=[agent.turn]))
    with django_assert_max_num_queries(40):
        viewer.get(reverse("ui:turn-scope", args=[agent.turn, attempt]))


def test_the_table_of_spans_says_of_each_intercept_whether_it_changed_anything() -> None:
    ran = [("a", "hit", "enforce", True), ("b", "miss", "enforce", False), ("c", "hit", "shadow", False)]
    runs = [{"key": k, "revision": 1, "result": r, "mode": m, "changed": c} for k, r, m, c in ran]
    runs.append({"key": "d", "revision": 2, "result": "error", "mode": "enforce", "changed": False})
    node = {"uuid": "u", "role": "attempt", "flags": [], "status": "ok", "name": "openai", "rewrites": runs}
    assert fragments.span_row(node, None)["rewrites"] == "a r1, c r1 (shadow), d r2 (error)"


def test_the_blame_names_the_rule_its_revision_and_who_published_it(viewer: Client) -> None:
    rule = {
        "key": "cool",
        "title": "Cool",
        "enabled": False,
        "mode": "enforce",
        "priority": 1,
        "break_chain": False,
        "on_error": "open",
        "match": {},
    }
    for author, temperature in (("ann", 0.1), ("ben", 0.2)):
        InterceptConfig.publish(
            {**rule, "action": {"type": "set_parameters", "parameters": {"temperature": temperature}}}, author
        )
    agent = Agent("blame")
    attempt, events = agent.attempt("Hi")
    body = {"model": "m", "messages": [], "temperature": 0.1}
    events[1]["data"] = {"content": body, "headers": {}}
    ran = {
        "position": 0, "key": "cool", "revision": 1, "action": "set_parameters", "priority": 1, "mode": "enforce", "result": "hit",
        "patch": [{"op": "add", "path": "/temperature", "value": 0.1}], "headers": [], "duration_us": 5.0, "bytes_before": 1, "bytes_after": 2,
    }  # fmt: skip
    told = [
        {
            **events[1],
            "kind": "mark",
            "scope_category": None,
            "category": None,
            "uuid": str(uuid4()),
            "parent_uuid": attempt,
            "name": name,
            "data": data,
        }
        for name, data in (
            ("relay.rewrite", ran),
            ("relay.request", {"app_patch": [{"op": "remove", "path": "/temperature"}]}),
        )
    ]
    writer = Writer()
    writer.start()
    assert not writer.submit_sync(lines([*agent.begin(), *events, *told]), source="post").rejected
    writer.close()
    page = viewer.get(reverse("ui:turn-scope", args=[agent.turn, attempt]) + "?tab=rewrites").content.decode()
    assert '?r=1" title="Published by ann">' in page and "r1 was published by ann" in page


def test_the_tab_says_of_a_blocked_request_that_it_was_never_sent(viewer):
    from tests.recording.recorded import FAILED, Talk
    from tests.recording.streams import mark

    talk = Talk()
    attempt = talk.attempt(talk.call(), status={**FAILED, "exception.type": "CallBlocked"})
    ran = {"position": 0, "key": "no", "revision": 1, "mode": "enforce", "result": "block", "patch": [], "headers": []}
    talk.add(mark("relay.rewrite", attempt, 21, ran))
    talk.record()
    page = viewer.get(reverse("ui:turn-scope", args=[talk.turn, attempt]) + "?tab=rewrites").content.decode()
    assert "Never sent" in page and "Provider got" not in page and "as sent" not in page


def test_what_a_running_answer_says_goes_on_after_the_last_chunk_whose_content_is_known(viewer: Client) -> None:
    talk = Talk()
    attempt = talk.attempt(talk.call(end=None), end=None, metadata={"streaming": True})
    talk.tail = []
    said = [{"choices": [{"delta": {"content": word}}]} for word in ("one ", "two ")]
    talk.add(*(mark("llm.chunk", attempt, 30 + n, {"chunk_index": n}) for n in range(4)))
    talk.add(mark("relay.chunks", attempt, 40, {"first": 0, "chunks": said}))
    talk.record()
    page = viewer.get(reverse("ui:turn-scope", args=[talk.turn, attempt]) + "?tab=response").content.decode()
    assert 'data-from="2"' in page and "one two " in page
