"""Bodies as messages: every wire format, and whatever else people record."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relayweb.ui.inspect import jsonview, messages, parts, pipeline, structure

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=20,
)
words = "messages system input output choices content role tool_calls function type text image_url source id tools"
names = st.sampled_from(words.split(" "))
likely = st.recursive(
    json_values | st.sampled_from(["assistant", "tool_use", "text", "function_call_output", "image", "reasoning"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=5),
    max_leaves=20,
)


@given(likely)
def test_no_body_makes_a_reader_raise(value: Any) -> None:
    for read in (messages.request, messages.response):
        body = read(value)
        messages.pair([body], {"x": {"uuid": "u"}}, lambda uuids: {})
        for message in body.messages:
            assert message.icon and message.tone
            for part in message.parts:
                assert part.lines is not None


def test_a_chat_request_is_read() -> None:
    body = messages.request(
        {
            "model": "gpt-5.2",
            "temperature": 0.2,
            "metadata": {"a": 1},
            "tools": [{"type": "function", "function": {"name": "search", "description": "Look it up"}}],
            "messages": [
                {"role": "system", "content": "Be brief."},
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "Hi"},
                        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
                    ],
                },
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [
                        {
                            "id": "c1",
                            "type": "function",
                            "function": {"name": "search", "arguments": '{"q": 9007199254740993}'},
                        }
                    ],
                },
                {"role": "tool", "tool_call_id": "c1", "content": "found"},
            ],
        }
    )
    assert [m.role for m in body.messages] == ["system", "user", "assistant", "tool"]
    assert [p.kind for p in body.messages[1].parts] == ["text", "image"]
    call = body.messages[2].parts[0]
    assert (call.kind, call.title, call.id) == ("call", "search", "c1")
    assert "9007199254740993" in call.lines
    assert body.messages[3].parts[0].kind == "result"
    assert [t["name"] for t in body.tools] == ["search"]
    assert ("model", '"gpt-5.2"') in body.settings
    assert body.other == [("metadata", "{…} 1 member")]


def test_an_anthropic_answer_is_read() -> None:
    body = messages.response(
        {
            "type": "message",
            "role": "assistant",
            "stop_reason": "tool_use",
            "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": "s"},
                {"type": "text", "text": "I look."},
                {"type": "server_tool_use", "id": "t1", "name": "web_search", "input": {"q": "x"}},
                {"type": "web_search_tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "r"}]},
                {"type": "brand_new", "x": 1},
            ],
            "usage": {"output_tokens": 3},
        }
    )
    assert body.stop == "tool_use"
    kinds = [(p.kind, p.note) for p in body.messages[0].parts]
    assert kinds == [("reasoning", ""), ("text", ""), ("call", "server tool"), ("result", ""), ("json", "")]


def test_a_responses_answer_is_one_message_of_the_assistant() -> None:
    body = messages.response(
        {
            "object": "response",
            "output": [
                {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Thinking."}]},
                {"type": "function_call", "name": "f", "call_id": "c", "arguments": "{}"},
                {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Done."}]},
            ],
        }
    )
    assert [p.kind for m in body.messages for p in m.parts] == ["reasoning", "call", "text"]


def test_arguments_that_are_no_json_are_shown_as_text_and_said_so() -> None:
    call = messages.response(
        {"content": None, "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": '{"cut": '}}]}
    )
    part = call.messages[0].parts[0]
    assert part.text == '{"cut": '
    assert part.note == "arguments are not valid JSON"


@pytest.mark.parametrize(
    "body",
    [None, "text", 3, [], {"messages": None}, {"messages": "x"}, {"messages": [{"role": 7, "content": {"a": 1}}]}],
)
def test_what_is_no_conversation_gets_a_general_view(body: Any) -> None:
    messages.request(body)


def test_markdown_can_do_nothing() -> None:
    pictures = "![p](http://evil.example/p.png) <img src=x onerror=alert(1)>"
    hostile = f"<script>alert(1)</script> [x](javascript:alert(1)) {pictures} **b**"
    part = messages.response({"content": hostile}).messages[0].parts[0]
    html = str(part.html)
    assert "<script" not in html and "<img" not in html and "javascript:" not in html.replace("(javascript:", "")
    assert "&lt;script&gt;" in html and "<strong>b</strong>" in html


def test_long_texts_are_cut_with_their_size() -> None:
    part = messages.response({"content": "x" * 50_000}).messages[0].parts[0]
    assert part.cut and part.size == 50_000 and len(part.text) == parts.CUT and part.html is None


# ---- JSON as lines ----


@given(json_values)
def test_any_json_becomes_bounded_lines_and_escaped_html(value: Any) -> None:
    lines, _ = jsonview.lines_of(value, 50)
    assert len(lines) <= 50
    jsonview.to_html(lines, load=lambda at: f"/v?at={at}")


def test_deep_and_hostile_json_is_text() -> None:
    deep: Any = "<b>&\u0000"
    for _ in range(300):
        deep = [deep]
    html = jsonview.to_html(jsonview.lines_of(deep)[0])
    assert "nested deeper" in html
    assert "<b>" not in jsonview.to_html(jsonview.lines_of({"<b>": '"><script>'})[0])


def test_pointers_find_what_they_name() -> None:
    document = {"a/b": [{"~": 7}]}
    assert jsonview.resolve(document, "/a~1b/0/~0") == 7
    with pytest.raises(LookupError):
        jsonview.resolve(document, "/missing")
    with pytest.raises(LookupError):
        jsonview.resolve(document, "/a~1b/x")


# ---- Differences and blame ----


def text_of(told: structure.Difference) -> str:
    return "\n".join(
        f"{line.mark or '='}{'  ' * line.depth}{''.join(t for _, t in line.tokens)}" for line in told.lines
    )


@given(json_values, json_values)
def test_a_difference_of_anything_is_told(a: Any, b: Any) -> None:
    told = structure.difference(a, b)
    same = structure.canonical(a) == structure.canonical(b)
    assert (told.changes == 0) == same


@given(st.lists(json_values, max_size=8), st.lists(json_values, max_size=8))
def test_alignment_names_every_item_once(a: list[Any], b: list[Any]) -> None:
    pairs = structure.align(a, b)
    assert [i for i, _ in pairs if i is not None] == list(range(len(a)))
    assert [j for _, j in pairs if j is not None] == list(range(len(b)))


def test_what_is_equal_is_folded_and_the_changed_middle_of_a_text_is_marked() -> None:
    told = structure.difference(
        {"model": "m", "n": 1, "messages": [1, 2, 3], "effort": "high"},
        {"model": "m", "n": 1, "messages": [1, 2, 3, 4], "effort": "highest"},
    )
    text = text_of(told)
    assert "fold  model, n unchanged" in text
    assert "fold    3 messages unchanged" in text
    assert "add    4" in text
    assert told.changes == 2
    assert ("ins", "est") in [token for line in told.lines for token in line.tokens]


def test_true_is_not_one() -> None:
    assert structure.difference({"a": 1}, {"a": True}).changes == 1


STAGES = [
    {"system": ["a"], "messages": [1, 2, 3, 4], "effort": "high"},
    {"system": ["a"], "messages": [1, "trimmed", 4], "effort": "high"},
    {"system": ["a", "style"], "messages": [1, "trimmed", 4], "effort": "low"},
]


def test_each_changed_part_is_blamed_on_the_stage_that_changed_it_last() -> None:
    told = structure.blamed_lines(structure.blame(STAGES))
    blamed = {"".join(t for _, t in line.tokens).strip(",").strip(): line.by for line in told.lines if line.by}
    assert blamed == {'"trimmed"': 1, '"style"': 2, '"effort": "low"': 2}


@given(st.lists(json_values, min_size=1, max_size=4))
def test_blame_ends_with_the_last_document(stages: list[Any]) -> None:
    root = structure.blame(stages)
    assert structure.canonical(root.value) == structure.canonical(stages[-1])
    structure.blamed_lines(root)


def test_a_pipeline_shows_hits_misses_and_shadows_and_compares_any_two() -> None:
    recorded = [
        {"name": "app", "body": STAGES[0]},
        {
            "key": "trim",
            "revision": 7,
            "result": "hit",
            "mode": "enforce",
            "duration_us": 212.0,
            "patch": [{"op": "remove", "path": "/messages/1"}],
            "headers": [],
            "body": STAGES[1],
            "bytes_before": 90,
            "bytes_after": 70,
        },
        {"key": "prune", "revision": 2, "result": "miss", "mode": "enforce", "patch": [], "body": STAGES[1]},
        {"key": "style", "revision": 3, "result": "hit", "mode": "enforce", "patch": [], "body": STAGES[2]},
        {
            "key": "cheap",
            "revision": 1,
            "result": "hit",
            "mode": "shadow",
            "patch": [{"op": "replace", "path": "/model", "value": "x"}],
            "body": STAGES[2],
        },
        {"name": "provider", "body": STAGES[2]},
    ]
    line = pipeline.Pipeline(recorded, {}, None, None)
    assert [s.kind for s in line.stages] == ["app", "hit", "miss", "hit", "shadow", "provider"]
    assert line.picks(None, None) == (0, 5)
    assert line.picks("2", "99") == (2, 5)
    assert line.compare(1, 2, "structure").changes == 0
    assert line.compare(0, 1, "structure").changes > 0
    assert line.compare(0, 5, "text").changes > 0
    assert line.compare(0, 5, "patch").changes == 2
    assert "not applied" in line.stages[4].second
    assert {b.by for b in line.blamed().lines if b.by is not None} == {1, 3}


@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(["key", "result", "mode", "patch", "headers", "body", "name", "duration_us", "reason"]),
            json_values,
        ),
        max_size=4,
    )
)
def test_a_pipeline_takes_whatever_was_recorded(stages: list[dict[str, Any]]) -> None:
    line = pipeline.Pipeline([{**s, "body": s.get("body")} for s in stages], {}, None, None)
    a, b = line.picks("0", None)
    for how in ("structure", "text", "patch"):
        line.compare(a, max(b, 0), how)
    line.blamed()
    json.dumps([s.name for s in line.stages])


roles = st.sampled_from(["system", "user", "assistant", "tool"])


@given(st.lists(st.fixed_dictionaries({"role": roles, "content": st.text(max_size=5)}) | json_values, max_size=40))
def test_the_last_message_of_a_user_is_the_same_from_either_end(history: list[Any]) -> None:
    texts = [json.dumps(item).encode() for item in history]
    said = [message for message in messages.request({"messages": history}).messages if message.role == "user"]
    assert messages.last_of("user", texts, "/messages") == (said[-1] if said else None)


items = st.sampled_from(["function_call", "reasoning", "function_call_output", "x_call_output", "message"])


@given(
    st.lists(
        st.fixed_dictionaries({"role": roles, "content": st.text(max_size=5)})
        | st.fixed_dictionaries({"type": items, "output": st.text(max_size=3)})
        | json_values,
        max_size=30,
    ),
    st.sampled_from(["messages", "input"]),
    st.none() | st.integers(0, 40),
    st.integers(0, 40),
)
def test_a_stretch_of_a_history_is_a_stretch_of_its_messages(
    history: list[Any], key: str, before: int | None, most: int
) -> None:
    body = {"system": "s", key: history}
    whole = messages.request(body)
    part = messages.request(body, before, most)
    end = whole.count if before is None else min(before, whole.count)
    assert whole.count == part.count == len(whole.messages)
    assert part.messages == whole.messages[max(0, end - most) : end] and part.first == max(0, end - most)


def test_no_message_holds_more_than_can_be_shown() -> None:
    calls = [{"type": "function_call", "name": "f", "arguments": "{}", "call_id": str(n)} for n in range(2_000)]
    body = messages.request({"input": calls})
    assert body.count == 20 and sum(len(message.parts) for message in body.messages) == 2_000
    body = messages.request({"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}] * 2_000}]})
    (message,) = body.messages
    assert len(message.parts) == 501
    assert message.parts[-1].title == "1500 more" and message.parts[-1].cut
    assert message.parts[-1].pointer == "/messages/0/content"


def test_a_long_history_is_not_read_for_its_last_message(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[bytes] = []
    real = jsonview.read
    monkeypatch.setattr(jsonview, "read", lambda text: read.append(text) or real(text))
    history = [b'{"role":"user","content":"first"}', *[b'{"role":"assistant","content":"x"}'] * 5_000]
    history.insert(4_990, b'{"role":"user","content":"last"}')
    found = messages.last_of("user", history, "/messages")
    assert found is not None and found.parts[0].text == "last" and found.pointer == "/messages/4990"
    assert len(read) < 100
