"""The full-text index. Plain SQL, because neither FTS5 nor a two-column key has a Django model."""

from django.db import migrations

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


def create(apps, schema_editor):
    for sql in (POSTGRESQL if schema_editor.connection.vendor == "postgresql" else SQLITE) + BOTH:
        schema_editor.execute(sql)


def drop(apps, schema_editor):
    for table in ("recording_search", "recording_mention", "recording_searchstate"):
        schema_editor.execute(f"DROP TABLE {table}")


class Migration(migrations.Migration):
    dependencies = [("recording", "0002_prices")]
    operations = [migrations.RunPython(create, drop)]
