from __future__ import annotations

import json
from typing import get_args

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client
from ninja import Schema

from relayweb.access import tokens
from tests.recording.recorded import Talk, answer, chunk, uid

pytestmark = pytest.mark.django_db(transaction=True)

TURN = """
    uuid session_id profile name status outcome started_at ended_at duration_us logical_calls attempts retries rewrites
    tools chunks usage cost_usd wasted_usd models providers error
"""
NODE = "uuid parent_uuid role category name status outcome started_at ended_at duration_us flags children "
CALL = NODE + "call_role api_request_id retries"
ATTEMPT = NODE + "provider model api_mode attempt streaming ttft_us chunk_count finish_reason usage error"


def named(members):
    return set(members.split())


@pytest.fixture
def get():
    client = Client(headers={"authorization": "Bearer " + tokens.create("tests", "read")})

    def ask(path, status=200):
        found = client.get("/api/v1/" + path)
        assert found.status_code == status, found.content
        assert found["content-type"].startswith("application/json") and found.content.isascii()
        return json.loads(found.content)

    return ask


@pytest.fixture
def talk():
    talk = Talk("s/1", profile="p")
    talk.the_call = talk.call()
    talk.the_attempt = talk.attempt(talk.the_call, asks="Grüße 🚀", out=answer("ありがとう"))
    talk.add(*[chunk(talk.the_attempt, i, 30 + i) for i in range(3)])
    talk.the_tool = talk.tool("terminal")
    talk.record()
    return talk


def test_turns_and_their_tree_have_every_promised_member(get, talk):
    (turn,) = get("turns")["turns"]
    assert named(TURN) <= set(turn)
    whole = get(f"turns/{talk.turn}")
    assert {k: v for k, v in whole.items() if k != "tree"} == turn
    root = whole["tree"]
    call, tool = root["children"]
    (attempt,) = call["children"]
    assert named(NODE) <= set(root) & set(tool) and named(CALL) <= set(call) and named(ATTEMPT) <= set(attempt)
    assert (root["role"], call["role"], attempt["role"], tool["role"]) == ("turn", "logical_call", "attempt", "tool")
    assert get(f"scopes/{talk.the_attempt}")["chunk_count"] == 3


def test_every_answer_matches_its_schema(get, talk):
    from relayweb.api import schemas

    pages = {
        "turns": schemas.TurnPage,
        f"turns/{talk.turn}": schemas.TurnWithTree,
        "sessions": schemas.SessionPage,
        "sessions/s/1": schemas.SessionWithTurns,
        f"scopes/{talk.the_attempt}": schemas.Node,
        f"scopes/{talk.the_attempt}/request": schemas.RequestBody,
        f"scopes/{talk.the_attempt}/response": schemas.ResponseBody,
        f"scopes/{talk.the_attempt}/chunks": schemas.ChunkPage,
        f"scopes/{talk.the_attempt}/rewrites": schemas.Rewrites,
        f"scopes/{talk.the_attempt}/events": schemas.Events,
        "ruleset": schemas.Ruleset,
        "health": schemas.Health,
    }
    for path, schema in pages.items():
        told = get(path)
        schema.model_validate(told)
        assert not list(undeclared(schema, told)), path


def undeclared(schema, told, place=""):
    """The members of an answer that its schema does not name."""
    for name, value in told.items():
        field = schema.model_fields.get(name)
        if field is None:
            yield f"{place}{name}"
            continue
        inner = [found for found in schemas_in(field.annotation) if isinstance(found, type)]
        for one in inner:
            for item in value if isinstance(value, list) else [value] if isinstance(value, dict) else []:
                yield from undeclared(one, item, f"{place}{name}.")


def schemas_in(annotation):
    """The schemas in a type such as `list[Turn] | None`."""
    if isinstance(annotation, type) and issubclass(annotation, Schema):
        yield annotation
    for part in get_args(annotation):
        yield from schemas_in(part)


def test_bodies_are_the_recorded_values_in_ascii(get, talk):
    assert get(f"scopes/{talk.the_attempt}/request")["request"]["messages"][0]["content"] == "Grüße 🚀"
    assert get(f"scopes/{talk.the_attempt}/response")["response"] == answer("ありがとう")
    assert get(f"scopes/{talk.the_tool}/request")["request"] == {"x": 1}
    assert [c["index"] for c in get(f"scopes/{talk.the_attempt}/chunks")["chunks"]] == [0, 1, 2]
    assert get(f"scopes/{talk.the_attempt}/chunks?offset=1&limit=1")["next"] == 2
    kinds = [e["scope_category"] for e in get(f"scopes/{talk.the_attempt}/events")["events"]]
    assert kinds == ["start", "end"]
    assert [s["name"] for s in get(f"scopes/{talk.the_attempt}/rewrites")["stages"]] == ["app", "provider"]


def test_pages_are_followed_by_cursor(get):
    turns = {Talk(f"s-{i}", start=i * 10_000).record() for i in range(5)}
    seen, cursor = [], ""
    while cursor is not None:
        page = get(f"turns?limit=2&cursor={cursor}")
        seen += [turn["uuid"] for turn in page["turns"]]
        cursor = page["next"]
    assert len(seen) == 5 and set(seen) == turns


def test_a_wrong_request_is_answered_with_its_place_and_mend(get, talk):
    found = get("turns?q=status:ok%20modle:x", 400)
    assert found.pop("error") == "There is no field modle. Did you mean model:?"
    assert found == {"field": "q", "column": 11, "length": 6, "suggestion": "model:x"}
    for path, field in (
        ("turns?limit=0", "limit"),
        ("turns?limit=501", "limit"),
        ("turns?limit=many", "limit"),
        ("turns?cursor=x", "cursor"),
        ("sessions?cursor=x", "cursor"),
        ("turns/nonsense", "uuid"),
        (f"scopes/{talk.the_attempt}/chunks?offset=-1", "offset"),
    ):
        found = get(path, 400)
        assert found["field"] == field and found["error"]


def test_what_is_not_there_is_404_and_named(get, talk):
    nobody = uid()
    for path in (
        f"turns/{nobody}",
        "sessions/nobody",
        *(f"scopes/{nobody}{p}" for p in ("", "/request", "/chunks", "/events")),
    ):
        assert path.split("/")[1].split("?")[0] in get(path, 404)["error"]


def test_a_fault_inside_is_json_too(talk, monkeypatch, caplog):
    def broken(*args, **more):
        raise RuntimeError("boom with a secret")

    monkeypatch.setattr("relayweb.api.views.queries.turns", broken)
    client = Client(raise_request_exception=False, headers={"authorization": "Bearer " + tokens.create("t", "read")})
    found = client.get("/api/v1/turns")
    assert (found.status_code, "boom" in found.content.decode()) == (500, False)
    assert "error" in found.json() and "boom" in caplog.text


def test_rules_are_sent_once_to_a_reader_who_names_those_it_has():
    client = Client(headers={"authorization": f"Bearer {tokens.create('t', 'read')}"})
    first = client.get("/api/v1/ruleset")
    assert first["ETag"] == f'"{first.json()["etag"]}"'
    again = client.get("/api/v1/ruleset", headers={"if-none-match": first["ETag"]})
    assert (again.status_code, again.content, again["ETag"]) == (304, b"", first["ETag"])
    assert client.get("/api/v1/ruleset", headers={"if-none-match": '"older"'}).status_code == 200


# Who may read


@pytest.mark.parametrize(
    "path", ["turns", "sessions", "ruleset", "health", "openapi.json", f"turns/{uid()}", f"scopes/{uid()}/request"]
)
def test_nothing_is_told_without_a_token_or_a_login(path):
    found = Client().get("/api/v1/" + path)
    assert found.status_code == 401
    assert "relayweb token create --scope read" in found.json()["error"]
    assert found["www-authenticate"].startswith("Bearer")


@pytest.mark.parametrize("scope", ["ingest", "gateway"])
def test_a_token_for_something_else_does_not_read(scope):
    token = tokens.create("t", scope)
    assert Client(headers={"authorization": f"Bearer {token}"}).get("/api/v1/turns").status_code == 401


def test_a_read_token_works_in_either_header_and_not_in_the_url():
    token = tokens.create("t", "read")
    assert Client(headers={"x-relay-token": token}).get("/api/v1/turns").status_code == 200
    assert Client(headers={"authorization": f"bearer {token}"}).get("/api/v1/turns").status_code == 200
    assert Client().get(f"/api/v1/turns?token={token}").status_code == 401


def test_a_revoked_token_reads_no_more():
    from relayweb.access.models import Token

    token = tokens.create("t", "read")
    tokens.revoke(Token.objects.get())
    assert Client(headers={"x-relay-token": token}).get("/api/v1/turns").status_code == 401


def test_a_person_reads_who_may_view():
    from relayweb.access.permissions import give_groups_their_permissions

    give_groups_their_permissions()
    stranger = User.objects.create_user("stranger")
    viewer = User.objects.create_user("viewer")
    viewer.groups.add(Group.objects.get(name="viewer"))
    client = Client()
    client.force_login(stranger)
    assert client.get("/api/v1/turns").status_code == 401
    client.force_login(viewer)
    assert client.get("/api/v1/turns").status_code == 200


# OpenAPI


def test_the_schema_names_every_path_and_loads_nothing_from_elsewhere(get):
    schema = get("openapi.json")
    paths = set(schema["paths"])
    for path in ("turns", "turns/{uuid}", "sessions", "sessions/{session_id}", "scopes/{uuid}", "ruleset", "health"):
        assert f"/api/v1/{path}" in paths
    for part in ("request", "response", "chunks", "rewrites", "events"):
        assert f"/api/v1/scopes/{{uuid}}/{part}" in paths
    assert Client().get("/api/v1/docs").status_code in (401, 404)


def test_b65_hostile_queries_are_answered_never_broken(get, talk):
    for q in (
        "%00",
        "'; DROP TABLE x; --",
        "%25",
        "_",
        "model:%25",
        "model:_",
        '"%22"',
        "*",
        "-*",
        "model:*",
        "[",
        "model:[",
        "\\",
        "🚀*",
        "AND OR NOT",
        "NEAR(a b)",
        "x" * 1999,
    ):
        found = Client(headers={"x-relay-token": tokens.create("q", "read")}).get("/api/v1/turns", {"q": q})
        assert found.status_code in (200, 400), (q, found.content)
    assert get("turns?q=model:_")["turns"] == []
