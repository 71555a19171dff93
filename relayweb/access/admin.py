"""Tokens in the admin: to see and to revoke. Making one is a command, because its text is shown only once."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from relayweb.access import tokens
from relayweb.access.models import Token


@admin.register(Token)
class TokenAdmin(admin.ModelAdmin[Token]):
    list_display = ["name", "scope", "hint", "per_minute", "created_at", "revoked_at"]
    list_filter = ["scope"]
    search_fields = ["name"]
    actions = ["revoke"]

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Token | None = None) -> bool:
        return False

    @admin.action(description="Revoke selected tokens", permissions=["change"])
    def revoke(self, request: HttpRequest, queryset: QuerySet[Token]) -> None:
        for token in queryset.filter(revoked_at=None):
            tokens.revoke(token)
