from typing import Any

import pytest

from relayweb.gateway.routes import Route, api_mode, parse


@pytest.mark.parametrize(
    ("path", "route"),
    [
        ("/gw/openai/v1/chat/completions", Route("openai", "v1/chat/completions", None)),
        ("/gw/t/rw_gateway_x/demo/v1/messages", Route("demo", "v1/messages", "rw_gateway_x")),
        ("/gw/mock/files/a%2Fb", Route("mock", "files/a%2Fb", None)),
        ("/gw/mock", Route("mock", "", None)),
        ("/gw/t/", Route("", "", "")),
        ("/gw/", Route("", "", None)),
    ],
)
def test_a_path_names_upstream_and_token(path: str, route: Route) -> None:
    assert parse(path) == route


@pytest.mark.parametrize(
    ("method", "path", "mode"),
    [
        ("POST", "v1/chat/completions", "chat_completions"),
        ("POST", "chat/completions/", "chat_completions"),
        ("POST", "openai/deployments/d/chat/completions", "chat_completions"),
        ("POST", "v1/responses", "codex_responses"),
        ("POST", "v1/messages", "anthropic_messages"),
        ("GET", "v1/responses", None),
        ("POST", "v1/messages/count_tokens", None),
        ("POST", "v1/responses/resp_1/cancel", None),
        ("POST", "v1/threads/thread_1/messages", None),
        ("POST", "v1/embeddings", None),
    ],
)
def test_only_requests_for_an_answer_have_a_wire_format(method: str, path: str, mode: str | None) -> None:
    assert api_mode(method, path) == mode


@pytest.mark.parametrize(
    ("endpoint", "mode"),
    [
        ("v1/chat/completions", "chat_completions"),
        ("v1/responses", "codex_responses"),
        ("v1/messages", "anthropic_messages"),
    ],
)
@pytest.mark.parametrize(
    "written",
    [
        lambda path: path.upper(),
        lambda path: path.title(),
        lambda path: "".join(c if c == "/" else f"%{ord(c):02x}" for c in path),
        lambda path: path.replace("/", "%2F"),
        lambda path: path.replace("s", "%2573"),
        lambda path: path.replace("/", "//"),
        lambda path: path.replace("/", "/./"),
        lambda path: path.replace("/", "/x/../"),
        lambda path: path.replace("/", "/x/%2e%2E/"),
        lambda path: path.replace("/", "\\"),
        lambda path: path + "//",
        lambda path: path + "/.",
        lambda path: path + ";v=1",
        lambda path: path.replace("/", ";a/"),
        lambda path: path + "%20",
        lambda path: path + "%00",
        lambda path: path + "%3Fx=1",
        lambda path: "threads/../" + path,
    ],
)
def test_no_way_to_write_an_endpoint_leads_past_the_rules(endpoint: str, mode: str, written: Any) -> None:
    assert api_mode("POST", written(endpoint)) == mode
    assert api_mode("post", endpoint) == mode


def test_a_deployment_called_threads_has_an_endpoint_all_the_same() -> None:
    assert api_mode("POST", "openai/deployments/threads/chat/completions") == "chat_completions"
