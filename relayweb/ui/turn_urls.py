"""Routes of the turn page; included by relayweb.ui.urls in the same namespace."""

from django.urls import URLPattern

urlpatterns: list[URLPattern] = []
