import pytest
from django.core.exceptions import ValidationError
from django.core.management import CommandError, call_command

from relayweb.gateway.errors import GatewayError
from relayweb.gateway.models import Upstream, validate_base_url
from relayweb.gateway.upstreams import Target, provider_path

FORBIDDEN = [
    "169.254.169.254.",
    "2852039166",
    "0xa9fea9fe",
    "0251.0376.0251.0376",
    "169.254.43518",
    "[64:ff9b::a9fe:a9fe]",
    "[2002:a9fe:a9fe::1]",
    "[::169.254.169.254]",
    "[fd00:ec2::254]",
    "100.100.100.200",
    "168.63.129.16",
    "255.255.255.255",
    "240.0.0.1",
    "0",
]


@pytest.mark.parametrize(
    ("base", "rest", "url"),
    [
        ("https://api.openai.com/v1", "chat/completions", "https://api.openai.com/v1/chat/completions"),
        ("https://api.openai.com/v1", "v1/chat/completions", "https://api.openai.com/v1/chat/completions"),
        ("https://api.openai.com", "chat/completions", "https://api.openai.com/v1/chat/completions"),
        ("https://api.openai.com", "v1/responses/resp_1", "https://api.openai.com/v1/responses/resp_1"),
        ("https://api.anthropic.com", "v1/messages", "https://api.anthropic.com/v1/messages"),
        ("https://api.anthropic.com", "v1/v1/messages", "https://api.anthropic.com/v1/messages"),
        (
            "https://api.anthropic.com/v1",
            "v1/messages/count_tokens",
            "https://api.anthropic.com/v1/messages/count_tokens",
        ),
        ("http://localhost:11434", "api/tags", "http://localhost:11434/api/tags"),
        ("https://host/api/paas/v4", "v1/chat/completions", "https://host/api/paas/v4/chat/completions"),
        ("https://host/v1beta/openai", "chat/completions", "https://host/v1beta/openai/chat/completions"),
        ("https://host/openai/deployments/d", "chat/completions", "https://host/openai/deployments/d/chat/completions"),
        ("https://host/anthropic", "v1/messages", "https://host/anthropic/v1/messages"),
        ("https://host/v1", "files/a%2Fb", "https://host/v1/files/a%2Fb"),
        ("https://host/v1", "v1beta/x", "https://host/v1/v1beta/x"),
        ("https://host/v1", "", "https://host/v1"),
    ],
)
def test_the_provider_sees_v1_once(base, rest, url):
    assert Target("x", base, "chat_completions").url(rest) == url


def test_a_path_without_version_below_a_bare_host_stays():
    assert provider_path("", "modelsandmore") == "/modelsandmore"


@pytest.mark.parametrize(
    "url",
    [
        "ftp://host/v1",
        "host/v1",
        "http://",
        "http://user:pass@host/v1",
        "http://host/v1?key=1",
        "http://169.254.169.254/latest",
        "http://[fe80::1]/v1",
        "http://[::ffff:169.254.169.254]/",
        "http://0.0.0.0/v1",
        "http://host:port/v1",
        "http://@host/v1",
        "http://host/?",
        "http://host/v1#",
        "http://host\\@evil.example",
        "http://ho st/v1",
        "http://host/v1\t",
        *(f"http://{address}/v1" for address in FORBIDDEN),
    ],
)
def test_what_is_no_provider_is_refused(url):
    with pytest.raises(ValidationError):
        validate_base_url(url)


@pytest.mark.parametrize("address", ["127.0.0.1", "127.1", "10.0.0.1", "[::1]", "[fd00::1]", "localhost", "8.8.8.8"])
def test_models_of_one_s_own_may_be_upstreams(address):
    validate_base_url(f"http://{address}:11434/v1")


@pytest.mark.parametrize(
    "rest",
    [
        "../admin",
        "v1/../admin",
        "v1/files/../../../admin",
        "%2e%2e/admin",
        "%252e%252e%252fadmin",
        "..%2fadmin",
        "..;/admin",
        "a\\..\\..\\admin",
        "a/.%09./../admin",
    ],
)
def test_no_path_leads_above_the_base_url(rest):
    with pytest.raises(GatewayError, match="leads above"):
        Target("x", "https://host/llm/v1", "chat_completions").url(rest)


@pytest.mark.parametrize("rest", ["files/a/../b", "files/..a/b..", "files/...", "./files", "a//b"])
def test_a_path_may_hold_dots(rest):
    assert Target("x", "https://host/llm/v1", "chat_completions").url(rest).endswith(rest)


@pytest.mark.usefixtures("as_migrated")
def test_three_upstreams_exist_from_the_start():
    assert list(Upstream.objects.values_list("name", flat=True)) == ["anthropic", "demo", "openai"]


@pytest.mark.django_db
def test_the_command_adds_changes_and_lists(capsys):
    for port in (1, 2):
        call_command(
            "upstream", "set", "mock", "--base-url", f"http://127.0.0.1:{port}/v1/", "--api-mode", "codex_responses"
        )
    capsys.readouterr()
    call_command("upstream", "list")
    assert "mock\tcodex_responses\thttp://127.0.0.1:2/v1\n" in capsys.readouterr().out


@pytest.mark.usefixtures("as_migrated")
def test_the_command_removes_one_and_says_which_there_are(capsys):
    Upstream.objects.create(name="mock", base_url="http://127.0.0.1:1", api_mode="chat_completions")
    call_command("upstream", "remove", "mock")
    assert not Upstream.objects.filter(name="mock").exists()
    with pytest.raises(CommandError, match="no upstream mock; there are: anthropic, demo, openai"):
        call_command("upstream", "remove", "mock")


@pytest.mark.django_db
def test_the_command_names_the_wrong_argument():
    with pytest.raises(CommandError, match="--base-url: .*link-local"):
        call_command("upstream", "set", "m", "--base-url", "http://169.254.1.1/", "--api-mode", "chat_completions")
    with pytest.raises(CommandError, match="^NAME: "):
        call_command("upstream", "set", "t", "--base-url", "http://host/", "--api-mode", "chat_completions")
    assert not Upstream.objects.filter(name__in=["m", "t"]).exists()
