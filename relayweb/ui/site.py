"""The admin site: open to everyone who may see the record; each model then says who may do what."""

from __future__ import annotations

from typing import Any

from django.contrib.admin import AdminSite
from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse

from relayweb.access.permissions import may_view


class RelaySite(AdminSite):
    site_title = "relayweb"
    site_header = "relayweb"
    index_title = "Admin"
    enable_nav_sidebar = False

    def has_permission(self, request: HttpRequest) -> bool:
        return request.user.is_active and may_view(request.user)

    def app_index(  # type: ignore[override] # a redirect is no TemplateResponse
        self, request: HttpRequest, app_label: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """An application with one list of things needs no page that leads to it."""
        found = [model for app in self.get_app_list(request, app_label) for model in app["models"]]
        if len(found) == 1 and found[0]["admin_url"]:
            return redirect(found[0]["admin_url"])
        return super().app_index(request, app_label, extra_context)

    def login(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """The product's own page, with its limit on guesses: one way in, not two."""
        return redirect_to_login(request.GET.get("next", reverse("admin:index")))
