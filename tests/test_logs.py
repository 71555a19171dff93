from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable

import pytest

from relayweb.logs import Json, Line
from tests.served import Served


def record(message: str, error: Exception | None = None) -> logging.LogRecord:
    try:
        if error:
            raise error
        exc_info = None
    except Exception:
        exc_info = sys.exc_info()
    return logging.LogRecord("relayweb.x", logging.ERROR, "x.py", 1, message, None, exc_info)


@pytest.mark.parametrize("formatter", [Line(), Json()])
def test_what_looks_like_a_credential_is_masked_wherever_it_comes_from(formatter: logging.Formatter) -> None:
    said = formatter.format(record("wrong key sk-abcdefgh12345678", ValueError("Bearer abcdefgh12345678")))
    assert "abcdefgh" not in said and said.count("[masked]") >= 2


@pytest.mark.parametrize("formatter", [Line(), Json()])
def test_what_a_stranger_sends_wrong_is_one_line(formatter: logging.Formatter) -> None:
    refused = record("too many fields", ValueError("x"))
    refused.name = "django.security.TooManyFieldsSent"
    assert "Traceback" not in formatter.format(refused) and "too many fields" in formatter.format(refused)


def test_a_token_in_an_odd_place_of_a_path_is_masked_in_fields_too() -> None:
    answered = record("an answer")
    answered.fields = {"route": f"/gw/rw_gateway_{'a' * 43}/v1/models", "status": 404}
    assert "aaaa" not in Json().format(answered)


def test_the_log_can_be_read_by_machines(serve: Callable[..., Served]) -> None:
    served = serve(RELAYWEB_LOG="json")
    token = served.token("gateway")
    served.get(f"/gw/t/{token}/demo/v1/models")
    served.stop()
    lines = [json.loads(line) for line in served.log.read_text().splitlines() if line.startswith("{")]
    (line,) = [line for line in lines if line.get("route") == "/gw/t/***/demo/v1/models"]
    assert line["status"] == 200 and line["method"] == "GET" and line["ms"] >= 0
    assert line["logger"] == "relayweb.access" and line["level"] == "info"
