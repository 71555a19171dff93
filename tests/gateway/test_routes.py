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
