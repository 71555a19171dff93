"""The admin site: open to everyone who may see the record; each model then says who may do what."""

from __future__ import annotations

from typing import Any

from django.contrib.admin import AdminSite
from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from relayweb.access.permissions import may_view


class RelaySite(AdminSite):
    site_title = "relayweb"
    site_header = "relayweb"
    index_title = "Admin"
    enable_nav_sidebar = False

    def has_permission(self, request: HttpRequest) -> bool:
        return request.user.is_active and may_view(request.user)

    def login(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """The product's own page, with its limit on guesses: one way in, not two."""
        return redirect_to_login(request.GET.get("next", reverse("admin:index")))
