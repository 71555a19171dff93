from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest

from relayweb.recording.prices import BESIDE_TEXT, Price, PriceTable
from relayweb.recording.upkeep.repricing import reprice_in_background

TEXT = ("input", "output", "cached", "cache_write", "cache_write_1h")


@admin.register(Price)
class PriceAdmin(admin.ModelAdmin[Price]):
    list_display = ("model", "provider", "tier", "above", "since", *TEXT)
    list_filter = ("tier",)
    search_fields = ("model", "provider")
    fieldsets = (
        (None, {"fields": ("model", "provider", "tier", "above", "since")}),
        ("Text", {"fields": TEXT}),
        ("Audio and images", {"fields": BESIDE_TEXT}),
        ("Tools of the provider", {"fields": ("web_search",)}),
    )
    actions = ("reprice",)

    @admin.action(description="Work out recorded costs again with this table", permissions=["change"])
    def reprice(self, request: HttpRequest, chosen: QuerySet[Price]) -> None:
        if reprice_in_background():
            told = f"Costs are being worked out again with table {PriceTable.current().version}."
            self.message_user(request, told)
        else:
            self.message_user(request, "Costs are already being worked out again.", messages.WARNING)

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> Any:
        title = f"Prices, US dollars a million tokens (table {PriceTable.current().version})"
        return super().changelist_view(request, {"title": title, **(extra_context or {})})

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Price]) -> None:
        for price in queryset:  # each deletion makes a new version of the table
            price.delete()
