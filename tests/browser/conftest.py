"""A served installation, and pages of a real Chromium that fail a test for anything they complain about."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.browser.stories import Story, story
from tests.paired import Site
from tests.served import PROJECT, Served

playwright = pytest.importorskip("playwright.sync_api", reason="needs the playwright package")

ARTIFACTS = PROJECT / "artifacts"
"""Screenshots of each run; git-ignored, kept by CI."""
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--font-render-hinting=none",
]
DESKTOP = {"width": 1440, "height": 900}
PHONE = {"width": 390, "height": 844}

CSP_WATCH = """addEventListener("securitypolicyviolation", (event) => console.error(
  `CSP: ${event.violatedDirective} refused ${event.blockedURI || "inline"} ${event.sourceFile}`));"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """One browser for the whole run."""
    path = os.environ.get("RELAYWEB_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    with playwright.sync_playwright() as p:
        if path is None and not Path(p.chromium.executable_path).exists():
            pytest.skip("needs Chromium: install it, name it in RELAYWEB_CHROMIUM, or `playwright install chromium`")
        browser = p.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One installation that all browser tests share; each uses turns and sessions of its own."""
    served = Site(tmp_path_factory.mktemp("site")).start()
    yield served
    served.stop()


@pytest.fixture(scope="session")
def token(site: Served) -> str:
    return site.token("ingest")


@pytest.fixture(scope="session")
def told(site: Served, token: str) -> Story:
    made = story("browser-story")
    answer = site.send(made.events, token)
    assert answer["rejected"] == []
    return made


@pytest.fixture(scope="session")
def login(site: Served, chromium: Any) -> dict[str, Any]:
    """Cookies of a person who followed the one-time link."""
    done = site.run("login")
    link = re.search(rb"http://\S+", done.stdout)
    assert link, (done.stdout + done.stderr).decode()
    path = urlsplit(link[0].decode()).path
    context = chromium.new_context()
    page = context.new_page()
    page.goto(site.url + path)
    # The link opens a page that asks to press a button, so that previews of the link do not use it up.
    if page.locator("form button[type=submit]").count() and "/login" in page.url:
        page.locator("form button[type=submit]").first.click()
        page.wait_for_url(lambda url: "/login" not in url)
    state: dict[str, Any] = context.storage_state()
    context.close()
    return state


class Complaints(list[str]):
    """What a page complained about. Tests may clear what they provoked."""


@contextmanager
def guarded(context: Any, origin: str) -> Iterator[Complaints]:
    """Collects console errors, CSP reports, script errors and requests to elsewhere; fails at the end if any came."""
    said = Complaints()
    context.add_init_script(CSP_WATCH)
    context.on(
        "console", lambda m: said.append(f"console {m.type}: {m.text}") if m.type in ("error", "warning") else None
    )
    context.on("weberror", lambda e: said.append(f"script: {e.error}"))

    def request(asked: Any) -> None:
        parts = urlsplit(asked.url)
        if parts.scheme not in ("data", "blob", "about") and f"{parts.scheme}://{parts.netloc}" != origin:
            said.append(f"request to elsewhere: {asked.url}")

    context.on("request", request)
    yield said
    assert not said, "\n".join(said)


@pytest.fixture
def open_page(site: Served, login: dict[str, Any], chromium: Any) -> Iterator[Callable[..., Any]]:
    """Opens guarded pages: `open_page("/", theme="dark", viewport=PHONE)`; the page has `.complaints`."""
    stack: list[Any] = []

    def make(
        path: str | None = None, *, theme: str = "light", viewport: dict[str, int] | None = None, **more: Any
    ) -> Any:
        context = chromium.new_context(
            storage_state=login, color_scheme=theme, viewport=viewport or DESKTOP, base_url=site.url, **more
        )
        context.set_default_timeout(15_000)
        guard = guarded(context, site.url)
        complaints = guard.__enter__()
        stack.append((guard, context))
        page = context.new_page()
        page.complaints = complaints
        if path is not None:
            page.goto(path)
        return page

    yield make
    for guard, context in stack:
        context.close()
        guard.__exit__(None, None, None)


@pytest.fixture
def page(open_page: Callable[..., Any]) -> Any:
    """A guarded page, logged in, in the light theme."""
    return open_page()


def until(page: Any, expression: str, arg: Any = None, seconds: float = 20) -> Any:
    """The first true value of a JavaScript function, asked for again and again.

    `page.wait_for_function` would do, but evaluates in the page, where the Content-Security-Policy forbids it.
    """
    deadline = time.monotonic() + seconds
    while True:
        if value := page.evaluate(expression, arg):
            return value
        assert time.monotonic() < deadline, f"not within {seconds} s: {expression}"
        page.wait_for_timeout(30)


def ready(page: Any) -> Any:
    page.wait_for_selector(".turnpage.ready")
    until(
        page, "() => !document.querySelector('#inspector[aria-busy]') && document.querySelector('#inspector .tabpanel')"
    )
    return page


@pytest.fixture
def shot() -> Callable[[Any, str], None]:
    """Keeps a screenshot: `shot(page, "turn-dark")`."""
    ARTIFACTS.mkdir(exist_ok=True)

    def take(page: Any, name: str, **more: Any) -> None:
        page.screenshot(path=str(ARTIFACTS / f"{name}.png"), animations="disabled", **more)

    return take
