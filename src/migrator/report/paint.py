"""Colours of tenants, outcomes and policies, as plain data."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
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
        ink=max("#FFFFFF", "#000000", key=lambda ink: contrast(ink, fill)),
    )


def _line(fill: str) -> str:
    """The fill, darkened until it is legible on white."""
    steps = (_mix(fill, "#000000", step / 20) for step in range(20))
    return next(step for step in steps if luminance(step) <= _LINE_LUMINANCE)


def _channels(colour: str) -> tuple[int, int, int]:
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return red, green, blue


def luminance(colour: str) -> float:
    """The relative luminance of WCAG 2."""
    weights = (0.2126, 0.7152, 0.0722)
    pairs = zip(weights, _channels(colour), strict=True)
    return sum(weight * _linear(channel / 255) for weight, channel in pairs)


def _linear(channel: float) -> float:
    return channel / 12.92 if channel <= 0.04045 else float(((channel + 0.055) / 1.055) ** 2.4)


def contrast(one: str, other: str) -> float:
    """The contrast ratio of WCAG 2, from 1 to 21; text needs 4.5 for level AA."""
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def _mix(colour: str, other: str, share: float) -> str:
    pairs = zip(_channels(colour), _channels(other), strict=True)
    return "#" + "".join(f"{round(a + (b - a) * share):02X}" for a, b in pairs)


_GREYS = Shade(fill="#9A9A9A", light="rgba(140,140,140,0.25)", dark="#767676", ink="#000000")


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
        return _GREYS if self.hue is None else _shade((*_TENANTS, *_OUTCOMES)[self.hue])

    @property
    def fill(self) -> str:
        shade = self.shade
        return shade.light if self.light else shade.dark if self.dark else shade.fill

    @property
    def ground(self) -> str:
        return "#FFFFFF" if self.light else self.shade.light


GOOD, WRONG, LATE = Paint(HUES), Paint(HUES + 1), Paint(HUES + 2)
DROPPED = Paint(HUES + 3, hatched=True)
UNJUDGED = replace(GOOD, light=True)
FAILED, UNANSWERED = Paint(None, dark=True), Paint(None, light=True)
OUTCOMES: Mapping[str, Paint] = {
    "good": GOOD,
    "unjudged": UNJUDGED,
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


_POLICIES = (
    *("migrator", "ekya", "astraea", "paris-reconfiguring", "paris", "migrator-replanned"),
    *("equal-mig", "migrator-required", "gpulet", "infless", "miso", "equal-mps"),
    *("migrator-paper", "best static split", "migrator-once", "static-6-1", "static-5-2"),
    *("static-4-3", "static-3-4", "static-2-5", "static-1-6", "ekya-by-requests"),
)
"""The packaged policies but these in grey, by how often they are compared."""
_GREY_POLICIES = {
    "oracle": Paint(None, dark=True),
    "oracle-required": Paint(None),
    "unpartitioned": Paint(None, hatched=True),
}


def policy_paints(policies: Sequence[str]) -> tuple[Paint, ...]:
    """The looks of policies in one chart. A policy has the same look in every chart.

    Where two of them would look the same, such as two runs of one policy, the later one has
    another pattern.
    """
    chosen: list[Paint] = []
    for policy in policies:
        if policy in _POLICIES:
            place = _POLICIES.index(policy)
        else:
            others = 4 * HUES - len(_POLICIES)
            place = len(_POLICIES) + zlib.crc32(policy.encode()) % others
        looks = [paint_of(place + HUES * pattern) for pattern in range(4)]
        if policy in _GREY_POLICIES:
            looks.insert(0, _GREY_POLICIES[policy])
        chosen.append(next((look for look in looks if look not in chosen), looks[0]))
    return tuple(chosen)


def tenant_paint(index: int) -> Paint:
    """The look of the `index`-th tenant; hues repeat after `HUES`."""
    return Paint(index % HUES)
