import datetime
import django.core.validators
import relayweb.recording.fields
from decimal import Decimal
from django.db import migrations, models

# List prices of 2026-02-01, US dollars a million tokens: model, input, output, cached input, cache write (five minutes,
# an hour).
NAME = "2026-02-01"
LIST = """
gpt-3.5-turbo 0.50 1.50
gpt-4-turbo 10 30
gpt-4o 2.50 10 1.25
gpt-4o-mini 0.15 0.60 0.075
gpt-4.1 2 8 0.50
gpt-4.1-mini 0.40 1.60 0.10
gpt-4.1-nano 0.10 0.40 0.025
gpt-5 1.25 10 0.125
gpt-5-codex 1.25 10 0.125
gpt-5-mini 0.25 2 0.025
gpt-5-nano 0.05 0.40 0.005
gpt-5.1 1.25 10 0.125
gpt-5.1-codex 1.25 10 0.125
gpt-5.2 1.75 14 0.175
o1 15 60 7.50
o3 2 8 0.50
o3-mini 1.10 4.40 0.55
o4-mini 1.10 4.40 0.275
claude-3-haiku 0.25 1.25 0.03 0.30
claude-3-opus 15 75 1.50 18.75 30
claude-3-5-haiku 0.80 4 0.08 1 1.60
claude-3-5-sonnet 3 15 0.30 3.75 6
claude-3-7-sonnet 3 15 0.30 3.75 6
claude-haiku-4-5 1 5 0.10 1.25 2
claude-sonnet-4 3 15 0.30 3.75 6
claude-sonnet-4-0 3 15 0.30 3.75 6
claude-sonnet-4-5 3 15 0.30 3.75 6
claude-sonnet-4-6 3 15 0.30 3.75 6
claude-opus-4 15 75 1.50 18.75 30
claude-opus-4-0 15 75 1.50 18.75 30
claude-opus-4-1 15 75 1.50 18.75 30
claude-opus-4-5 5 25 0.50 6.25 10
claude-opus-4-6 5 25 0.50 6.25 10
gemini-2.0-flash 0.10 0.40 0.025
gemini-2.5-flash 0.30 2.50 0.03
gemini-2.5-flash-lite 0.10 0.40 0.01
gemini-2.5-pro 1.25 10 0.125
"""

# The full-text index. Plain SQL, because neither FTS5 nor a two-column key has a Django model.
SQLITE = [
    # No positions (detail=none) and no copy of the texts: an eighth of what is indexed instead of half.
    "CREATE VIRTUAL TABLE recording_search USING fts5(words, content='', detail=none, tokenize='unicode61 remove_diacritics 2')",
    "CREATE TABLE recording_mention (doc INTEGER NOT NULL, scope_uuid BLOB NOT NULL, PRIMARY KEY (doc, scope_uuid)) WITHOUT ROWID",
]
POSTGRESQL = [
    "CREATE TABLE recording_search (rowid bigint PRIMARY KEY, words tsvector NOT NULL)",
    "CREATE INDEX recording_search_words ON recording_search USING gin (words)",
    "CREATE TABLE recording_mention (doc bigint NOT NULL, scope_uuid uuid NOT NULL, PRIMARY KEY (doc, scope_uuid))",
]
BOTH = [
    "CREATE TABLE recording_searchstate (id smallint PRIMARY KEY, seq bigint NOT NULL)",
    "INSERT INTO recording_searchstate (id, seq) VALUES (1, 0)",
]


def price(apps, schema_editor):
    Price, PriceTable = apps.get_model("recording", "Price"), apps.get_model("recording", "PriceTable")
    names = ("input", "output", "cached", "cache_write", "cache_write_1h")
    rows = [line.split() for line in LIST.strip().splitlines()]
    Price.objects.bulk_create([Price(model=model, **dict(zip(names, map(Decimal, prices)))) for model, *prices in rows])
    PriceTable.objects.create(id=1, name=NAME, revision=0)


def create_search(apps, schema_editor):
    for sql in (POSTGRESQL if schema_editor.connection.vendor == "postgresql" else SQLITE) + BOTH:
        schema_editor.execute(sql)


def drop_search(apps, schema_editor):
    for table in ("recording_search", "recording_mention", "recording_searchstate"):
        schema_editor.execute(f"DROP TABLE {table}")


class Migration(migrations.Migration):
    initial = True

    # Those of databases made before the first release, which have to have all of them.
    replaces = [
        ("recording", name)
        for name in (
            "0001_record",
            "0002_prices",
            "0003_search",
            "0004_search_indexes",
            "0005_smaller_rows",
            "0006_covering_indexes",
            "0007_same_turn",
            "0008_children",
            "0009_streams",
            "0010_hour_cache",
            "0011_unsettled",
        )
    ]

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="Content",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("digest", models.BinaryField(max_length=16, unique=True)),
                ("kind", models.PositiveSmallIntegerField(choices=[(0, "Value"), (1, "Message"), (2, "Template")])),
                ("size", models.IntegerField()),
                ("body", models.BinaryField()),
            ],
            options={
                "db_table": "recording_content",
            },
        ),
        migrations.CreateModel(
            name="Ledger",
            fields=[
                ("id", models.PositiveSmallIntegerField(default=1, primary_key=True, serialize=False)),
                ("seq", models.BigIntegerField(default=0)),
                ("content_id", models.BigIntegerField(default=0)),
                ("epoch", models.BigIntegerField(default=0)),
                ("swept_us", models.BigIntegerField(default=0)),
            ],
        ),
        migrations.CreateModel(
            name="PriceTable",
            fields=[
                ("id", models.PositiveSmallIntegerField(default=1, primary_key=True, serialize=False)),
                (
                    "name",
                    models.CharField(default="", help_text="Day of the list prices it began with.", max_length=40),
                ),
                ("revision", models.PositiveIntegerField(default=0)),
            ],
        ),
        migrations.CreateModel(
            name="Unsettled",
            fields=[
                ("uuid", relayweb.recording.fields.UuidField(primary_key=True, serialize=False)),
                ("root", relayweb.recording.fields.UuidField(null=True)),
            ],
        ),
        migrations.CreateModel(
            name="ChunkBlock",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("attempt_uuid", relayweb.recording.fields.UuidField()),
                ("kind", models.PositiveSmallIntegerField(choices=[(0, "llm.chunk"), (1, "relay.chunks")])),
                ("first_seq", models.BigIntegerField()),
                ("last_seq", models.BigIntegerField()),
                ("count", models.IntegerField()),
                ("sealed", models.BooleanField(default=False)),
                ("body", models.BinaryField()),
            ],
            options={
                "indexes": [
                    models.Index(fields=["attempt_uuid"], name="block_attempt"),
                    models.Index(fields=["last_seq"], name="block_seq"),
                ],
            },
        ),
        migrations.CreateModel(
            name="Event",
            fields=[
                ("seq", models.BigAutoField(primary_key=True, serialize=False)),
                ("uuid", relayweb.recording.fields.UuidField()),
                ("kind", models.PositiveSmallIntegerField(choices=[(0, "Start"), (1, "End"), (2, "Mark")])),
                ("digest", models.BinaryField(max_length=16)),
                ("mark_of", relayweb.recording.fields.UuidField(null=True)),
                ("at_ns", models.BigIntegerField()),
                ("flags", models.PositiveSmallIntegerField(default=0)),
                ("body", models.BinaryField()),
            ],
            options={
                "indexes": [
                    models.Index(fields=["uuid"], name="event_uuid"),
                    models.Index(
                        condition=models.Q(("mark_of__isnull", False)), fields=["mark_of"], name="event_marks"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Price",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "model",
                    models.CharField(
                        help_text="Name of a model without its date, in small letters; * and ? are wildcards.",
                        max_length=200,
                        validators=[
                            django.core.validators.RegexValidator(
                                "^[^\\sA-Z]+\\Z", "Give a name in small letters without spaces, for example gpt-4o*."
                            )
                        ],
                    ),
                ),
                (
                    "provider",
                    models.CharField(
                        blank=True,
                        default="",
                        help_text="Only for this provider, for example azure*; empty for all.",
                        max_length=100,
                    ),
                ),
                ("since", models.DateField(default=datetime.date(2020, 1, 1), help_text="First day of this price.")),
                (
                    "input",
                    models.DecimalField(
                        decimal_places=6,
                        help_text="US dollars a million tokens read.",
                        max_digits=12,
                        validators=[django.core.validators.MinValueValidator(Decimal("0"))],
                    ),
                ),
                (
                    "output",
                    models.DecimalField(
                        decimal_places=6,
                        help_text="US dollars a million tokens written, reasoning included.",
                        max_digits=12,
                        validators=[django.core.validators.MinValueValidator(Decimal("0"))],
                    ),
                ),
                (
                    "cached",
                    models.DecimalField(
                        blank=True,
                        decimal_places=6,
                        help_text="Tokens read from the provider's cache; empty: as input.",
                        max_digits=12,
                        null=True,
                        validators=[django.core.validators.MinValueValidator(Decimal("0"))],
                    ),
                ),
                (
                    "cache_write",
                    models.DecimalField(
                        blank=True,
                        decimal_places=6,
                        help_text="Tokens written to the provider's cache; empty: as input.",
                        max_digits=12,
                        null=True,
                        validators=[django.core.validators.MinValueValidator(Decimal("0"))],
                    ),
                ),
                (
                    "cache_write_1h",
                    models.DecimalField(
                        blank=True,
                        decimal_places=6,
                        help_text="Those of them that are kept for an hour; empty: as the others.",
                        max_digits=12,
                        null=True,
                        validators=[django.core.validators.MinValueValidator(Decimal("0"))],
                    ),
                ),
            ],
            options={
                "ordering": ("model", "provider", "since"),
                "constraints": [
                    models.UniqueConstraint(
                        fields=("model", "provider", "since"),
                        name="price_once",
                        violation_error_message="This model, provider and day already have a price; change that one.",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Rewrite",
            fields=[
                ("seq", models.BigAutoField(primary_key=True, serialize=False)),
                ("attempt_uuid", relayweb.recording.fields.UuidField()),
                ("position", models.IntegerField()),
                ("key", models.TextField()),
                ("revision", models.BigIntegerField(null=True)),
                ("title", models.TextField(null=True)),
                ("action", models.TextField(null=True)),
                ("priority", models.BigIntegerField(null=True)),
                ("mode", models.CharField(max_length=16)),
                ("result", models.CharField(max_length=16)),
                ("changed", models.BooleanField(default=False)),
                ("duration_us", models.FloatField(null=True)),
                ("bytes_before", models.BigIntegerField(null=True)),
                ("bytes_after", models.BigIntegerField(null=True)),
                ("reason", models.TextField(null=True)),
                ("error", models.TextField(null=True)),
                ("ruleset", models.TextField(null=True)),
            ],
            options={
                "indexes": [
                    models.Index(fields=["attempt_uuid"], name="rewrite_attempt"),
                    models.Index(fields=["key", "seq"], name="rewrite_key"),
                ],
            },
        ),
        migrations.CreateModel(
            name="Scope",
            fields=[
                ("uuid", relayweb.recording.fields.UuidField(primary_key=True, serialize=False)),
                ("seq", models.BigIntegerField()),
                ("start_seq", models.BigIntegerField(null=True)),
                ("end_seq", models.BigIntegerField(null=True)),
                ("parent_uuid", relayweb.recording.fields.UuidField(null=True)),
                ("turn_uuid", relayweb.recording.fields.UuidField()),
                ("parent_turn_uuid", relayweb.recording.fields.UuidField(null=True)),
                ("logical_uuid", relayweb.recording.fields.UuidField(null=True)),
                ("joined_uuid", relayweb.recording.fields.UuidField(null=True)),
                ("top", models.BooleanField(default=False)),
                (
                    "role",
                    models.CharField(
                        choices=[
                            ("session", "Session"),
                            ("turn", "Turn"),
                            ("subagent", "Subagent"),
                            ("logical_call", "Logical Call"),
                            ("attempt", "Attempt"),
                            ("tool", "Tool"),
                            ("scope", "Scope"),
                        ],
                        max_length=12,
                    ),
                ),
                ("is_session", models.BooleanField(default=False)),
                ("is_turn", models.BooleanField(default=False)),
                ("is_home", models.BooleanField(default=False)),
                ("category", models.CharField(max_length=64, null=True)),
                ("name", models.TextField()),
                (
                    "status",
                    models.CharField(
                        choices=[
                            ("running", "Running"),
                            ("ok", "Ok"),
                            ("failed", "Failed"),
                            ("cancelled", "Cancelled"),
                            ("blocked", "Blocked"),
                            ("interrupted", "Interrupted"),
                        ],
                        max_length=12,
                    ),
                ),
                ("outcome", models.CharField(max_length=64, null=True)),
                ("flags", models.IntegerField(default=0)),
                ("start_us", models.BigIntegerField(null=True)),
                ("end_us", models.BigIntegerField(null=True)),
                ("last_us", models.BigIntegerField()),
                ("arrived_us", models.BigIntegerField()),
                ("session_id", models.TextField(null=True)),
                ("turn_id", models.TextField(null=True)),
                ("profile", models.TextField(null=True)),
                ("api_request_id", models.TextField(null=True)),
                ("call_role", models.TextField(null=True)),
                ("tool_call_id", models.TextField(null=True)),
                ("provider", models.TextField(null=True)),
                ("model", models.TextField(null=True)),
                ("api_mode", models.TextField(null=True)),
                ("attempt", models.IntegerField(null=True)),
                ("streaming", models.BooleanField(null=True)),
                ("ttft_us", models.BigIntegerField(null=True)),
                ("chunk_count", models.IntegerField(null=True)),
                ("finish_reason", models.TextField(null=True)),
                ("stream_finish_reason", models.TextField(null=True)),
                ("input_tokens", models.BigIntegerField(null=True)),
                ("output_tokens", models.BigIntegerField(null=True)),
                ("cached_tokens", models.BigIntegerField(null=True)),
                ("cache_write_tokens", models.BigIntegerField(null=True)),
                ("reasoning_tokens", models.BigIntegerField(null=True)),
                ("total_tokens", models.BigIntegerField(null=True)),
                ("usage_complete", models.BooleanField(null=True)),
                ("cost_pusd", models.BigIntegerField(null=True)),
                ("wasted_pusd", models.BigIntegerField(null=True)),
                ("cache_write_1h_tokens", models.BigIntegerField(null=True)),
                ("price_version", models.TextField(null=True)),
                ("error_type", models.TextField(null=True)),
                ("error_status", models.IntegerField(null=True)),
                ("error_message", models.TextField(null=True)),
                ("logical_calls", models.IntegerField(null=True)),
                ("attempts", models.IntegerField(null=True)),
                ("retries", models.IntegerField(null=True)),
                ("rewrites", models.IntegerField(null=True)),
                ("tools", models.IntegerField(null=True)),
                ("subagents", models.IntegerField(null=True)),
                ("model_names", models.TextField(null=True)),
                ("provider_names", models.TextField(null=True)),
                ("asked", models.TextField(null=True)),
                ("state", models.BinaryField(null=True)),
            ],
            options={
                "indexes": [
                    models.Index(fields=["seq"], name="scope_seq"),
                    models.Index(fields=["turn_uuid", "seq"], name="scope_turn"),
                    models.Index(fields=["parent_uuid"], name="scope_children"),
                    models.Index(
                        condition=models.Q(("parent_turn_uuid__isnull", False)),
                        fields=["parent_turn_uuid"],
                        name="scope_inner_turns",
                    ),
                    models.Index(
                        condition=models.Q(("is_turn", True)), fields=["start_us", "uuid"], name="scope_turn_list"
                    ),
                    models.Index(
                        condition=models.Q(("is_home", True)), fields=["session_id", "start_us"], name="scope_session"
                    ),
                    models.Index(
                        condition=models.Q(("call_role__isnull", False)),
                        fields=["call_role", "turn_uuid"],
                        name="scope_call_role",
                    ),
                    models.Index(
                        condition=models.Q(("role", "tool")), fields=["name", "role", "turn_uuid"], name="scope_tool"
                    ),
                    models.Index(
                        condition=models.Q(("role", "attempt")),
                        fields=["finish_reason", "api_mode", "role", "turn_uuid"],
                        name="scope_answer",
                    ),
                    models.Index(
                        condition=models.Q(("error_type__isnull", False)),
                        fields=["error_type", "error_status", "turn_uuid"],
                        name="scope_error",
                    ),
                    models.Index(
                        condition=models.Q(("is_home", True), ("turn_id__isnull", False)),
                        fields=["turn_id"],
                        name="scope_same_turn",
                    ),
                    models.Index(
                        condition=models.Q(("status", "running")), fields=["arrived_us"], name="scope_running"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Attempt",
            fields=[],
            options={
                "proxy": True,
                "indexes": [],
                "constraints": [],
            },
            bases=("recording.scope",),
        ),
        migrations.CreateModel(
            name="LogicalCall",
            fields=[],
            options={
                "proxy": True,
                "indexes": [],
                "constraints": [],
            },
            bases=("recording.scope",),
        ),
        migrations.CreateModel(
            name="Session",
            fields=[],
            options={
                "proxy": True,
                "indexes": [],
                "constraints": [],
            },
            bases=("recording.scope",),
        ),
        migrations.CreateModel(
            name="Turn",
            fields=[],
            options={
                "proxy": True,
                "indexes": [],
                "constraints": [],
            },
            bases=("recording.scope",),
        ),
        migrations.CreateModel(
            name="Stream",
            fields=[
                ("attempt_uuid", relayweb.recording.fields.UuidField(primary_key=True, serialize=False)),
                ("seq", models.BigIntegerField()),
                ("count", models.IntegerField()),
                ("stalls", models.IntegerField()),
                ("stalled_us", models.BigIntegerField()),
                ("longest_us", models.BigIntegerField(null=True)),
                ("gaps", models.BinaryField()),
            ],
            options={
                "indexes": [
                    models.Index(fields=["seq"], name="stream_seq"),
                    models.Index(
                        condition=models.Q(("stalls__gt", 0)), fields=["attempt_uuid", "stalls"], name="stream_stalls"
                    ),
                ],
            },
        ),
        migrations.RunPython(price, migrations.RunPython.noop),
        migrations.RunPython(create_search, drop_search),
    ]
