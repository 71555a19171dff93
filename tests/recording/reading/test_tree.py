from __future__ import annotations

from uuid import UUID

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relayweb.recording.reading import queries, tree
from relayweb.recording.reading.rows import Row
from tests.recording import streams

ROOT = UUID(int=1)


def row(number, parent=None, **more):
    blank = {f.name: None for f in msgspec.structs.fields(Row)}
    fixed = {"uuid": UUID(int=number), "parent_uuid": UUID(int=parent) if parent else None, "turn_uuid": ROOT}
    fixed |= {"role": "scope", "name": "n", "status": "ok", "flags": 0, "seq": number, "last_us": number}
    return Row(**{**blank, **fixed, **more})


def walk(node):
    stack, found = [(node, 0)], []
    while stack:
        node, level = stack.pop()
        found.append((node, level))
        stack += [(child, level + 1) for child in reversed(node["children"])]
    return found


@given(
    st.lists(
        st.tuples(st.integers(0, 14), st.sampled_from(["scope", "tool", "logical_call", "attempt"]), st.booleans()),
        max_size=12,
    )
)
def test_whatever_hangs_where_every_scope_is_shown_once(scopes):
    rows = [row(1, role="turn")]
    for number, (parent, role, alone) in enumerate(scopes, 2):
        logical = UUID(int=number) if role == "attempt" and alone else None
        rows.append(row(number, parent, role=role, logical_uuid=logical))
    ordered = tree.flat(rows, ROOT)
    shown = [node["uuid"] for node in ordered if "synthetic" not in node["flags"]]
    assert sorted(shown) == sorted(str(r.uuid) for r in rows)
    nested = walk(tree.nest(ordered))
    assert [n["uuid"] for n, _ in nested] == [n["uuid"] for n in ordered]
    assert all(level == node["depth"] for node, level in nested)
    assert ordered[0]["uuid"] == str(ROOT) and ordered[0]["depth"] == 0


@settings(max_examples=25)
@given(st.integers(1, 600), st.integers(1, 600))
def test_deep_nodes_hang_at_the_limit_and_say_so(first, second):
    rows = [row(1, role="turn")]
    for base, length in ((10_000, first), (20_000, second)):  # two chains side by side
        rows += [row(base + i, base + i - 1 if i else 1) for i in range(length)]
    nested = walk(tree.nest(tree.flat(rows, ROOT)))
    assert len(nested) == len(rows)
    for node, level in nested:
        assert level == min(node["depth"], tree.NESTING + 1)
        assert ("flattened" in node["flags"]) == (node["depth"] > tree.NESTING + 1)


def test_the_children_of_a_scope_seen_twice_hang_under_the_first():
    rows = [
        row(1, role="turn"),
        row(2, 1, role="logical_call"),
        row(3, 1, role="logical_call", joined_uuid=UUID(int=2)),
    ]
    rows += [row(4, 3, role="attempt", logical_uuid=UUID(int=2)), row(5, 3, role="tool")]
    ordered = tree.flat(rows, ROOT)
    assert [(n["uuid"][-1], n["depth"]) for n in ordered] == [("1", 0), ("2", 1), ("4", 2), ("5", 2)]


def test_siblings_stand_in_order_of_time_whatever_the_order_of_rows():
    rows = [row(1, role="turn"), row(4, 1, start_us=30), row(3, 1, start_us=10), row(2, 1, start_us=20)]
    assert [n["uuid"][-1] for n in tree.flat(rows, ROOT)] == ["1", "3", "2", "4"]
    assert tree.flat(rows, ROOT) == tree.flat(rows[::-1], ROOT)


def test_nothing_is_no_tree():
    assert tree.flat([], ROOT) == [] and tree.nest([]) is None


@pytest.mark.parametrize(
    ("name", "category"),
    [
        ("plan", "function"), ("read", "tool"), ("custom", "llm"), ("relay.logical_llm_call", "function"),
        ("relay.turn", "function"), ("relay.session", "agent"), ("worker", "agent"),
    ],
)  # fmt: skip
def test_a_scope_that_is_its_own_parent_is_the_root_of_its_tree(record, name, category):
    own, inner = streams.uid(), streams.uid()
    record(
        streams.scope("start", own, own, 1, name=name, category=category),
        streams.scope("start", inner, own, 2, name="inner", category="tool"),
    )
    shown = walk(queries.turn(own)["tree"])
    assert [node["uuid"] for node, _ in shown if "synthetic" not in node["flags"]] == [own, inner]
    assert [turn["uuid"] for turn in queries.turns()["turns"]] == [own]


def test_every_scope_of_a_circle_is_in_one_tree(record):
    uuids = [streams.uid() for _ in range(4)]
    for i in (2, 0, 3, 1):
        record(streams.scope("start", uuids[i], uuids[i - 1], i, name="plan"))
    assert [turn["uuid"] for turn in queries.turns()["turns"]] == [min(uuids)]
    assert sorted(node["uuid"] for node, _ in walk(queries.turn(min(uuids))["tree"])) == sorted(uuids)
