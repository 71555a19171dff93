"""People in the admin: who they are and what they may do, by the three groups of relayweb.access."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.auth.admin import UserAdmin
from django.contrib.auth.models import Group, User
from django.http import HttpRequest

admin.site.unregister(User)
# The groups are the product's own; what they hold is set at each migration.
admin.site.unregister(Group)


@admin.register(User)
class PersonAdmin(UserAdmin):  # type: ignore[type-arg]
    list_display = ("username", "roles", "is_active", "last_login")
    list_filter = ("groups", "is_active")
    search_fields = ("username",)
    filter_horizontal = ()
    fieldsets = (
        (None, {"fields": ("username", "password")}),
        ("May come in as", {"fields": ("is_active", "groups", "is_superuser")}),
        ("Seen", {"fields": ("last_login", "date_joined")}),
    )
    readonly_fields = ("last_login", "date_joined")

    def get_queryset(self, request: HttpRequest) -> Any:
        return super().get_queryset(request).prefetch_related("groups")

    @admin.display(description="Groups")
    def roles(self, person: User) -> str:
        return ", ".join(group.name for group in person.groups.all()) or "–"

    def formfield_for_manytomany(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        if db_field.name == "groups":
            kwargs["widget"] = forms.CheckboxSelectMultiple
            kwargs["help_text"] = "viewer sees the record, operator also changes intercepts, admin does everything."
        return super().formfield_for_manytomany(db_field, request, **kwargs)
