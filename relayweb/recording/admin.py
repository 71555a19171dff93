from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from django import forms
from django.contrib import admin, messages
from django.db.models import DateField, QuerySet
from django.http import HttpRequest

from relayweb.recording.prices import BESIDE_TEXT, Price, PriceTable
from relayweb.recording.upkeep.repricing import reprice_in_background

TEXT = ("input", "output", "cached", "cache_write", "cache_write_1h")


def _dollars(column: str) -> Callable[[Price], str]:
    """A column of the list: prices without the zeros that end six decimals."""

    @admin.display(description=column.replace("_", " "), ordering=column)
    def shown(price: Price) -> str:
        value = getattr(price, column)
        return "-" if value is None else f"{value.normalize():f}"

    return shown


@admin.register(Price)
class PriceAdmin(admin.ModelAdmin[Price]):
    list_display = ("model", "provider", "tier", "above", "since", *map(_dollars, TEXT))
    list_filter = ("tier",)
    search_fields = ("model", "provider")
    fieldsets = (
        (None, {"fields": ("model", "provider", "tier", "above", "since")}),
        ("Text", {"fields": TEXT}),
        ("Audio and images", {"fields": BESIDE_TEXT}),
        ("Tools of the provider", {"fields": ("web_search",)}),
    )
    formfield_overrides: ClassVar[dict[Any, Any]] = {
        DateField: {"widget": forms.DateInput(attrs={"type": "date"}, format="%Y-%m-%d")}
    }
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
