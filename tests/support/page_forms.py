"""A written page in a browser, in each of its forms: light, dark, on a phone and printed."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from support.browser import Browsed, kept

FORMS: dict[str, dict[str, Any]] = {
    "light": {"width": 1200},
    "dark": {"width": 1200, "color_scheme": "dark"},
    "phone": {"width": 390},
    "print": {"width": 720},
}
CONTRASTS = """() => {
  const light = (colour) => {
    const parts = colour.match(/[0-9.]+/g).slice(0, 3).map((each) => (each / 255) ** 2.2);
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2] + 0.05;
  };
  const ground = light(getComputedStyle(document.body).backgroundColor);
  const drawn = [...document.querySelectorAll(".plot .js-line, .plot .shapelayer path")];
  return drawn.map((each) => getComputedStyle(each))
    .filter((each) => parseFloat(each.strokeWidth) >= 1)
    .map((each) => light(each.stroke))
    .map((each) => Math.max(each, ground) / Math.min(each, ground));
}"""
"""Of every line of every chart to the ground of the page; thinner ones are edges of areas."""


UNDRAWN = """() => [...document.querySelectorAll(".plot")].filter(
  (each) => each.checkVisibility() && !each.querySelector(".main-svg")).length"""
"""How many visible charts are not drawn yet."""


def opened(browser: Browsed, path: Path, form: str) -> Any:
    """The page with all its visible charts drawn, as that form shows it."""
    page = browser.page(path.as_uri(), **FORMS[form])
    if form == "print":
        page.emulate_media(media="print")
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
    until_s = time.monotonic() + 30
    while page.evaluate(UNDRAWN):
        assert time.monotonic() < until_s, "charts are not drawn"
        page.wait_for_timeout(50)
    kept(page, f"{path.stem}-{form}")
    return page


def require_form(page: Any, form: str) -> None:
    """Nothing is wider than the page, the ground is that of the form, and lines stand out."""
    wide, shown = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert wide <= shown
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == ("rgb(20, 23, 26)" if form == "dark" else "rgb(255, 255, 255)")
    assert min(page.evaluate(CONTRASTS), default=9.0) > 2.9
    assert page.locator("h1").inner_text() == page.title()
