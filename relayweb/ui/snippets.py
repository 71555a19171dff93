"""The lines a newcomer copies to send a first turn. Each is run by the tests as it is shown."""

from __future__ import annotations

from dataclasses import dataclass, field

PLACEHOLDER = "$TOKEN"


@dataclass(frozen=True)
class Snippet:
    """`label` names the language or file; `marked` are the parts of `text` that are about relayweb."""

    label: str
    text: str
    marked: tuple[str, ...] = ()

    def parts(self) -> list[tuple[str, bool]]:
        """The text cut into pieces; True marks the ones that are about relayweb."""
        pieces: list[tuple[str, bool]] = [(self.text, False)]
        for mark in self.marked:
            cut: list[tuple[str, bool]] = []
            for text, on in pieces:
                if on:
                    cut.append((text, on))
                    continue
                for number, part in enumerate(text.split(mark)):
                    cut += [(mark, True)] * bool(number) + [(part, False)]
            pieces = cut
        return [(text, on) for text, on in pieces if text]


@dataclass(frozen=True)
class Way:
    """One way to send: its tab (icon, title, hint), the token scope it needs, if any, and its snippets."""

    id: str
    icon: str
    title: str
    hint: str
    scope: str
    text: str
    snippets: list[Snippet] = field(default_factory=list)


def ways(origin: str, tokens: dict[str, str]) -> list[Way]:
    """All ways to send to this server.

    Args:
        origin: scheme, host and port as the reader sees them, for example "http://127.0.0.1:8000".
        tokens: scope → token text, for the tokens just made; the others are shown as `$TOKEN`.
    """
    gateway, ingest = tokens.get("gateway", PLACEHOLDER), tokens.get("ingest", PLACEHOLDER)
    base = f"{origin}/gw/t/{gateway}"
    socket = origin.replace("http", "ws", 1) + "/ingest/atof/ws"
    return [
        Way(
            "base",
            "link",
            "Change the base URL",
            "One line, OpenAI or Anthropic",
            "gateway",
            "Point the client at relayweb. Your provider key goes through and is never stored.",
            [
                Snippet(
                    "shell",
                    f"export OPENAI_BASE_URL={base}/openai/v1\nexport ANTHROPIC_BASE_URL={base}/anthropic",
                    (f"{base}/openai/v1", f"{base}/anthropic"),
                ),
                Snippet(
                    "python, openai",
                    f'from openai import OpenAI\n\nclient = OpenAI(\n    base_url="{base}/openai/v1",\n)',
                    (f'base_url="{base}/openai/v1"',),
                ),
                Snippet(
                    "python, anthropic",
                    f'from anthropic import Anthropic\n\nclient = Anthropic(\n    base_url="{base}/anthropic",\n)',
                    (f'base_url="{base}/anthropic"',),
                ),
                Snippet(
                    "shell, no key at hand",
                    f"curl -N {base}/demo/v1/chat/completions \\\n"
                    "  -H 'content-type: application/json' \\\n"
                    '  -d \'{"model": "demo", "stream": true,\n'
                    '       "messages": [{"role": "user", "content": "Say hello."}]}\'',
                    (f"{base}/demo/v1/chat/completions",),
                ),
            ],
        ),
        Way(
            "wrap",
            "agent",
            "Wrap the client in Python",
            "Turns and retries by name",
            "ingest",
            "Wrap the client you have, sync or async. The SDK’s own retries show as attempts of one call.",
            [
                Snippet(
                    "python",
                    "from adapters import record_to, turn, wrap\n"
                    "from openai import OpenAI\n\n"
                    f'record_to("{origin}", "{ingest}")\n'
                    "client = wrap(OpenAI())\n"
                    'with turn(session="s1"):\n'
                    "    client.chat.completions.create(\n"
                    '        model="gpt-5.2", messages=[{"role": "user", "content": "Say hello."}]\n'
                    "    )",
                    (f'record_to("{origin}", "{ingest}")', "wrap(OpenAI())", 'with turn(session="s1"):'),
                )
            ],
        ),
        Way(
            "sink",
            "follow",
            "nemo-relay sink",
            "Another process or language",
            "ingest",
            "Add a sink to the process that runs NeMo Relay. The websocket keeps its queue while relayweb restarts.",
            [
                Snippet(
                    "python",
                    "from nemo_relay import AtofExporter, AtofExporterConfig\n\n"
                    "config = AtofExporterConfig()\n"
                    'config.sink_type = "stream"\n'
                    'config.transport = "websocket"\n'
                    f'config.url = "{socket}"\n'
                    f'config.headers = {{"x-relay-token": "{ingest}"}}\n'
                    "exporter = AtofExporter(config)\n"
                    'exporter.register("relayweb")  # and exporter.shutdown() at the end',
                    (f'config.url = "{socket}"', f'config.headers = {{"x-relay-token": "{ingest}"}}'),
                ),
                Snippet(
                    "plugins.toml",
                    "version = 1\n\n[[components]]\n"
                    'kind = "observability"\nenabled = true\n\n'
                    "[components.config]\nversion = 4\nenable_full_payloads = true\n\n"
                    "[components.config.atof]\nenabled = true\n\n"
                    "[[components.config.atof.sinks]]\n"
                    'type = "stream"\nname = "relayweb"\ntransport = "websocket"\n'
                    f'url = "{socket}?token={ingest}"',
                    (f'url = "{socket}?token={ingest}"',),
                ),
            ],
        ),
        Way(
            "otlp",
            "cloud",
            "OpenTelemetry",
            "OTLP over HTTP, GenAI conventions",
            "ingest",
            "Set the exporters of any OpenTelemetry SDK; many tell what was said in logs only, and only if asked to. "
            "Rewrites and chunks do not travel in OTLP.",
            [
                Snippet(
                    "shell",
                    f"export OTEL_EXPORTER_OTLP_ENDPOINT={origin}\n"
                    "export OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf\n"
                    f'export OTEL_EXPORTER_OTLP_HEADERS="x-relay-token={ingest}"\n'
                    "export OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=true",
                    (f"OTLP_ENDPOINT={origin}", f"x-relay-token={ingest}"),
                )
            ],
        ),
        Way(
            "post",
            "up",
            "POST events",
            "ATOF as JSON lines, from anything",
            "ingest",
            "One event, or many as JSON lines, gzip and zstd too. The answer says what was stored, line by line.",
            [
                Snippet(
                    "shell",
                    f"curl {origin}/ingest/atof \\\n"
                    f"  -H 'x-relay-token: {ingest}' \\\n"
                    "  -H 'content-type: application/x-ndjson' \\\n"
                    "  --data-binary @events.jsonl",
                    (f"{origin}/ingest/atof",),
                )
            ],
        ),
        Way(
            "import",
            "file",
            "Import a file",
            "ATOF or OTLP JSON, plain or gzip",
            "",
            "Run it where the server runs. Lines that cannot be taken are listed with their number.",
            [Snippet("shell", "relayweb import runs/*.jsonl.gz traces.json\ncat events.jsonl | relayweb import -")],
        ),
    ]
