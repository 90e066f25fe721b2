"""The contrast of colours as in WCAG 2, and the colours of a style sheet's themes."""

from __future__ import annotations

import re

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
