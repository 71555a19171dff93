"""axe-core finds no serious fault on any page, light and dark."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.browser.test_turn_list import events

[AXE] = (Path(__file__).parent / "vendor").glob("axe-core-*.min.js")
PAGES = [
    "/",
    "/?q=modle:x",
    "/?q=status:blocked",
    "/sessions/",
    "/sessions/axe/",
    "/events/",
    "/compare/",
    "/statistics/",
    "/start/",
    "/admin/",
    "/admin/auth/user/",
    "/admin/auth/user/1/change/",
    "/admin/intercepts/interceptconfig/",
    "/admin/intercepts/interceptconfig/add/",
    "/admin/intercepts/interceptconfig/import/",
    "/nowhere/",
]


def faults(page) -> list[str]:
    said = list(getattr(page, "complaints", ()))
    page.evaluate(AXE.read_text())
    found = page.evaluate(
        "async () => (await axe.run(document, {resultTypes: ['violations'], preload: false})).violations"
    )
    # axe itself tries inline styles, which the policy refuses.
    if hasattr(page, "complaints"):
        page.complaints[:] = said
    return [
        f"{fault['id']}: {fault['help']}: {[node['html'][:160] for node in fault['nodes'][:3]]}"
        for fault in found
        if fault["impact"] in ("serious", "critical")
    ]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_page_has_a_serious_fault(site, open_page, theme):
    token = site.token("ingest")
    site.send(events("Read me", "axe"), token)
    site.send(events("Still running", "axe", ended=False), token)
    site.send(
        [{**events("A log record", "axe")[0], "kind": "mark", "scope_category": None, "parent_uuid": None}], token
    )
    page = open_page(theme=theme)
    told = {}
    for path in PAGES:
        page.goto(path)
        if found := faults(page):
            told[path] = found
    page.goto("/")
    page.keyboard.press("j")
    page.locator(".peek .asked").wait_for()
    if found := faults(page):
        told["peek"] = found
    page.complaints[:] = [said for said in page.complaints if "404" not in said]
    assert not told, "\n".join(f"{path}\n  " + "\n  ".join(found) for path, found in told.items())


def test_the_sign_in_page_has_no_serious_fault(site, chromium):
    context = chromium.new_context(base_url=site.url)
    page = context.new_page()
    page.goto("/login/")
    assert faults(page) == []
    context.close()
