"""The live page in a real browser: light, dark, on a phone and printed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from support.browser import Browsed, kept
from support.live_records import Made, write_run
from support.page_forms import CUT_OFF, FAINT_TEXTS
from support.page_server import served

FORMS: dict[str, dict[str, Any]] = {
    "light": {"width": 1400, "color_scheme": "light"},
    "dark": {"width": 1400, "color_scheme": "dark"},
    "phone": {"width": 390, "color_scheme": "light"},
    "print": {"width": 794, "color_scheme": "dark", "media": "print"},
}
GROUNDS = {"dark": "rgb(18, 19, 20)", "print": "rgb(255, 255, 255)"}


@pytest.fixture(scope="module")
def page(browser: Browsed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The page of a run that has ended, in which a sixth of the requests were late."""
    path = tmp_path_factory.mktemp("forms") / "records.db"
    write_run(path, Made(ends=True, late=25))
    with served(path) as url:
        page = browser.page(url)
        page.wait_for_selector(".tenant:nth-child(2)")
        page.wait_for_selector("[data-figure=goodput] .large:has-text('%')")
        page.wait_for_selector("[aria-label^='Windows: promised'] tbody tr")
        page.wait_for_selector("td .parts")
        yield page


def test_it_leads_with_goodput_slo_attainment_and_alerts(page: Any) -> None:
    for form, media in FORMS.items():
        page.set_viewport_size({"width": media["width"], "height": 900})
        page.emulate_media(media=media.get("media"), color_scheme=media["color_scheme"])
        kept(page, f"forms-{form}")
        require_form(page, form)


def test_at_1200_pixels_every_table_and_caption_is_whole(page: Any) -> None:
    page.set_viewport_size({"width": 1200, "height": 900})
    page.emulate_media(media="screen", color_scheme="light")
    assert page.evaluate(CUT_OFF) == []
    assert page.evaluate(FAINT_TEXTS) == []
    page.emulate_media(color_scheme="dark")
    assert page.evaluate(FAINT_TEXTS) == []


def require_form(page: Any, form: str) -> None:
    wide, shown = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert wide == shown
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == GROUNDS.get(form, "rgb(246, 246, 244)")
    figures = page.locator(".pane .figure h2").all_inner_texts()
    assert figures == ["goodput", "SLO attainment", "alerts"]
    top = page.locator(".summary").bounding_box()
    assert top["y"] < 200, "it is the first thing on the page"
    words = page.locator(".summary .large").first
    assert float(words.evaluate("(each) => parseFloat(getComputedStyle(each).fontSize)")) >= 30
    alerts = page.locator("[data-figure=alerts]")
    assert alerts.locator("li").all_inner_texts()[0].startswith("cameras: only ")
    assert alerts.locator(".large").inner_text() == str(alerts.locator("li").count())


def test_the_browser_reported_no_error(browser: Browsed) -> None:
    assert browser.complaints == []
