"""What secrets look like in the field, and what only looks so: each kind where it is masked and where it is not."""

from __future__ import annotations

import base64
import json
import re
from itertools import product
from typing import Any
from urllib.parse import quote

import pytest

from relayweb.recording.events.masking import MASK, mask_text
from relayweb.recording.store.content import Store
from tests.recording import streams

SECRET = "hunter2Xq9"
WORD = "swordfish"  # a secret that has no look at all


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def stored(event: streams.Event, **dumps: Any) -> str:
    """All that would be written of an event."""
    store = Store()
    line = json.dumps(event, separators=(",", ":"), **dumps).encode()
    packed = store.pack(store.parse(line))
    return "\n".join(piece.decode() for piece in (packed.text, *(p.text for p in store._unnumbered.values())))


def gives_away(text: str, secret: str) -> bool:
    """Whether a text gives away a secret or a part of it."""
    parts = (secret, secret[:7], secret[3:])
    return any(part in text for part in parts)


def event_with(place: str, planted: Any, size: int) -> streams.Event:
    """A start of a scope in which it stands, small, or large enough to be stored apart."""
    fill, uid = "y" * size, streams.uid()
    call = {"id": "c", "type": "function", "function": {"name": "run", "arguments": json.dumps({"command": planted})}}
    use = {"type": "tool_use", "name": "run", "input": {"script": planted, "fill": fill}}
    said: dict[str, Any] = {
        "metadata": {"metadata": {"note": planted, "fill": fill}},
        "error": {"data": {"error": {"message": planted, "fill": fill}}},
        "headers": {"data": {"content": {"messages": []}, "headers": {"x-note": planted, "fill": fill}}},
        "extra": {"data": {"content": {"messages": [], "extra": {"a": [planted], "fill": fill}}}},
        "arguments": {
            "data": {"content": {"messages": [{"role": "assistant", "content": fill, "tool_calls": [call]}]}}
        },
        "tool use": {"data": {"content": {"messages": [{"role": "assistant", "content": [use]}]}}},
        "message": {"data": {"content": {"messages": [{"role": "user", "content": f"{fill} {planted}"}]}}},
        "tool": {"data": {"command": planted, "fill": fill}, "category": "tool"},
        "long": {"data": {"command": f"{fill} {planted}"}, "category": "tool"},
        "long arguments": {"data": {"arguments": json.dumps({"do": f"{fill} {planted}"})}},
    }[place]
    return streams.scope("start", uid, None, 1, **{"category": "llm", **said})


SIZES = (0, 2_000)
PLACES = ["metadata", "error", "headers", "arguments", "tool use", "tool", "long", "long arguments"]
PEM = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj"
# Texts with a secret: in loose places and arguments of tools masked, in texts of messages not.
TEXTS = [
    # lines of an environment, of YAML and INI
    "FOO_SECRET=PLANTED",
    "export DB_PASSWORD='PLANTED'",
    'MY_SERVICE_TOKEN="PLANTED"',
    "my_service_token_2=PLANTED",
    "set OPENAI_API_KEY=PLANTED",
    "$env:API_KEY = 'PLANTED'",
    "-e POSTGRES_PASSWORD=PLANTED -p 5432:5432",
    "db:\n  user: me\n  password: PLANTED\n  port: 5432",
    "[db]\npassword = PLANTED\nport = 5432",
    "spring.datasource.password=PLANTED",
    "//registry.npmjs.org/:_authToken=PLANTED",
    "aws_secret_access_key = PLANTED",
    # command lines
    "mysql --user=root --password=PLANTED db",
    "tool --password PLANTED --verbose",
    "tool --api-key=PLANTED",
    "tool --api-key PLANTED",
    "tool --token 'PLANTED'",
    "tool -password PLANTED",
    "mysql -u root -pPLANTED db",
    "mysqldump -uroot -p PLANTED db",
    "PGPASSWORD=PLANTED psql -h db",
    "sshpass -p PLANTED ssh me@host",
    "sshpass -p 'PLANTED' ssh me@host",
    "docker login -u me -p PLANTED registry.example",
    "redis-cli -h db -a PLANTED ping",
    "openssl rsa -passin pass:PLANTED -in key.pem",
    "aws configure set aws_secret_access_key PLANTED",
    "smbclient //server/share -U me%PLANTED",
    "kubectl create secret generic x --from-literal=password=PLANTED",
    "curl -u me:PLANTED https://example.com",
    "curl -u 'me:PLANTED' https://example.com",
    "curl -ume:PLANTED https://example.com",
    "curl --user me:PLANTED https://example.com",
    "curl --user=me:PLANTED https://example.com",
    "curl --proxy-user 'me:PLANTED' https://example.com",
    "curl -U me:PLANTED -x proxy https://example.com",
    "curl -H 'X-Api-Key: PLANTED' https://example.com",
    'curl -H "Authorization: Bearer PLANTED" https://example.com',
    "curl -H 'Authorization: token PLANTED' https://example.com",
    'curl -d \'{"password": "PLANTED"}\' https://example.com',
    "curl -d 'user=me&password=PLANTED' https://example.com",
    "curl https://me:PLANTED@example.com/x",
    "http --auth me:PLANTED https://example.com",
    "['curl', '-u', 'me:PLANTED', 'https://example.com']",
    "machine example.com login me password PLANTED",
    "CREATE USER me IDENTIFIED BY 'PLANTED'",
    "ALTER ROLE me WITH PASSWORD 'PLANTED'",
    # connection strings
    "postgres://me:PLANTED@db.example/x",
    "postgresql+psycopg://me:PLANTED@db.example/x",
    "amqp://me:a@PLANTED@h:5672/",
    "DefaultEndpointsProtocol=https;AccountName=x;AccountKey=PLANTED==;EndpointSuffix=y",
    "Server=db;User Id=me;Password=PLANTED;",
    "Server=db;Uid=me;Pwd=PLANTED;",
    "Endpoint=sb://x/;SharedAccessKeyName=n;SharedAccessKey=PLANTED=",
    "host=db user=me password=PLANTED",
    # HTTP as text
    "GET / HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer PLANTED\r\nAccept: */*",
    "GET / HTTP/1.1\r\nProxy-Authorization: Basic " + b64("me:pw") + "\r\nX-Api-Key: PLANTED\r\n",
    "POST / HTTP/1.1\r\nCookie: a=b; sid=PLANTED\r\nAccept: */*",
    "HTTP/1.1 200 OK\r\nSet-Cookie: sid=PLANTED; Path=/",
    "b'GET / HTTP/1.1\\r\\nX-Api-Key: PLANTED\\r\\nHost: h'",
    "PRIVATE-TOKEN: PLANTED",
    "X-Vault-Token: PLANTED",
    '--b\r\nContent-Disposition: form-data; name="password"\r\n\r\nPLANTED\r\n--b--',
    "https://h/x?access_token=PLANTED&n=1",
    "https://h/cb#access_token=PLANTED&state=1",
    "next=" + quote("https://h/x?api_key=PLANTED&n=1", safe=""),
    quote('{"password": "PLANTED"}'),
    quote(quote("api_key=PLANTED&n=1")),
    # JSON, JSON in JSON, GraphQL
    json.dumps({"password": "PLANTED"}),
    json.dumps({"a": json.dumps({"b": json.dumps({"api_key": "PLANTED"})})}),
    json.dumps(json.dumps(json.dumps({"password": "PLANTED"}))),
    "refused: " + json.dumps({"a": json.dumps({"b": json.dumps({"api_key": "PLANTED"})})}),
    'refused: {"password": "a\\"PLANTED", "n": 1}',
    'refused: {"password": "it\'s PLANTED"}',
    'refused: {"api_key": "PLANTED',
    '{"p\\u0061ssword": "PLANTED"}',
    json.dumps({"query": "mutation($p: String!) {}", "variables": {"password": "PLANTED"}}),
    'mutation { login(user: "me", password: "PLANTED") { id } }',
    '[["authorization", "Token PLANTED"], ["accept", "*/*"]]',
    # markup
    "<login><password>PLANTED</password></login>",
    '<login user="me" password="PLANTED"/>',
    "<apiKey>PLANTED</apiKey>",
    '<add key="ApiKey" value="PLANTED"/>',
    # Python
    "{'api_key': 'PLANTED', 'n': 1}",
    "Headers({'host': 'h', 'x-api-key': 'PLANTED'})",
    "Headers([('x-api-key', 'PLANTED'), ('host', 'h')])",
    "[(b'x-api-key', b'PLANTED')]",
    "Client(api_key='PLANTED', timeout=3)",
    "Config(password=SecretStr('PLANTED'))",
    "SecretStr('PLANTED')",
    'client = OpenAI(api_key="PLANTED")',
    # keys with a look, tokens, private keys
    "sk-proj-PLANTEDabcdef",
    "key ghp_PLANTEDabcdefghijkl",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.PLANTED",
    "-----BEGIN PRIVATE KEY-----\nPLANTED\n" + PEM + "\n-----END PRIVATE KEY-----",
    "-----BEGIN RSA PRIVATE KEY-----\\nPLANTED\\n" + PEM + "\\n-----END RSA PRIVATE KEY-----\\n",
    "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,0\n\nPLANTED\n"
    "-----END RSA PRIVATE KEY-----",
    "-----BEGIN PRIVATE KEY-----\nPLANTED",
    "..." + PEM[:40] + "PLANTED\n" + PEM + "\n-----END PRIVATE KEY-----",
    # other languages and spellings
    "passwort: PLANTED",
    "contraseña=PLANTED",
    "пароль: PLANTED",
    "ПАРОЛЬ=PLANTED",
    "密码=PLANTED",
    "ｐａｓｓｗｏｒｄ=PLANTED",
]
UNCUT = ("metadata", "error", "headers", "tool", "long", "long arguments")
ENCODED = [
    b64("me:" + SECRET),
    b64("me@example.com:" + WORD),
    f"auth {b64('aladdin:opensesame')} refused",
    f"Basic {b64('me:' + SECRET)}",
    f"Basic%20{b64('me:' + SECRET)}",
    f"basic: {b64('me:' + SECRET)}",
    f'["Basic", "{b64("me:" + SECRET)}"]',
    b64(json.dumps({"password": SECRET})),
]


@pytest.mark.parametrize("text", TEXTS)
def test_a_secret_in_a_text_is_masked_in_loose_places_and_in_arguments(text: str) -> None:
    for place, size, ascii in product(PLACES, SIZES, (True, False)):
        event = event_with(place, text.replace("PLANTED", SECRET), size)
        assert not gives_away(stored(event, ensure_ascii=ascii), SECRET), (place, size, ascii)


@pytest.mark.parametrize("text", ENCODED)
def test_base64_of_a_user_and_password_is_masked_there_too(text: str) -> None:
    longest = max(re.findall(r"[A-Za-z0-9+/=]{8,}", text), key=len)
    signed = "=" in text or "asic" in text or "auth" in text
    for place, size in product(PLACES, SIZES):
        if not signed and (place in UNCUT or not size):
            continue  # known only where it is kept apart from its event, or in arguments
        assert longest[:12] not in stored(event_with(place, text, size)), (place, size)


@pytest.mark.parametrize("text", [*TEXTS, *ENCODED])
def test_the_text_of_a_message_is_left_alone(text: str) -> None:
    said = text.replace("PLANTED", SECRET)
    for size in SIZES:
        kept = stored(event_with("message", said, size))
        assert MASK not in kept and json.dumps(said)[1:-1] in kept


# Words without any look of a secret: where nothing else can stand.
WORDS = [
    "DB_PASSWORD=PLANTED",
    "password: PLANTED",
    "tool --password PLANTED --verbose",
    "mysql -pPLANTED db",
    "sshpass -p PLANTED ssh h",
    "curl -u me:PLANTED https://h",
    "Server=db;Password=PLANTED;",
    "X-Api-Key: PLANTED",
    '"password": "PLANTED"',
    "<password>PLANTED</password>",
]


@pytest.mark.parametrize("text", WORDS)
def test_a_word_is_masked_where_nothing_but_a_secret_can_stand(text: str) -> None:
    assert WORD not in mask_text(text.replace("PLANTED", WORD))


NAMES = [
    *("authorization", "API-KEY", "apiKey", "x_api_key", "Api Key", "X-Api-Key", "api.key", "OPENAI_API_KEY"),
    *(
        "passwort",
        "contraseña",
        "пароль",
        "ПАРОЛЬ",
        "密码",
        "パスワード",
        "비밀번호",
        "mot_de_passe",
    ),
    *(
        "ｐａｓｓｗｏｒｄ",
        "pass\u200bword",
        "\ufeffpassword",
        "p\u00e4ssword2".replace("ä", "a"),
        "Password",
        "PASSWORD",
    ),
    *("my_service_token_2", "github_token", "HF_TOKEN", "csrfToken", "api_key_2", "API_KEY_PROD", "secret2"),
    *("password_confirmation", "new_password", "user[password]", "passwordHash", "jwt_secret", "FOO_SECRET", "secrets"),
    *("http.request.header.x-api-key", "ssh_key", "encryptionKey", "db_pass", "passcode", "apikeys"),
]


@pytest.mark.parametrize("name", NAMES)
def test_a_member_of_such_a_name_loses_its_value_everywhere(name: str) -> None:
    for place, size, ascii in product(
        ["extra", "metadata", "error", "headers", "tool use", "tool"], SIZES, (True, False)
    ):
        event = event_with(place, {"deep": {name: SECRET, "kept": "yes"}}, size)
        kept = stored(event, ensure_ascii=ascii)
        assert not gives_away(kept, SECRET) and '"kept":"yes"' in kept


LOOSE_NAMES = ["token", "pass", "pwd", "auth", "credentials", "token2"]


@pytest.mark.parametrize("size", [0, 2_000])
@pytest.mark.parametrize("place", ["metadata", "error", "headers", "tool use", "tool"])
@pytest.mark.parametrize("name", LOOSE_NAMES)
def test_names_of_other_things_too_are_taken_for_secrets_by_the_look_of_what_they_name(
    name: str, place: str, size: int
) -> None:
    event = event_with(place, {name: SECRET, f"old_{name}": "plain", "kept": "yes"}, size)
    assert not gives_away(stored(event), SECRET)


WORDS_OF_COMMANDS = [
    ["curl", "-u", "me:PLANTED", "https://h"],
    ["tool", "--password", "PLANTED"],
    ["sshpass", "-p", "PLANTED", "ssh", "h"],
    ["/usr/bin/mysql", "-uroot", "-pPLANTED"],
    ["docker", "run", "-e", "DB_PASSWORD=PLANTED", "x"],
    ["curl", "-H", "X-Api-Key: PLANTED"],
]


@pytest.mark.parametrize("place", ["metadata", "tool use", "tool"])
@pytest.mark.parametrize("words", WORDS_OF_COMMANDS)
def test_a_command_as_a_list_of_words_is_read_as_one(words: list[str], place: str) -> None:
    event = event_with(place, [word.replace("PLANTED", SECRET) for word in words], 0)
    kept = stored(event)
    assert not gives_away(kept, SECRET) and f'"{words[0]}"' in kept


INNOCENT: list[Any] = [
    # counts and pieces of text
    {"max_tokens": 4096, "token_count": 12, "tokens": 7, "usage": {"prompt_tokens": 3, "total_tokens": 4}},
    {"logprobs": {"content": [{"token": "Hello", "logprob": -0.1, "bytes": [1, 2], "top_logprobs": []}]}},
    {"eos_token": "<|endoftext|>", "pad_token": "[PAD]", "next_page_token": "CAUQAA1234567", "tokenizer": "o200k_base"},
    {"stop_token": "###END2###", "input_cost_per_token": "0.00000123", "time_per_output_token": 12},
    "max_tokens=4096 prompt_tokens: 123456 tokens",
    "Rate limit reached: limit 10000 tokens per min, token count 12345678",
    # keys that open nothing
    {"key": "Enter12345", "keys": ["ctrl+1"], "cache_key": "abc12345", "primary_key": "id12345678", "key_points": 3},
    {"public_key": "MFkwEwYHKoZIzj0CAQ12", "idempotency_key": "abc-1234567890", "prompt_cache_key": "abc1234567890"},
    "press key: Enter and keyboard=us key_points=3 keyword: x1234567",
    # words with a secret in them
    {"secretary": "Jane12345", "password_reset_url": "https://h/reset", "password_policy": "min 12 chars"},
    {"secret_name": "projects/x/secrets/y1", "secret_arn": "arn:aws:secretsmanager:1", "api_key_env": "MY_KEY1"},
    {
        "compass": "north1234",
        "bypass": "cache1234",
        "author": "me1234567",
        "pass": True,
        "auth": "none",
        "pwd": "/home/u1",
    },
    {"token_type": "bearer", "credentials": "include", "has_password": False, "signature": "EqQBCgIYAhIM1234"},
    "secretary password_reset_url the secret of success is patience",
    # errors that speak of secrets
    "missing authorization: header required",
    "Unexpected token: '<' at 12",
    "Unexpected token a in JSON at position 12345",
    "Invalid password: must be at least 8 characters",
    "password: required",
    "Bearer token is missing; Basic authentication is not supported",
    'WWW-Authenticate: Bearer realm="https://h/"',
    "You didn't provide an API key. You need to provide your API key in an Authorization header using Bearer auth",
    "unknown option --password given",
    "usage: tool [--password PASSWORD] [--token TOKEN]",
    "The api_key client option must be set either by passing api_key to the client or by setting OPENAI_API_KEY",
    # schemas, styles, source text
    {
        "parameters": {
            "properties": {"api_key": {"type": "string"}, "password": {"type": "string"}},
            "required": ["api_key"],
        }
    },
    "token { color: red } .password-field { width: 12px } #secret-key > a { top: 1px }",
    "const token = getToken(); password = input(); api_key=os.environ['X1']; secret = config.secret2",
    "password = getpass.getpass('Password 1: ')",
    "def login(user: str, password: str, token: Optional[str] = None) -> Token1:",
    "login(user, password=password, token=self.token1, api_key=api_key)",
    "if password == expected1234: pass",
    "export API_KEY=$OTHER_KEY PASSWORD=${PW} TOKEN=$(cat f1) SECRET=<your-secret1>",
    "headers = {'Authorization': f'Bearer {token1}', 'X-Api-Key': os.getenv('KEY1')}",
    'curl -H "Authorization: Bearer $TOKEN1" https://h',
    "interface A { password: string; token: string | null }",
    "SELECT password, token FROM users WHERE secret IS NOT NULL",
    "key=value token_budget=1000 sort_key=name12345",
    # commands whose letters mean something else
    "docker run -u 1000:1000 -p 8080:80 image",
    "docker run --user node:node image",
    "git push -u origin main:main",
    "ssh -p 22 me@host; psql -p 5432; mkdir -p a/b1",
    "date -u +%H:%M:%S",
    "python -u script.py",
    "mysql -u root -p database_name",
    "curl -u https://h1/",
    # what is encoded otherwise
    b64("arrayconnection:10"),
    b64("User:12345678"),
    b64("cursor:2024-01-01"),
    b64("hello world, this is a text: yes"),
    b64("https://example.com/x"),
    "d41d8cd98f00b204e9800998ecf8427e 019b76da-0000-7000-8000-000000000001 toolu_01A2b3C4d5E6f7G8 chatcmpl-9aBcDeFgHi",
    "12:30:45 key-value ratio:3.5 https://h:8080/a?q=1&page=2",
    "me@example.com wrote at http://h/@user:1",
]


@pytest.mark.parametrize("value", INNOCENT, ids=lambda value: str(value)[:60])
def test_what_only_looks_like_a_secret_stays(value: Any) -> None:
    for place, size in product(["extra", "metadata", "error", "arguments", "tool use", "tool"], SIZES):
        assert MASK not in stored(event_with(place, value, size)), (place, size)
