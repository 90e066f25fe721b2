"""The colours of all pages, charts and screens.

Tenants (and whatever else is compared, such as policies) have hues of their own; outcomes of
requests have others, so that a colour never means both. Every fill is visible on white and on the
ground of dark pages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

_TENANTS = ("#0072B2", "#B3BF2F", "#D38BD0", "#3FBFDB", "#9160C4", "#4A63D8", "#8A8F24")
"""The most distinct first; neighbours differ in lightness too, for colour-blind people."""
_OUTCOMES = ("#009E73", "#CC3352", "#E69F00", "#D55E00")
"""Good, wrong, late, dropped."""
HUES = len(_TENANTS)
"""How many tenants have a hue each: the most that a board can hold."""
_LINE_LUMINANCE = 0.22
"""Lines at most this light have a contrast of about 4 to white."""


@dataclass(frozen=True)
class Shade:
    """The tones of one hue."""

    fill: str
    light: str
    """Ground under hatching, and the colour of an instance that is still cold."""
    dark: str
    """Lines, on white and on dark pages."""
    ink: str
    """Words on `fill`."""


def shades(count: int) -> tuple[Shade, ...]:
    """One shade per tenant; they repeat after `HUES`."""
    return tuple(_shade(_TENANTS[index % HUES]) for index in range(count))


def _shade(fill: str) -> Shade:
    return Shade(
        fill=fill,
        light=_mix(fill, "#FFFFFF", 0.68),
        dark=_line(fill),
        ink="#FFFFFF" if luminance(fill) < 0.23 else "#1A1A1A",
    )


def _line(fill: str) -> str:
    """The fill, darkened until it is legible on white."""
    steps = (_mix(fill, "#000000", step / 20) for step in range(20))
    return next(each for each in steps if luminance(each) <= _LINE_LUMINANCE)


def _channels(colour: str) -> tuple[int, int, int]:
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return red, green, blue


def luminance(colour: str) -> float:
    """Relative luminance as in WCAG, with gamma 2.2 instead of its piecewise curve."""
    weights = (0.2126, 0.7152, 0.0722)
    pairs = zip(weights, _channels(colour), strict=True)
    return float(sum(weight * (channel / 255) ** 2.2 for weight, channel in pairs))


def _mix(colour: str, other: str, share: float) -> str:
    pairs = zip(_channels(colour), _channels(other), strict=True)
    return "#" + "".join(f"{round(a + (b - a) * share):02X}" for a, b in pairs)


_GREYS = Shade(fill="#9A9A9A", light="rgba(140,140,140,0.25)", dark="#767676", ink="#1A1A1A")


@dataclass(frozen=True)
class Paint:
    """How something coloured looks."""

    hue: int | None
    """Tenants' hues count from 0, the most distinct first; those of outcomes follow. None: grey."""
    light: bool = False
    hatched: bool = False
    dark: bool = False

    @property
    def shade(self) -> Shade:
        """Its tones."""
        return _GREYS if self.hue is None else _shade((*_TENANTS, *_OUTCOMES)[self.hue])

    @property
    def fill(self) -> str:
        """Its main tone."""
        shade = self.shade
        return shade.light if self.light else shade.dark if self.dark else shade.fill

    @property
    def ground(self) -> str:
        """What hatching is drawn on."""
        return "#FFFFFF" if self.light else self.shade.light


GOOD, WRONG, LATE = Paint(HUES), Paint(HUES + 1), Paint(HUES + 2)
DROPPED = Paint(HUES + 3, hatched=True)
UNJUDGED = replace(GOOD, light=True)
FAILED, UNANSWERED = Paint(None, dark=True), Paint(None, light=True)
REFUSED = Paint(None, hatched=True)
OUTCOMES: Mapping[str, Paint] = {
    "good": GOOD,
    "wrong": WRONG,
    "late": LATE,
    "dropped": replace(DROPPED, hatched=False),
    "failed": FAILED,
}
"""Outcomes as the live page names and fills them."""


def paint_of(index: int) -> Paint:
    """The look of the `index`-th of many things: plain hues, then hatched, then light ones."""
    rounds, hue = divmod(index, HUES)
    return Paint(hue, light=rounds % 4 >= 2, hatched=rounds % 2 == 1)


def tenant_paint(index: int) -> Paint:
    """The look of the `index`-th tenant; hues repeat after `HUES`."""
    return Paint(index % HUES)
