"""The column type of every uuid of the record."""

from __future__ import annotations

import uuid
from functools import lru_cache
from typing import Any

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper


@lru_cache(16_384)
def _uuid(value: bytes) -> uuid.UUID:
    """Remembered, because the live pages read the same running scopes twenty times a second."""
    return uuid.UUID(bytes=value)


class UuidField(models.Field[Any, Any]):
    """A `uuid.UUID`: 16 bytes on SQLite (Django's own field spends 32 there), `uuid` on PostgreSQL."""

    def db_type(self, connection: BaseDatabaseWrapper) -> str:
        return "uuid" if connection.vendor == "postgresql" else "blob"

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> uuid.UUID | None:
        return _uuid(bytes(value)) if isinstance(value, bytes | memoryview) else value

    def to_python(self, value: Any) -> uuid.UUID | None:
        if value is None or isinstance(value, uuid.UUID):
            return value
        if isinstance(value, bytes):
            return uuid.UUID(bytes=value)
        return uuid.UUID(str(value))

    def get_prep_value(self, value: Any) -> uuid.UUID | None:
        return self.to_python(value)

    def get_db_prep_value(self, value: Any, connection: BaseDatabaseWrapper, prepared: bool = False) -> Any:
        value = self.to_python(value)
        if value is None or connection.vendor == "postgresql":
            return value
        return value.bytes

    def value_to_string(self, obj: models.Model) -> str:
        value = self.value_from_object(obj)
        return "" if value is None else str(value)
