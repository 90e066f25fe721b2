"""The colours of tenants, in tones that stay legible on white and on each other."""

from __future__ import annotations

from dataclasses import dataclass

_OKABE_ITO = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442")
"""Told apart by colour-blind people; the most distinct first, so few tenants get the best."""


@dataclass(frozen=True)
class Shade:
    """The tones of one tenant's hue."""

    fill: str
    light: str
    """Ground under hatching, and the colour of an instance that is still cold."""
    dark: str
    """Lines and words on white."""
    ink: str
    """Words on `fill`."""


def shades(count: int) -> tuple[Shade, ...]:
    """One hue per tenant; they repeat after seven, the most tenants a board can hold."""
    return tuple(_shade(_OKABE_ITO[index % len(_OKABE_ITO)]) for index in range(count))


def _shade(fill: str) -> Shade:
    luminance = _luminance(fill)
    return Shade(
        fill=fill,
        light=_mix(fill, "#FFFFFF", 0.68),
        dark=_mix(fill, "#000000", 0.25 if luminance < 0.3 else 0.45),
        ink="#FFFFFF" if luminance < 0.23 else "#1A1A1A",
    )


def _channels(colour: str) -> tuple[int, int, int]:
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return red, green, blue


def _luminance(colour: str) -> float:
    """Relative luminance as in WCAG, with gamma 2.2 for its piecewise curve."""
    weights = (0.2126, 0.7152, 0.0722)
    pairs = zip(weights, _channels(colour), strict=True)
    return float(sum(weight * (channel / 255) ** 2.2 for weight, channel in pairs))


def _mix(colour: str, other: str, share: float) -> str:
    """`colour` with that share of `other` in it."""
    pairs = zip(_channels(colour), _channels(other), strict=True)
    return "#" + "".join(f"{round(a + (b - a) * share):02X}" for a, b in pairs)
