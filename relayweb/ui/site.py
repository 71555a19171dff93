"""The admin site: open to everyone who may see the record; each model then says who may do what."""

from __future__ import annotations

from django.contrib.admin import AdminSite
from django.http import HttpRequest

from relayweb.access.permissions import may_view


class RelaySite(AdminSite):
    site_title = "relayweb"
    site_header = "relayweb"
    index_title = "Admin"
    enable_nav_sidebar = False

    def has_permission(self, request: HttpRequest) -> bool:
        return request.user.is_active and may_view(request.user)
