"""The real openai and anthropic packages against a served gateway, sync and async, buffered and streamed."""

from __future__ import annotations

from typing import Any

import anthropic
import openai
import pytest

from tests.gateway.conftest import Gateway
from tests.gateway.provider import Provider

HI: list[Any] = [{"role": "user", "content": "hi"}]


def openai_options(web: Gateway, upstream: str = "mock", suffix: str = "") -> dict[str, Any]:
    headers = {"x-relay-token": web.key}
    return {"base_url": f"{web.url}/gw/{upstream}{suffix}", "api_key": "sk-provider", "default_headers": headers}


def anthropic_options(web: Gateway, suffix: str = "") -> dict[str, Any]:
    return openai_options(web, "claude", suffix)


@pytest.mark.parametrize("suffix", ["", "/v1", "/v1/"])
def test_openai_chat_buffered_and_streamed(web: Gateway, suffix: str) -> None:
    with openai.OpenAI(**openai_options(web, suffix=suffix)) as client:
        assert client.chat.completions.create(model="m", messages=HI).choices[0].message.content == "ok"
        stream = client.chat.completions.create(model="m", messages=HI, stream=True)
        assert "".join(c.choices[0].delta.content or "" for c in stream if c.choices) == "ABCD"


async def test_openai_chat_async(web: Gateway) -> None:
    async with openai.AsyncOpenAI(**openai_options(web)) as client:
        assert (await client.chat.completions.create(model="m", messages=HI)).choices[0].message.content == "ok"
        stream = await client.chat.completions.create(model="m", messages=HI, stream=True)
        assert "".join([c.choices[0].delta.content or "" async for c in stream if c.choices]) == "ABCD"


def test_openai_responses_buffered_and_streamed(web: Gateway) -> None:
    with openai.OpenAI(**openai_options(web)) as client:
        assert client.responses.create(model="m", input="hi").output_text == "ok"
        events = list(client.responses.create(model="m", input="hi", stream=True))
        assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == "ABCD"
        assert events[-1].type == "response.completed"


async def test_openai_responses_async(web: Gateway) -> None:
    async with openai.AsyncOpenAI(**openai_options(web)) as client:
        assert (await client.responses.create(model="m", input="hi")).output_text == "ok"
        stream = await client.responses.create(model="m", input="hi", stream=True)
        assert "".join([e.delta async for e in stream if e.type == "response.output_text.delta"]) == "ABCD"


@pytest.mark.parametrize("suffix", ["", "/v1"])
def test_anthropic_messages_buffered_and_streamed(web: Gateway, suffix: str) -> None:
    with anthropic.Anthropic(**anthropic_options(web, suffix)) as client:
        message = client.messages.create(model="m", max_tokens=5, messages=HI)
        assert message.content[0].text == "ok"  # type: ignore[union-attr]
        with client.messages.stream(model="m", max_tokens=5, messages=HI) as stream:
            assert "".join(stream.text_stream) == "ABCD"


async def test_anthropic_messages_async(web: Gateway) -> None:
    async with anthropic.AsyncAnthropic(**anthropic_options(web)) as client:
        message = await client.messages.create(model="m", max_tokens=5, messages=HI)
        assert message.content[0].text == "ok"  # type: ignore[union-attr]
        async with client.messages.stream(model="m", max_tokens=5, messages=HI) as stream:
            assert "".join([text async for text in stream.text_stream]) == "ABCD"


@pytest.mark.parametrize("streaming", [False, True])
def test_an_sdk_retries_through_the_gateway(web: Gateway, provider: Provider, streaming: bool) -> None:
    model = f"retried-{streaming}"
    provider.fail[model] = 2
    with openai.OpenAI(**openai_options(web), max_retries=2) as client:
        answer: Any = client.chat.completions.create(model=model, messages=HI, stream=streaming)
        if streaming:
            assert "".join(c.choices[0].delta.content or "" for c in answer if c.choices) == "ABCD"
    assert [r.header("x-stainless-retry-count") for r in provider.of(model)] == ["0", "1", "2"]


def test_the_error_of_a_provider_keeps_its_status_headers_and_body(web: Gateway, provider: Provider) -> None:
    provider.fail["failing"] = 1
    with (
        openai.OpenAI(**openai_options(web), max_retries=0) as client,
        pytest.raises(openai.InternalServerError) as raised,
    ):
        client.chat.completions.create(model="failing", messages=HI)
    assert raised.value.status_code == 503
    assert raised.value.response.headers["retry-after"] == "0"
    assert raised.value.response.content == b'{"error": {"message": "try again", "type": "server_error"}}'


def test_the_providers_key_passes_and_nothing_of_ours_does(web: Gateway, provider: Provider) -> None:
    with openai.OpenAI(**openai_options(web)) as client:
        client.chat.completions.create(
            model="keys", messages=HI, extra_headers={"x-relay-session-id": "s", "x-dynamo-session-id": "s"}
        )
    (got,) = provider.of("keys")
    assert got.header("authorization") == "Bearer sk-provider"
    assert got.header("accept-encoding") == "identity"
    assert not [name for name, _ in got.headers if name.lower().startswith(("x-relay", "x-dynamo", "x-nemo"))]
    assert web.key not in str(got.headers)


def test_the_token_may_stand_in_the_url_or_in_the_place_of_the_key(web: Gateway, provider: Provider) -> None:
    in_url = f"{web.url}/gw/t/{web.key}/mock/v1"
    with openai.OpenAI(base_url=in_url, api_key="sk-provider") as client:
        client.chat.completions.create(model="token-in-url", messages=HI)
    assert provider.of("token-in-url")[0].header("authorization") == "Bearer sk-provider"
    with openai.OpenAI(base_url=f"{web.url}/gw/mock", api_key=web.key) as client:
        client.chat.completions.create(model="token-as-key", messages=HI)
    assert provider.of("token-as-key")[0].header("authorization") is None
    with anthropic.Anthropic(base_url=f"{web.url}/gw/claude", api_key=web.key) as claude:
        claude.messages.create(model="token-as-x-key", max_tokens=5, messages=HI)
    assert provider.of("token-as-x-key")[0].header("x-api-key") is None


def test_other_paths_of_the_upstream_pass_through(web: Gateway, provider: Provider) -> None:
    with openai.OpenAI(**openai_options(web)) as client:
        assert client.models.list().data == []
        client.embeddings.with_raw_response.create(model="embedding", input="x")
    assert (provider.requests[-2].method, provider.requests[-2].path) == ("GET", "/v1/models")
    assert provider.of("embedding")[0].path == "/v1/embeddings"


def test_gateway_errors_reach_the_sdks_as_their_own(web: Gateway) -> None:
    known = "no upstream 'nowhere'; known are: anthropic, claude, demo"
    with openai.OpenAI(**openai_options(web, "nowhere")) as client, pytest.raises(openai.NotFoundError, match=known):
        client.chat.completions.create(model="m", messages=HI)
    wrong = {"x-relay-token": "rw_gateway_" + "x" * 43}
    claude = anthropic.Anthropic(base_url=f"{web.url}/gw/claude", api_key="k", default_headers=wrong)
    with claude, pytest.raises(anthropic.AuthenticationError, match="unknown, revoked or not for the gateway"):
        claude.messages.create(model="m", max_tokens=5, messages=HI)
    with openai.OpenAI(**openai_options(web, "down"), max_retries=1) as client:
        with pytest.raises(
            openai.InternalServerError, match="cannot reach upstream down at http://127.0.0.1:9/v1"
        ) as raised:
            client.chat.completions.create(model="m", messages=HI)
        assert raised.value.status_code == 502
