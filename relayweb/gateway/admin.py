from __future__ import annotations

from typing import TYPE_CHECKING

from django.contrib import admin

from relayweb.gateway.models import Upstream

if TYPE_CHECKING:
    UpstreamModelAdmin = admin.ModelAdmin[Upstream]
else:
    UpstreamModelAdmin = admin.ModelAdmin


@admin.register(Upstream)
class UpstreamAdmin(UpstreamModelAdmin):
    list_display = ("name", "base_url", "api_mode", "enabled", "updated_at")
    list_filter = ("api_mode", "enabled")
    search_fields = ("name", "base_url")
