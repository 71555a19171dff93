"""Every route, as everybody, against the table of docs/security.md."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from adapters import intercepts
from relayweb.ingest.doors import DOORS
from relayweb.intercepts import publish
from tests.security import routes
from tests.security.routes import EVERYBODY, METHODS, OTHER_METHODS, TOKENS, UUID, Route
from tests.served import PROJECT
from tests.writers import own_writer

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    rules = intercepts.current()
    with own_writer():
        yield
    publish.close()
    intercepts.swap(rules)  # for the tests of the core that come after


@dataclass(frozen=True)
class Row:
    where: tuple[str, ...]
    methods: frozenset[str]
    cells: tuple[str, ...]

    def fits(self, route: str) -> int:
        """How exactly this line names a route; 0 where it does not."""
        whole = 1000 * (route in self.where)
        return max(whole, *(len(one) if one.endswith("…") and route.startswith(one[:-1]) else 0 for one in self.where))


def table() -> list[Row]:
    text = (PROJECT / "docs/security.md").read_text()
    (lines,) = re.findall(r"^\| Where \|.*\n\|[-|]+\n((?:\|.*\n)+)", text, re.MULTILINE)
    rows = []
    for line in lines.splitlines():
        where, methods, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        assert len(cells) == len(EVERYBODY), line
        rows.append(Row(tuple(re.findall(r"`(/[^`]*)`", where)), frozenset(methods.split(", ")), tuple(cells)))
    return rows


ROWS = table()


def expected(route: str, method: str) -> tuple[str, ...]:
    """What the table says; of a method it does not name, that nobody gets anywhere with it."""
    nearest = max(row.fits(route) for row in ROWS)
    assert nearest, f"docs/security.md has no line for {method} {route}"
    rows = [row for row in ROWS if row.fits(route) == nearest and method in row.methods]
    return rows[0].cells if rows else ("405",) * len(EVERYBODY)


def differs(wanted: str, found: str) -> bool:
    if wanted == "yes":
        return found not in ("yes", "404")  # let in, and the thing asked for is not there
    if wanted == "405":
        return found not in ("405", "login", "401", "403", "404")
    return wanted != found


def test_each_route_of_the_pages_the_admin_and_the_api_is_open_to_whom_the_table_says() -> None:
    browsers, raw, things = routes.people_and_things()
    wrong = []
    for route in routes.django_routes(things):
        for method in METHODS:
            found = []
            for who in EVERYBODY:
                browser = browsers.get(who, browsers["anonymous"])
                found.append(routes.ask_django(browser, method, route.path, raw.get(who)))
            wanted = expected(route.text, method)
            if any(map(differs, wanted, found)):
                wrong.append(f"{method} {route.text}: the table says {' '.join(wanted)}, it is {' '.join(found)}")
    assert not wrong, "\n".join(wrong)


LEAST = ("anonymous", "viewer", "ingest")


def further(route: str, who: str, found: str) -> bool:
    """Whether somebody got in with a method, or broke something, who does not with GET or POST."""
    column = EVERYBODY.index(who)
    rightly = {expected(route, method)[column] for method in METHODS}
    return (found == "yes" and "yes" not in rightly) or found.startswith("5")


def test_no_other_method_leads_further() -> None:
    browsers, raw, things = routes.people_and_things()
    wrong = []
    for route in routes.django_routes(things):
        for method in OTHER_METHODS:
            for who in LEAST:
                browser = browsers.get(who, browsers["anonymous"])
                found = routes.ask_django(browser, method, route.path, raw.get(who))
                if further(route.text, who, found):
                    wrong.append(f"{method} {route.text}: {who} {found}")
    assert not wrong, "\n".join(wrong)


PLAIN = [
    *(("websocket" if kind == "websocket" else "http", Route(path, path)) for kind, path in DOORS),
    ("http", Route("/healthz", "/healthz")),
    ("http", Route("/gw/<upstream>/…", "/gw/demo/v1/models")),
    ("http", Route("/gw/t/<token>/<upstream>/…", "/gw/t/{}/demo/v1/models")),
    ("websocket", Route("/live/turns/", "/live/turns/")),
    ("websocket", Route("/live/turns/<uuid>/", f"/live/turns/{UUID}/")),
]


@pytest.mark.parametrize(("kind", "route"), PLAIN, ids=lambda value: getattr(value, "text", value))
def test_each_door_and_socket_beside_django_is_open_to_whom_the_table_says(kind: str, route: Route) -> None:
    browsers, raw, _ = routes.people_and_things()
    for method in (*METHODS, *OTHER_METHODS) if kind == "http" else ("websocket",):
        found = []
        for who in EVERYBODY:
            headers = {"content-type": "application/json"}
            if who in TOKENS and "{}" not in route.path:
                headers["authorization"] = f"Bearer {raw[who]}"
            elif who in browsers and who != "anonymous":
                headers["cookie"] = f"sessionid={browsers[who].cookies['sessionid'].value}"
            path = route.path.format(raw.get(who, "rw_gateway_" + "x" * 43))
            found.append(routes.ask_asgi(kind, method, path, headers))
        if method in OTHER_METHODS:
            assert not any(further(route.text, *pair) for pair in zip(EVERYBODY, found, strict=True)), found
            continue
        wanted = expected(route.text, method)
        assert not any(map(differs, wanted, found)), f"{method} {route.text}: {' '.join(wanted)} is {' '.join(found)}"


def test_every_row_of_the_table_is_of_a_route_there_is() -> None:
    _, _, things = routes.people_and_things()
    texts = [route.text for route in routes.django_routes(things)] + [route.text for _, route in PLAIN]
    gone = [
        one for row in ROWS for one in row.where if not any(Row((one,), row.methods, ()).fits(text) for text in texts)
    ]
    assert not gone
