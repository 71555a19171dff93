from django.urls import URLPattern, URLResolver, include, path

from relayweb.ui import lists

app_name = "ui"
urlpatterns: list[URLPattern | URLResolver] = [
    path("", lists.turns, name="turns"),
    path("", include("relayweb.ui.turn_urls")),
]
