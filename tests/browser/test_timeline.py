"""What pointer and keys do to the timeline, and what the page downloads."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.browser.conftest import ready, until
from tests.browser.stories import Story

Open = Callable[..., Any]
Shot = Callable[..., None]


def test_waiting_is_pressed_together_and_has_its_length_again(told: Story, open_page: Open, shot: Shot) -> None:
    page = ready(open_page(f"/turns/{told.turn}/"))
    said = page.locator("[data-waited]").inner_text()
    assert "of waiting" in said and "%" in said
    width = """() => { const { timeline: t, model: m } = relayTurn; const i = m.troubles()[0];
        return t.x(m.end[i]) - t.x(m.start[i]); }"""
    before = page.evaluate(width)
    page.get_by_role("button", name="Compress").click()
    assert page.evaluate(width) > 1.2 * before
    assert "press=1" in page.url
    shot(page, "turn-compressed-light")
    page.reload()
    ready(page)
    assert page.evaluate(width) > 1.2 * before
    page.keyboard.press("c")
    assert page.evaluate(width) == before
    assert "press" not in page.url


def test_a_drag_with_shift_goes_into_a_stretch_of_time_and_z_comes_back(told: Story, open_page: Open) -> None:
    page = ready(open_page(f"/turns/{told.turn}/"))
    box = page.locator(".tl-over").bounding_box()
    edges = page.evaluate("() => [4, 12].map((t) => relayTurn.timeline.x(t))")
    page.keyboard.down("Shift")
    page.mouse.move(box["x"] + edges[0], box["y"] + 30)
    page.mouse.down()
    page.mouse.move(box["x"] + edges[1], box["y"] + 40, steps=4)
    area = page.evaluate("() => relayTurn.timeline.area")
    assert abs(area["from"] - 4) < 0.1 and abs(area["to"] - 12) < 0.1
    page.mouse.up()
    page.keyboard.up("Shift")
    view = page.evaluate("() => relayTurn.timeline.view")
    assert abs(view["from"] - 4) < 0.1 and abs(view["to"] - 12) < 0.1
    until(page, "() => location.search.includes('from=')")
    page.keyboard.press("z")
    assert page.evaluate("() => relayTurn.timeline.fitted")


def test_escape_gives_up_a_stretch_that_is_being_chosen(told: Story, open_page: Open) -> None:
    page = ready(open_page(f"/turns/{told.turn}/"))
    box = page.locator(".tl-over").bounding_box()
    page.keyboard.down("Shift")
    page.mouse.move(box["x"] + 400, box["y"] + 30)
    page.mouse.down()
    page.mouse.move(box["x"] + 600, box["y"] + 30, steps=3)
    page.keyboard.press("Escape")
    page.mouse.up()
    page.keyboard.up("Shift")
    assert page.evaluate("() => relayTurn.timeline.fitted && relayTurn.timeline.area === null")


def test_a_turn_is_downloaded_from_its_page(told: Story, open_page: Open) -> None:
    page = ready(open_page(f"/turns/{told.turn}/"))
    for form in ("ATOF", "OTLP", "ATIF"):
        page.get_by_label("Download this turn").click()
        with page.expect_download() as download:
            page.locator(".download a", has_text=form).click()
        assert download.value.suggested_filename == f"turn-{told.turn}.{form.lower()}.jsonl"
        lines = Path(download.value.path()).read_bytes().splitlines()
        assert lines and all(isinstance(json.loads(line), dict) for line in lines)
        assert page.locator(".download[open]").count() == 0
    page.get_by_label("Download this turn").click()
    page.keyboard.press("Escape")
    assert page.locator(".download[open]").count() == 0


def test_a_scope_chosen_in_the_tree_is_brought_into_sight_in_the_conversation(told: Story, open_page: Open) -> None:
    page = ready(open_page(f"/turns/{told.turn}/?view=transcript"))
    page.wait_for_selector(".transcript")
    page.locator("relay-tree .trow", has_text="test-runner").first.click()
    page.keyboard.press("j")
    until(page, "() => document.querySelector('.talk.chosen')?.innerText.includes('in test-runner')")


def test_the_tree_tells_what_a_tool_was_called_with(told: Story, open_page: Open) -> None:
    page = ready(open_page(f"/turns/{told.turn}/"))
    until(page, "() => document.querySelector('relay-tree').innerText.includes('quantize(')")
    asked = page.evaluate(
        "() => performance.getEntriesByType('resource').filter((r) => r.name.includes('/hints/')).length"
    )
    page.keyboard.press("j")
    page.keyboard.press("k")
    page.wait_for_timeout(200)
    again = page.evaluate(
        "() => performance.getEntriesByType('resource').filter((r) => r.name.includes('/hints/')).length"
    )
    assert asked == again == 1
