from django.urls import URLPattern, URLResolver, include, path, register_converter
from django.urls.converters import StringConverter

from relayweb.ui import compare, lists, peek, sessions, start, statistics, views


class Anything(StringConverter):
    """A session id as somebody else chose it: slashes and line breaks included."""

    regex = r"[\s\S]+"


register_converter(Anything, "anything")

app_name = "ui"
urlpatterns: list[URLPattern | URLResolver] = [
    path("", lists.turns, name="turns"),
    path("turns/rows/", lists.changed_rows, name="rows"),
    path("turns/<uuid:uuid>/peek/", peek.peek, name="peek"),
    path("views/save/", views.save, name="save-view"),
    path("views/<int:pk>/forget/", views.forget, name="forget-view"),
    path("jump/", lists.jump, name="jump"),
    path("sessions/", sessions.sessions, name="sessions"),
    path("events/", sessions.events, name="events"),
    path("sessions/<anything:session_id>/", sessions.session, name="session"),
    # Not led to the address with a slash: a browser would take the `..` in an id for a step up.
    path("sessions/<anything:session_id>", sessions.session),
    path("compare/", compare.compare, name="compare"),
    path("statistics/", statistics.statistics, name="statistics"),
    path("start/", start.start, name="start"),
    path("start/token/", start.make_token, name="make-token"),
    path("start/demo/", start.demo, name="demo"),
    path("", include("relayweb.ui.turn_urls")),
]
