"""A written page in a browser, in each of its forms: light, dark on a phone, and printed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from support.browser import Browsed, kept
from support.waiting import until

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


FAINT_TEXTS = """() => {
  const numbers = (colour) => colour.match(/[0-9.]+/g).map(Number);
  const light = ([red, green, blue]) => {
    const linear = (each) => (each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4);
    return 0.2126 * linear(red / 255) + 0.7152 * linear(green / 255)
      + 0.0722 * linear(blue / 255) + 0.05;
  };
  const ground = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = numbers(getComputedStyle(at).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return light(colour);
    }
    return light([255, 255, 255]);
  };
  const own = (element) => [...element.childNodes].some(
    (node) => node.nodeType === Node.TEXT_NODE && node.textContent.trim());
  return [...document.querySelectorAll("body *:not(script, noscript, svg *)")]
    .filter((element) => own(element) && element.checkVisibility())
    .map((element) => {
      const pair = [light(numbers(getComputedStyle(element).color)), ground(element)];
      return [Math.max(...pair) / Math.min(...pair), element.textContent.trim().slice(0, 40)];
    })
    .filter(([ratio]) => ratio < 4.5);
}"""
"""Texts outside of charts whose contrast to their ground is lower than WCAG 2 asks for level AA."""


CUT_OFF = """() => {
  const folded = [...document.querySelectorAll("details:not([open])")];
  for (const each of folded) each.open = true;
  const boxes = [...document.querySelectorAll("body *:not(svg *)")].filter((each) =>
    each.clientWidth && each.scrollWidth > each.clientWidth + 1 && !each.closest(".plot"));
  const found = boxes.map(
    (each) => [each.scrollWidth, each.clientWidth, each.textContent.trim().slice(0, 40)]);
  for (const each of folded) each.open = false;
  return found;
}"""
"""Elements that show only a part of their width, also of what is folded."""


UNDRAWN = """() => [...document.querySelectorAll(".plot")].filter(
  (each) => each.checkVisibility() && !each.querySelector(".main-svg")).length"""
"""How many visible charts are not drawn yet."""


def opened(browser: Browsed, path: Path) -> Any:
    """The page with all its visible charts drawn, on a wide light screen."""
    page = browser.written_page(path.as_uri(), width=1200)
    _require_drawn_form(page, "light", path.stem)
    assert page.evaluate(CUT_OFF) == []
    return page


def show_on_dark_phone(page: Any, name: str) -> None:
    """An open page, whose ground and colours are those of its style sheet alone."""
    page.set_viewport_size({"width": 390, "height": 900})
    page.emulate_media(media="screen", color_scheme="dark")
    _require_drawn_form(page, "dark phone", name)


def print_page(page: Any, name: str) -> None:
    """What a browser does with an open page before it prints it."""
    page.set_viewport_size({"width": 720, "height": 900})
    page.emulate_media(media="print", color_scheme="light")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    _require_drawn_form(page, "print", name)


def _require_drawn_form(page: Any, form: str, name: str) -> None:
    until(lambda: not page.evaluate(UNDRAWN), "charts are drawn")
    kept(page, f"{name}-{form}")
    require_form(page, form)


def require_form(page: Any, form: str) -> None:
    """Nothing is wider than the page, the ground is that of the form, and lines stand out."""
    wide, shown = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert wide <= shown
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == ("rgb(20, 23, 26)" if "dark" in form else "rgb(255, 255, 255)")
    assert min(page.evaluate(CONTRASTS), default=9.0) > 2.9
    assert page.evaluate(FAINT_TEXTS) == []
    assert page.locator("h1").inner_text() == page.title()
