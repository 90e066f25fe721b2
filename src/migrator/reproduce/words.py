"""Numbers as words, alike in every experiment's section."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from migrator.core.comparison import Estimate

PAPER, DIFFERS = "What the paper reports", "Why ours differs"
"""Titles of the notes beside every experiment's figures."""


def percent(part: float) -> str:
    """A part of one."""
    return f"{100 * part:.1f}%"


def signed(part: float) -> str:
    """A change, as a part of one."""
    return f"{points(part)}%"


def points(part: float) -> str:
    """A difference of two parts of one, in percentage points."""
    rounded = round(100 * part, 1) + 0.0  # no minus before a zero
    return f"{rounded:+.1f}".replace("-", "\u2212")


def cell(estimate: Estimate) -> str:
    """A share in percent, with its confidence where there is one."""
    width = "" if estimate.half_width is None else f"\u00a0±\u00a0{100 * estimate.half_width:.1f}"
    return f"{100 * estimate.mean:.1f}{width}"


def listed(names: Iterable[str], last: str = "and") -> str:
    """Names in a sentence; "none" where there are none."""
    *most, final = list(names) or ["none"]
    return f"{', '.join(most)} {last} {final}" if most else final


def mean(values: Sequence[float]) -> float:
    """The mean of at least one value."""
    return sum(values) / len(values)
