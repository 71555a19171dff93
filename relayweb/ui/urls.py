from django.urls import URLPattern, URLResolver, include, path

from relayweb.ui import compare, lists, peek, sessions, start, statistics

app_name = "ui"
urlpatterns: list[URLPattern | URLResolver] = [
    path("", lists.turns, name="turns"),
    path("turns/rows/", lists.changed_rows, name="rows"),
    path("turns/<uuid:uuid>/peek/", peek.peek, name="peek"),
    path("jump/", lists.jump, name="jump"),
    path("sessions/", sessions.sessions, name="sessions"),
    path("sessions/<path:session_id>/", sessions.session, name="session"),
    path("compare/", compare.compare, name="compare"),
    path("statistics/", statistics.statistics, name="statistics"),
    path("statistics/data/", statistics.data, name="statistics-data"),
    path("start/", start.start, name="start"),
    path("start/token/", start.make_token, name="make-token"),
    path("start/demo/", start.demo, name="demo"),
    path("", include("relayweb.ui.turn_urls")),
]
