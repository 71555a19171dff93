"""Secrets are masked at the door: planted everywhere, found nowhere."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.db import connection
from hypothesis import given
from hypothesis import strategies as st

from relayweb.recording.events import masking
from relayweb.recording.events.atof import parse, restore_surrogates
from relayweb.recording.models import Event
from relayweb.recording.store.content import Store
from relayweb.recording.writing.recorder import Line
from tests.recording import streams
from tests.recording.test_lossless import texts

Record = Callable[..., list[Line]]
CANARY = "CANARY0123456789"


def leaks() -> list[str]:
    """Where the canary stands: in a text that can be read back, in any column of any table, in any file."""
    found = ["text" for text in texts() if CANARY.encode() in text]
    with connection.cursor() as cursor:
        for table in connection.introspection.table_names():
            if not table.startswith("recording_"):
                continue
            cursor.execute(f"SELECT * FROM {table}")
            for row in cursor.fetchall():
                found += [table for value in row if CANARY in str(value) or CANARY.encode() in bytes_of(value)]
    if connection.vendor == "sqlite":
        name = Path(django_settings.DATABASES["default"]["TEST"]["NAME"])
        found += [p.name for p in name.parent.glob(name.name + "*") if CANARY.encode() in p.read_bytes()]
    return found


def bytes_of(value: Any) -> bytes:
    return bytes(value) if isinstance(value, bytes | memoryview) else b""


PARTS = [*('{"api', '_key":', '"to', 'ken":', ",", '"x"', '"sk', "-abc", "Bear", "er a", "eyJ", "\\u00", '64"', "}")]
NAMES = ["authorization", "Proxy-Authorization", "api_key", "apiKey", "X-API-Key", "cookie", "Set-Cookie", "secret"]
NAMES += ["password", "access_token", "refreshToken", "auth-token", "AUTHORIZATION", "DB_PASSWORD", "private_key"]
NAMES += ["Ocp-Apim-Subscription-Key", "passwd", "ssh_passphrase", "id_token", "cookies", "aws.SecretAccessKey"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", [0, 2_000])
def test_a_member_with_the_name_of_a_secret_loses_its_value_at_any_depth(record: Record, name: str, size: int) -> None:
    planted = {"a": [{"b": {name: f"{CANARY}{'x' * size}", "kept": "yes"}}]}
    uuid = streams.uid()
    message = {"role": "assistant", "content": "y" * size, "tool_calls": [{"arguments": {name: [CANARY, 1]}}]}
    data = {"content": {"messages": [message], "extra": planted, "tools": [planted]}, "headers": {name: CANARY}}
    record(
        streams.scope("start", uuid, None, 1, category="llm", data=data, metadata=planted, profile={"x": planted}),
        streams.chunk(uuid, 0, 2, value=planted),
        streams.mark("relay.chunks", uuid, 3, {"first": 0, "chunks": [planted]}),
        streams.mark("relay.rewrite", uuid, 3, {"key": "k", "patch": [{"op": "add", "path": "/x", "value": planted}]}),
        streams.scope("end", uuid, None, 5, category="llm", data={"error": planted}, metadata=planted),
    )
    assert not leaks()
    assert all(b'"kept":"yes"' in text for text in texts())


@pytest.mark.parametrize(
    "secret", [f"Bearer {CANARY}", f"sk-{CANARY}", f"AKIA{CANARY}", f"eyJ{CANARY}.{CANARY}.{CANARY}"]
)
@pytest.mark.parametrize("size", [0, 2_000])
def test_credentials_are_masked_in_headers_metadata_and_error_texts(record: Record, secret: str, size: int) -> None:
    uuid, text = streams.uid(), f"{'z ' * size} given: {secret} end"
    failed = {**streams.FAILED, "otel.status_description": text, "x": {"y": text}}
    data = {"content": {"messages": []}, "headers": {"x-custom": text}}
    record(
        streams.scope("start", uuid, None, 1, category="llm", data=data, metadata={"note": [text]}),
        streams.mark(
            "relay.attempt_failed", uuid, 2, {"status": 401, "message": text, "body": text, "error_type": None}
        ),
        streams.mark("relay.attempt_blocked", uuid, 2, {"stage": "guardrail", "reason": text, "request": {}}),
        streams.scope("end", uuid, None, 3, category="llm", data={"error": {"message": text}}, metadata=failed),
    )
    assert not leaks()


KEYS = [
    *("sk-proj-PLANTED", "sk-ant-api03-PLANTED", "csk-PLANTED", "xai-PLANTED", "nvapi-PLANTED", "gsk_PLANTED"),
    *("AIzaSyPLANTEDabcdefgh", "ya29.a0PLANTED", "hf_PLANTED", "r8_PLANTED", "pplx-PLANTED", "fw_PLANTED"),
    *("tgp_v1_PLANTED", "lsv2_pt_PLANTED", "pk-lf-PLANTED", "tvly-PLANTED", "vck_PLANTED", "ntn_PLANTED"),
    *("ghp_PLANTED", "github_pat_11PLANTED", "glpat-PLANTED", "xoxb-12-PLANTED", "sk_live_PLANTED", "whsec_PLANTED"),
    *("npm_PLANTED", "pypi-AgEIPLANTED", "ASIAPLANTED", "ABSKPLANTED", "dapi0123456789abcdefPLANTED"),
    "AccountName=x;AccountKey=PLANTED==;EndpointSuffix=y",
    "https://x.blob.core.windows.net/c?sv=2024&sig=PLANTED%3D",
    "Server=x;User Id=y;Password=PLANTED;",
    "host=x user=y password=PLANTED",
    "https://PLANTED@github.com/x.git",
    "redis://:PLANTED@h:6379/0",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIEPLANTED\nPLANTED\n-----END RSA PRIVATE KEY-----",
    "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlPLANTED",
    "Cookie: sid=PLANTED; a=b",
    "set-cookie: sid=PLANTED; Path=/",
    "Authorization: Token PLANTED",
    'authorization: Digest username="x", response="PLANTED"',
    "x-api-key: PLANTED",
    'export AWS_SECRET_ACCESS_KEY="PLANTED"',
    "eyJhbGciOiJkaXIi.PLANTED.PLANTED.PLANTED.PLANTED",
    json.dumps({"type": "service_account", "private_key": "PLANTED"}),
]


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("size", [0, 2_000])
def test_keys_of_providers_are_known_by_how_they_begin_wherever_texts_are_loose(
    record: Record, key: str, size: int
) -> None:
    uuid, secret, fill = streams.uid(), key.replace("PLANTED", CANARY), "y" * size
    text = f"{'z ' * (size // 2)} {secret}"
    said = {"role": "assistant", "content": fill, "metadata": {"x": secret}, "error": {"message": secret}}
    data = {"content": {"messages": [said]}, "headers": {"x-custom": text}}
    record(
        streams.scope("start", uuid, None, 1, category="llm", data=data, metadata={"note": [text], secret: 1}),
        streams.chunk(uuid, 0, 2, error={"message": text}),
        streams.mark("relay.chunks", uuid, 2, {"first": 0, "chunks": [{"type": "error", "error": {"message": text}}]}),
        streams.mark("relay.attempt_failed", uuid, 2, {"status": 401, "message": text, "body": text}),
        streams.scope("end", uuid, None, 3, category="llm", data={"choices": [{"message": said}]}),
    )
    assert not leaks()


ARGUMENTS = [
    json.dumps({"password": "PLANTED", "n": 1}),
    json.dumps({"a": [{"clientSecret": 'PLANTED"PLANTED'}]}, indent=1),
    json.dumps({"body": json.dumps({"api_key": "PLANTED"})}),
    '{"user": "x", "password": "PLANTED", "url": "https://',
    '{"password": "PLANTED',
]


@pytest.mark.parametrize("arguments", ARGUMENTS)
@pytest.mark.parametrize("size", [0, 2_000])
def test_arguments_of_tools_that_are_json_in_a_text_are_members_too(record: Record, arguments: str, size: int) -> None:
    uuid, given = streams.uid(), arguments.replace("PLANTED", CANARY)
    call = {"id": "c", "function": {"name": "login", "arguments": given}}
    said = {"role": "assistant", "content": "y" * size, "tool_calls": [call]}
    item = {"type": "function_call", "name": "login", "arguments": given, "note": "y" * size}
    delta = {"type": "content_block_delta", "delta": {"type": "input_json_delta", "partial_json": given}}
    piece = {"choices": [{"delta": {"tool_calls": [call]}}]}
    wide = {"arguments": given, **{f"n{i}": i for i in range(100)}}
    record(
        streams.scope("start", uuid, None, 1, category="llm", data={"content": {"messages": [said], "input": [item]}}),
        streams.mark("relay.chunks", uuid, 2, {"first": 0, "chunks": [delta]}),
        streams.mark("relay.chunks", uuid, 2, {"first": 1, "chunks": [piece, {"fill": "y" * size}]}),
        streams.scope("start", streams.uid(), uuid, 2, category="tool", data=wide),
        streams.scope("end", uuid, None, 3, category="llm", data={"choices": [{"message": said}], "output": [item]}),
    )
    assert not leaks()


def test_arguments_of_tools_without_a_secret_keep_their_text(record: Record) -> None:
    given = '{ "note": "the \\"token\\": and getToken()", "tokens": 1.50, "password": "" }'
    call = {"id": "c", "function": {"name": "f", "arguments": given}}
    event = streams.scope("end", streams.uid(), None, 1, category="llm", data={"message": {"tool_calls": [call]}})
    record(event)
    assert json.loads(texts()[0]) == event


def test_names_that_are_keys_are_masked_where_texts_are_loose(record: Record) -> None:
    spent = {f"sk-{CANARY}{i}": i for i in range(3)}
    record(streams.scope("start", streams.uid(), None, 1, metadata={"spent": spent}))
    assert not leaks()
    assert sorted(json.loads(texts()[0])["metadata"]["spent"].values()) == [0, 1, 2]


def test_base64_of_json_with_a_secret_member_is_masked(record: Record) -> None:
    hidden = base64.b64encode(json.dumps({"auth": "x", "password": CANARY}).encode()).decode()
    plain = base64.b64encode(json.dumps({"cursor": 12345, "page": 3}).encode()).decode().rstrip("=")
    record(streams.scope("start", streams.uid(), None, 1, metadata={"x-registry-auth": hidden, "next": plain}))
    assert hidden[:20].encode() not in texts()[0] and plain.encode() in texts()[0]


PLACES: list[Any] = [
    [["accept", "*/*"], ["x-api-key", "PLANTED"]],
    [["cookie", "PLANTED"]],
    [{"name": "x-api-key", "value": "PLANTED"}, {"name": "accept", "value": "*/*"}],
    {"x-amz-security-token": "PLANTED", "AWS_SECRET_ACCESS_KEY": "PLANTED", "aws_session_token": "PLANTED"},
    "GET https://x.example/v1?api_key=PLANTED&n=1",
    "GET https://x.example/v1?n=1&token=PLANTED",
    "GET https://x.example/v1?key=PLANTED",
    "postgres://user:PLANTED@db.example/x",
    json.dumps({"api_key": "PLANTED", "n": 1}),
    json.dumps({"headers": [["cookie", 'PLANTED"PLANTED']]}, indent=1),
    json.dumps({"deep": json.dumps({"password": "PLANTED"})}),
    "refused: " + json.dumps({"api_key": "PLANTED"}),
    "refused: " + str({"x-relay-token": "PLANTED"}),
]


@pytest.mark.parametrize("place", PLACES, ids=str)
@pytest.mark.parametrize("size", [0, 2_000])
def test_secrets_in_pairs_addresses_and_json_texts_of_headers_metadata_and_errors(
    record: Record, place: Any, size: int
) -> None:
    uuid = streams.uid()
    planted = json.loads(json.dumps(place).replace("PLANTED", CANARY + "x" * size))
    headers = planted if isinstance(planted, list | dict) else {"x-custom": planted}
    data: Any = {"content": {"messages": []}, "headers": headers, "extra_headers": headers}
    failed = {**streams.FAILED, "otel.status_description": str(planted), "x": [planted], "fill": "y" * size}
    record(
        streams.scope("start", uuid, None, 1, category="llm", data=data, metadata={"a": planted, "kept": "yes"}),
        streams.mark("relay.attempt_failed", uuid, 2, {"status": 401, "message": str(planted), "body": planted}),
        streams.scope("end", uuid, None, 3, category="llm", data={"error": {"message": planted}}, metadata=failed),
    )
    assert not leaks()
    assert any(b'"kept":"yes"' in text for text in texts())


@pytest.mark.parametrize(
    "metadata",
    [
        {"note": '{ "n": 1.50, "a": [1,  2] }', "mail": "a@b.example", "see": "https://x.example/?q=1&n=2"},
        {"schema": {"required": ["api_key", "password"], "enum": ["token", "cookie"]}},
        {"tags": [["tokens", "1"]], "prompt_tokens": 3, "said": 'the "key" is "here"'},
    ],
)
def test_what_only_resembles_a_secret_keeps_its_text(metadata: dict[str, Any]) -> None:
    text = json.dumps({"metadata": metadata}, separators=(",", ":")).encode()
    assert masking.mask(text) == text


def test_message_text_is_left_alone(record: Record) -> None:
    event = streams.scope(
        "start", streams.uid(), None, 1, category="llm", data=streams.request("use sk-abcdefgh12345678")
    )
    record(event)
    assert json.loads(texts()[0]) == event


def test_headers_of_a_sink_in_a_plugin_config_are_masked_whatever_their_name(record: Record) -> None:
    sinks = [{"headers": {"x-anything": CANARY}, "url": "http://collector"}]
    config = {"components": [{"config": {"atof": {"sinks": sinks}}}]}
    record(streams.scope("start", streams.uid(), None, 1, category="agent", metadata={"plugin_config": config}))
    assert not leaks() and b"http://collector" in texts()[0]


def test_the_schema_of_a_tool_parameter_named_password_is_no_secret(record: Record) -> None:
    schema = {"properties": {"password": {"type": "string", "description": "as typed"}}, "type": "object"}
    event = streams.scope("start", streams.uid(), None, 1, category="llm", data={"content": {"tools": [schema] * 9}})
    record(event)
    assert json.loads(texts()[0]) == event


def test_a_masked_event_says_so_and_comes_again_as_a_duplicate(record: Record) -> None:
    event = streams.scope("start", streams.uid(), None, 1, metadata={"api_key": CANARY})
    record(event)
    assert Event.objects.get().flags == Event.Flag.MASKED
    assert record(event)[0].duplicate and not leaks()


@pytest.mark.parametrize("name", ["\\u0061uthorization", "api\\u005fkey"])
def test_an_escaped_name_is_no_way_around(record: Record, name: str) -> None:
    line = streams.line(streams.scope("start", streams.uid(), None, 1))
    record(line.replace(b'"data":null', f'"data":{{"{name}":"{CANARY}"}}'.encode()))
    assert not leaks()


def test_what_the_prefilter_lets_pass_holds_no_secret() -> None:
    for text in (b'{"prompt_tokens":3,"key_points":[1]}', b'{"tokens":"a","monkey":1}'):
        assert masking.mask(text) == text


@given(st.lists(st.lists(st.sampled_from(PARTS), min_size=1, max_size=4).map("".join), min_size=1, max_size=8))
def test_the_prefilter_forgets_no_sign_of_a_secret_for_what_it_saw_before(seen: list[str]) -> None:
    prefilter = masking.Prefilter()
    for text in map(str.encode, seen):
        alone = masking.suspects_credentials(text) or masking.suspects_names(text)
        assert prefilter.suspects(text) or not alone


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("a eyJhbGciOi.eyJzdWIiO.s-_g b", "a [masked] b"),
        ("token-eyJhbGciOi.eyJzdWIiO", "token-[masked]"),
        ("eyJhbGciOi.eyJzdWIiO.sig.rest", "[masked].rest"),
        ("Incorrect API key provided: sk-proj-abcd1234.", "Incorrect API key provided: [masked]."),
        ("missing authorization: header required", "missing authorization: header required"),
        ("Unexpected token: '<' at 12", "Unexpected token: '<' at 12"),
        ("max_tokens=4096000000&npm_config_registry", "max_tokens=4096000000&npm_config_registry"),
        ("hf_hub_download_failed and task_id_0123456789abc", "hf_hub_download_failed and task_id_0123456789abc"),
        ("see eyJ.eyJabc and keyJabcdef.abcdefgh", "see eyJ.eyJabc and keyJabcdef.abcdefgh"),
        ("/gw/t/rw_gateway_0123456789012345678901234567890123456789012/openai", "/gw/t/[masked]/openai"),
    ],
)
def test_credentials_go_and_what_stands_beside_them_stays(text: str, masked: str) -> None:
    assert masking.mask_text(text) == masked


@pytest.mark.parametrize("name", ["OPENAI_API_KEY", "x-goog-api-key", "http.request.header.x-api-key", "client_secret"])
def test_names_that_end_with_that_of_a_key_are_secret(name: str) -> None:
    text = json.dumps({name: CANARY}).encode()
    assert masking.suspects_names(text) and CANARY.encode() not in masking.mask(text)


@pytest.mark.parametrize(
    "part",
    [
        "-eyJabcdef",
        "eyJ.",
        "bearer ",
        "sk-",
        "basic\t\t",
        "AKIA",
        "rw_read_",
        "-eyJab.a",
        "?a",
        "&token",
        "://a:",
        "a@:",
        "\\",
        '"a',
        "'key':",
        "?key=",
        "token=a",
        "api-key:",
        "authorization:a ",
        "cookie: a",
        "-----BEGIN PRIVATE KEY-----",
        "eyJhIjoi",
        '"a":"',
        "eyJabcdef..a.",
    ],
)
def test_hostile_text_takes_time_in_proportion_to_its_length(part: str) -> None:
    began = time.process_time()
    masking.mask_text(part * (1_000_000 // len(part)))
    masking.mask(json.dumps({"arguments": part * (1_000_000 // len(part))}).encode())
    assert time.process_time() - began < 5


ODD_NAMES = [
    *NAMES,
    "a\nb",
    "exception.message",
    "request_headers",
    "error",
    "é",
    "x",
    "value",
]
ODD_VALUES = [
    1,
    None,
    "",
    "plain",
    f"Bearer {CANARY}",
    f"https://h/?token={CANARY}",
    '{"api_key":"x"}',
    ["x-api-key", "v"],
]
inner = st.dictionaries(st.sampled_from(ODD_NAMES), st.sampled_from(ODD_VALUES), max_size=3)
members = st.dictionaries(st.sampled_from(ODD_NAMES), st.one_of(st.sampled_from(ODD_VALUES), inner), max_size=8)


@given(
    members,
    st.lists(st.one_of(st.sampled_from(ODD_VALUES), inner), max_size=8),
    st.sampled_from([masking.PLAIN, masking.ARGUMENTS, masking.LOOSE]),
    st.booleans(),
)
def test_among_many_members_the_same_is_masked_as_among_few(
    odd: dict[str, Any], items: list[Any], loose: int, spaced: bool
) -> None:
    separators = (", ", ": ") if spaced else (",", ":")
    many = {f"plain{i}": {"n": i} if i % 7 else f"text {i}" for i in range(100)}

    def masked(value: Any) -> Any:
        return json.loads(masking.mask(json.dumps(value, separators=separators).encode(), loose))

    assert masked({**many, **odd}) == {**many, **masked(odd)}
    few = [masked([item, 0, 0])[0] for item in items]
    assert masked([*items, *many.values()]) == [*few, *many.values()]


@pytest.mark.parametrize("end", [False, True])
@pytest.mark.parametrize("where", ["data", "metadata", "list"])
def test_one_secret_among_very_many_members_costs_little_more_than_none(where: str, end: bool) -> None:
    many = {f"key{i}": i for i in range(100_000)}

    def seconds(secret: dict[str, str]) -> float:
        event = streams.scope("end" if end else "start", streams.uid(), None, 1, category="llm" if end else "tool")
        if where == "list":
            event["data"] = {"l": [{"n": n} for n in many.values()], **secret}
        else:
            event[where] = {"a": {**many, **secret}}
        store, line = Store(), streams.line(event)
        parsed, began = store.parse(line), time.process_time()
        packed = store.pack(parsed)
        taken = time.process_time() - began
        pieces = b"".join((packed.line if packed.masked else packed.text, *(piece.text for piece in packed.refs)))
        assert CANARY.encode() not in pieces
        return taken

    without = min(seconds({"plain": "x"}) for _ in range(3))
    assert min(seconds({"api_key": CANARY}) for _ in range(3)) < 6 * without + 0.1


@pytest.mark.parametrize("size", [0, 2_000])
@pytest.mark.parametrize(
    "hidden",
    [
        '"data":{"password":"CANARY0123456789","password":1,"fill":"FILL"}',
        '"data":{"inner":{"api_key":"CANARY0123456789"},"inner":1,"fill":"FILL"}',
        '"data":[{"inner":[{"api_key":"CANARY0123456789"}],"inner":1,"fill":"FILL"}]',
        '"data":{"password":"CANARY0123456789"},"data":{"fill":"FILL"}',
        '"metadata":{"note":"Bearer CANARY0123456789","note":"FILL"}',
    ],
)
def test_a_second_member_of_the_same_name_hides_no_secret(record: Record, hidden: str, size: int) -> None:
    line = json.dumps(streams.mark("note", None, 1))
    filled = hidden.replace("FILL", "x" * size)
    record(f"{line[:-1]},{filled}}}".encode())
    assert Event.objects.count() == 1
    assert leaks() == []


def test_lone_surrogates_beside_a_secret_stay_where_they_were() -> None:
    text = "a \\ud800 b \ue000 c \\ufffd d"
    line = (
        f'{{"atof_version":"0.1","kind":"mark","name":"{text}","uuid":"019b76da-0000-7000-8000-000000000001",'
        f'"timestamp":1,"data":{{"api_key":"sk-123456789 \\udfff","x":"{text}","\\udBFf":["\\uDC00"]}}}}'
    ).encode()
    event = parse(line)
    masked, surrogates = masking.mask_parsed(event)
    wanted = json.loads(line)
    wanted["data"]["api_key"] = masking.MASK
    assert json.loads(restore_surrogates(masked, surrogates)) == wanted
    assert b"sk-123" not in masked
    parse(masked)
