import pytest

from relayweb.gateway.headers import Caller, read_caller, read_token, to_client, to_upstream, url_to_upstream


def test_nothing_of_ours_and_nothing_of_the_connection_reaches_the_provider():
    sent = [
        (b"Host", b"127.0.0.1:8000"),
        (b"connection", b"keep-alive, x-hop"),
        (b"x-hop", b"1"),
        (b"transfer-encoding", b"chunked"),
        (b"content-length", b"3"),
        (b"accept-encoding", b"gzip, deflate"),
        (b"x-relay-token", b"rw_gateway_secret"),
        (b"x-relay-session-id", b"s"),
        (b"X-Dynamo-Session-Id", b"s"),
        (b"x-nemo-relay-session-id", b"s"),
        (b"authorization", b"Bearer sk-provider"),
        (b"x-stainless-retry-count", b"1"),
        (b"content-type", b"application/json"),
    ]
    assert to_upstream(sent) == [
        (b"authorization", b"Bearer sk-provider"),
        (b"x-stainless-retry-count", b"1"),
        (b"content-type", b"application/json"),
        (b"accept-encoding", b"identity"),
    ]


@pytest.mark.parametrize("name", [b"authorization", b"x-api-key"])
def test_our_token_in_the_place_of_the_key_is_read_and_never_passed_on(name):
    value = b"Bearer rw_gateway_abc" if name == b"authorization" else b"rw_gateway_abc"
    assert read_token([(name, value)]) == "rw_gateway_abc"
    assert to_upstream([(name, value)]) == [(b"accept-encoding", b"identity")]


def test_the_token_header_wins_over_a_token_in_the_key():
    assert (
        read_token([(b"authorization", b"Bearer rw_gateway_a"), (b"x-relay-token", b"rw_gateway_b")]) == "rw_gateway_b"
    )
    assert read_token([(b"authorization", b"Bearer sk-provider")]) is None


def test_headers_set_by_rules_replace_the_clients_but_not_the_connections():
    out = to_upstream(
        [(b"user-agent", b"a"), (b"x-b", b"1")], {"User-Agent": "z", "Host": "evil", "x-relay-token": "t"}
    )
    assert out == [(b"x-b", b"1"), (b"accept-encoding", b"identity"), (b"user-agent", b"z")]


def test_cookies_of_our_own_pages_stay_here():
    cookies = b"sessionid=secret; __cf_bm=1; csrftoken=x"
    assert to_upstream([(b"cookie", cookies)])[0] == (b"cookie", b"__cf_bm=1")
    assert to_upstream([(b"cookie", b"sessionid=secret")]) == [(b"accept-encoding", b"identity")]


def test_a_changed_body_gets_its_own_length():
    answered = [(b"Content-Length", b"10"), (b"X-Request-Id", b"r"), (b"Transfer-Encoding", b"chunked")]
    assert to_client(answered, length=3) == [(b"x-request-id", b"r"), (b"content-length", b"3")]
    assert to_client(answered, keep_length=True) == [(b"content-length", b"10"), (b"x-request-id", b"r")]


def test_our_own_headers_go_before_those_of_known_clients():
    names = (b"x-claude-code-session-id", b"x-nemo-relay-session-id", b"x-relay-session-id")
    headers = []
    for i, name in enumerate(names):
        headers.append((name, str(i).encode()))
        assert read_caller(headers).session_id == str(i)
    full = read_caller(
        [
            (b"x-relay-turn-id", b"t"),
            (b"x-relay-request-id", b"r"),
            (b"x-relay-call-role", b"delegated"),
            (b"x-stainless-retry-count", b"2"),
        ]
    )
    assert full == Caller(None, "t", "r", "delegated", 2)


@pytest.mark.parametrize("value", [b"", b"-1", b"x", b"\xff", b"99999999999"])
def test_a_retry_count_that_is_no_number_is_not_known(value):
    assert read_caller([(b"x-stainless-retry-count", value)]).retry_count is None


@pytest.mark.parametrize("name", [b"traceparent", b"Tracestate"])
def test_the_trace_of_a_client_is_not_mixed_with_ours(name):
    ours = {"traceparent": "00-ours", "x-a": "1"}
    assert to_upstream([(name, b"theirs")], ours) == [
        (name.lower(), b"theirs"),
        (b"accept-encoding", b"identity"),
        (b"x-a", b"1"),
    ]
    assert (b"traceparent", b"00-ours") in to_upstream([], ours)


TOKEN = "rw_gateway_" + "aB3_-" * 8 + "abc"


@pytest.mark.parametrize("name", [b"referer", b"api-key", b"x-goog-api-key", b"authorization"])
def test_our_token_reaches_no_provider_wherever_it_stands(name):
    sent = [(name, f"http://127.0.0.1:8000/gw/t/{TOKEN}/openai".encode()), (b"x-other", b"rw_gateway_short")]
    assert to_upstream(sent) == [(b"x-other", b"rw_gateway_short"), (b"accept-encoding", b"identity")]


@pytest.mark.parametrize(
    ("url", "sent"),
    [
        (f"https://host/v1/files?token={TOKEN}", "https://host/v1/files"),
        (f"https://host/v1/files?a=%20b&token={TOKEN}&&c", "https://host/v1/files?a=%20b&&c"),
        ("https://host/v1/files?token=theirs&", "https://host/v1/files?token=theirs&"),
        ("https://host/v1/files?", "https://host/v1/files?"),
    ],
)
def test_our_token_in_the_query_stays_here_and_the_rest_is_as_it_was(url, sent):
    assert url_to_upstream(url) == sent


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (b"set-cookie", b"=sessionid=evil"),
        (b"Set-Cookie", b" sessionid = evil; Path=/"),
        (b"alt-svc", b'h3="evil.example:443"'),
        (b"NEL", b'{"report_to": "evil"}'),
        (b"report-to", b"{}"),
        (b"refresh", b"0; url=http://evil.example"),
    ],
)
def test_a_provider_says_nothing_to_a_browser_about_our_pages(name, value):
    kept = [(b"set-cookie", b"__cf_bm=1"), (b"x-request-id", b"1")]
    assert to_client([*kept, (name, value)]) == kept


def test_no_header_makes_a_server_take_a_request_for_another_one():
    disguises = [b"X-HTTP-Method-Override", b"X-HTTP-Method", b"x-method-override", b"X-Original-URL", b"x-rewrite-url"]
    sent = [(name, b"POST") for name in disguises]
    assert to_upstream(sent, {"x-http-method-override": "POST"}) == [(b"accept-encoding", b"identity")]
