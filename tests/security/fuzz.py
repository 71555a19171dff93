"""Coverage-guided fuzzing of what reads the bytes of others: `make fuzz SECONDS=60`, with atheris (libFuzzer)."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import tests.settings  # noqa: E402, F401 - a home of its own

with atheris.instrument_imports(include=["adapters", "relayweb"]):
    import os

    import django

    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
    django.setup()
    from adapters import sse
    from adapters.intercepts import Rule, RuleError
    from relayweb.access import hosts
    from relayweb.access.log import route
    from relayweb.gateway import headers, routes
    from relayweb.gateway.addresses import is_forbidden_address
    from relayweb.gateway.exchange import decoded
    from relayweb.ingest.otlp import logs, spans
    from relayweb.ingest.otlp.values import BadRequest
    from relayweb.ingest.reading import BodyError, decoder, unpacked
    from relayweb.ingest.tally import pieces
    from relayweb.recording.events import atof, masking
    from relayweb.recording.reading.query_language import QueryError, parse
    from relayweb.recording.writing.submissions import split
    from relayweb.ui.inspect import markdown


def read_sse(data: bytes) -> None:
    splitter = sse.Splitter()
    slices = splitter.feed(data[: len(data) // 2]) + splitter.feed(data[len(data) // 2 :])
    rest = splitter.rest()
    assert b"".join(one.raw for one in slices) + (rest.raw if rest else b"") == data


def read_event(data: bytes) -> None:
    try:
        atof.parse(data)
        masking.mask_event(data)
    except atof.BadEvent:
        pass


def read_query(data: bytes) -> None:
    try:
        parse(data.decode("utf-8", "replace"))
    except QueryError as error:
        assert error.message


def read_body(data: bytes) -> None:
    for coding in ("gzip", "zstd"):
        decoded(data, coding)
        with contextlib.suppress(BodyError):
            for part in unpacked(decoder(coding), data):
                assert b"".join(pieces(part)) == part
    numbers, lines = split(data, 0)
    assert len(numbers) == len(lines)


def read_request(data: bytes) -> None:
    """What a client says of where its call goes, and what of it goes on."""
    text = data.decode("latin-1")
    parsed = routes.parse(f"/gw/{text}")
    routes.api_mode("POST", parsed.rest)
    climbs = routes.climbs(parsed.rest)
    assert climbs or not routes.climbs(f"a/{parsed.rest}")
    headers.read_caller([(b"x-relay-session-id", data)])
    headers.read_token([(b"authorization", data)])
    headers.url_to_upstream(f"https://host/?{text}")
    is_forbidden_address(text)
    said = {"headers": [(b"host", b"127.0.0.1"), (b"origin", data)]}
    assert not hosts.origin_allowed(said) or data.lower() in (b"http://127.0.0.1", b"https://127.0.0.1")
    assert "\n" not in route(text)


def read_markdown(data: bytes) -> None:
    shown = markdown.render(data.decode("utf-8", "replace"))
    assert shown is None or not any(tag in shown for tag in ("<script", "<img", "<svg", "<iframe", "javascript:"))


def read_otlp(data: bytes) -> None:
    for read in (spans.from_json, spans.from_protobuf):
        with contextlib.suppress(BadRequest):
            read(data)
    for read_logs in (logs.from_json, logs.from_protobuf):
        with contextlib.suppress(BadRequest):
            for record in read_logs(data):
                logs.events(record)


def read_rule(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    try:
        Rule.parse({"key": text[:20], "match": {"model": [text]}, "action": {"type": "redact", "patterns": [text]}})
    except RuleError as error:
        assert error.field


READERS = (read_sse, read_event, read_query, read_body, read_otlp, read_rule, read_request, read_markdown)


def one(data: bytes) -> None:
    if data:
        READERS[data[0] % len(READERS)](data[1:])


atheris.Setup(sys.argv, one)
atheris.Fuzz()
