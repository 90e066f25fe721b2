"""The live page in a real browser: light, dark, on a phone and printed."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.browser import Browsed, kept
from support.live_records import Made, write_run
from support.page_forms import CUT_OFF, FAINT_TEXTS
from support.page_server import served

from migrator.records.rows import PlanRecord
from migrator.report.paint import OUTCOMES

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


def test_a_legend_names_the_parts_of_a_start(page: Any) -> None:
    legend = page.locator("[aria-label='Parts of a start'] li")
    names = legend.all_inner_texts()
    fill = "(each) => getComputedStyle(each).backgroundColor"
    shown = [swatch.evaluate(fill) for swatch in legend.locator(".swatch").all()]
    bar = page.locator("td .parts").first
    said = [re.sub(r" [\d.]+ m?s$", "", part) for part in bar.get_attribute("title").split(", ")]
    drawn = [part.evaluate(fill) for part in bar.locator("i").all()]
    assert len(said) == len(drawn) >= 3
    assert (
        dict(zip(said, drawn, strict=True)).items() <= dict(zip(names, shown, strict=True)).items()
    )


def test_outcomes_have_the_colours_of_the_palette(page: Any) -> None:
    for name, paint in OUTCOMES.items():
        colour = page.evaluate(
            "(name) => getComputedStyle(document.documentElement).getPropertyValue(name)",
            f"--{name}",
        )
        assert colour.strip() == paint.fill


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


def test_plans_and_events_are_one_list_newest_first(browser: Browsed, tmp_path: Path) -> None:
    path = tmp_path / "records.db"
    now_s = time.time()
    first = PlanRecord(2, now_s - 60, 0, "the window begins", 1502.0, 0.25, 0.001)
    again = PlanRecord(2, now_s + 60, 9, "more arrivals than forecast")
    write_run(path, Made(more=(first, again)))
    with served(path) as address:
        page = browser.page(address)
        rows = page.locator("[aria-label='Plans and events, newest first'] tbody tr")
        rows.nth(2).wait_for()
        cells = [text.split("\t")[1:] for text in rows.all_inner_texts()]
    assert cells == [
        ["plan", "window 2, slot 9: more arrivals than forecast"],
        ["model", "photos: version 2 is better on data held out"],
        [
            "plan",
            "window 2, slot 0: the window begins; goodput 1,502 promised; took 0.25 s; gap 0.10%",
        ],
    ]


def test_the_browser_reported_no_error(browser: Browsed) -> None:
    assert browser.complaints == []
