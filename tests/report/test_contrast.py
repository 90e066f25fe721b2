"""Text is legible on its ground in every theme: contrast as WCAG 2 asks for level AA."""

from __future__ import annotations

import re
from importlib.resources import files
from itertools import product

import pytest

from migrator.report.page import Axis, HeatMap, Slab, Slices, Use
from migrator.report.paint import OUTCOMES, Paint, shades
from migrator.report.plotly_charts import figure_of

AA = 4.5
"""What level AA asks of text."""

Colour = tuple[float, float, float]


def contrast(one: str, other: str, page: str = "#FFFFFF") -> float:
    """The contrast ratio of two colours; where they are translucent, `page` shows through."""
    ground = _parsed(page, (0, 0, 0))
    darker, lighter = sorted(_luminance(_parsed(colour, ground)) for colour in (one, other))
    return (lighter + 0.05) / (darker + 0.05)


def _parsed(colour: str, ground: Colour) -> Colour:
    if colour.startswith("#"):
        digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
        return int(digits[:2], 16), int(digits[2:4], 16), int(digits[4:], 16)
    red, green, blue, *opacity = (float(number) for number in re.findall(r"[\d.]+", colour))
    part = opacity[0] if opacity else 1.0
    pairs = zip((red, green, blue), ground, strict=True)
    red, green, blue = (part * own + (1 - part) * below for own, below in pairs)
    return red, green, blue


def _luminance(colour: Colour) -> float:
    parts = [channel / 255 for channel in colour]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def themes(style: str) -> dict[str, dict[str, str]]:
    """The variables of a style sheet in its light, dark and printed form."""
    starts = {
        "light": style.index(":root"),
        "dark": style.index(":root", style.index("(prefers-color-scheme: dark)")),
        "print": style.index(":root", style.index("@media print")),
    }
    own = {
        name: dict(re.findall(r"--(\w+):\s*(#\w+);", style[start : style.index("}", start)]))
        for name, start in starts.items()
    }
    return {name: own["light"] | variables for name, variables in own.items()}


STYLES = {
    "report": files("migrator.report").joinpath("page.css").read_text("utf-8"),
    "dashboard": files("migrator.dashboard").joinpath("static/page.css").read_text("utf-8"),
}
TEXTS = {
    "report": [*product(("ink", "soft", "link"), ("ground", "raised")), ("ink", "mark")],
    "dashboard": [
        *product(("ink", "soft", "warn"), ("ground", "paper", "faint")),
        ("paper", "ink"),
    ],
}
"""The variables of text and of the grounds that it stands on."""
FORMS = [(page, theme) for page in STYLES for theme in ("light", "dark", "print")]


@pytest.mark.parametrize(("page", "theme"), FORMS)
def test_the_text_of_a_page(page: str, theme: str) -> None:
    colours = themes(STYLES[page])[theme]
    for text, ground in TEXTS[page]:
        assert contrast(colours[text], colours[ground]) >= AA, (text, ground)


def test_words_on_the_colours_of_tenants_and_outcomes() -> None:
    tones = [*shades(7), *(paint.shade for paint in OUTCOMES.values()), Paint(None).shade]
    for shade in tones:
        assert contrast(shade.ink, shade.fill) >= AA, shade.fill


def test_numbers_in_the_cells_of_a_heat_map() -> None:
    axis = Axis("value", share=True)
    chart = HeatMap("heat", ("a", "b"), ("row",), ((0.1, 0.9),), axis, axis, axis)
    trace = figure_of(chart)["data"][0]
    for _, fill in trace["colorscale"]:
        assert contrast(trace["textfont"]["color"], fill) >= AA, fill


@pytest.mark.parametrize("theme", ["light", "dark", "print"])
def test_sizes_of_unused_instances(theme: str) -> None:
    chart = Slices("held", 8, 10.0, (), (Slab(None, Use.UNUSED, "2g", 0, 2, 0.0, 10.0),))
    trace = figure_of(chart)["data"][0]
    colours = themes(STYLES["report"])[theme]
    ink, fill = trace["insidetextfont"]["color"], trace["marker"]["color"]
    channels = ", ".join(str(int(ink[at : at + 2], 16)) for at in (1, 3, 5))
    rule = f'.bartext-inside[style*="fill: rgb({channels})"] {{ fill: var(--ink) !important; }}'
    assert rule in STYLES["report"]
    assert contrast(colours["ink"], fill, colours["ground"]) >= AA
