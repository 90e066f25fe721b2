"""What a report page consists of, as plain data.

Reports build a `Page`. `html_page.py` writes it as a page, `png.py` its charts as a picture, and
`terminal.py` draws slices in characters; nothing here draws.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from migrator.report.paint import HUES, Paint, paint_of


@dataclass(frozen=True)
class Axis:
    """What is measured along an axis."""

    title: str
    unit: str = ""
    share: bool = False
    """Values are parts of one and shown in percent."""

    @property
    def label(self) -> str:
        unit = "%" if self.share else self.unit
        return f"{self.title} ({unit})" if unit else self.title

    def text(self, value: float | None) -> str:
        """A value in the format of the axis; a dash if there is none."""
        if value is None or not math.isfinite(value):
            return "-"
        if self.share:
            return f"{value:.1%}"
        digits = f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.4g}"
        return f"{digits} {self.unit}".rstrip()


@dataclass(frozen=True)
class Series:
    """One row of values of a chart; None: nothing there."""

    name: str
    values: tuple[float | None, ...]
    half_widths: tuple[float | None, ...] | None = None
    """Of the 95% confidence intervals, for bars."""
    paint: Paint | None = None
    """None: by its position."""
    dashed: bool = False
    filled: str = ""
    """Of lines: the name of the band between this series and the one before; their lines are not
    drawn."""
    area: bool = False
    """Of lines: the area down to zero is filled instead of drawing a line."""


@dataclass(frozen=True)
class Bars:
    """Bars per category: one per series side by side, or stacked."""

    title: str
    categories: tuple[str, ...]
    series: tuple[Series, ...]
    x: Axis
    """Of the categories."""
    y: Axis
    """Of the values."""
    stacked: bool = False
    horizontal: bool = False
    """For one series whose categories have long names."""
    mark: float | None = None
    """A value to compare with, drawn as a dashed line."""


@dataclass(frozen=True)
class Lines:
    """Lines or stacked areas over a common x."""

    title: str
    at: tuple[float, ...]
    series: tuple[Series, ...]
    x: Axis
    y: Axis
    until: float | None = None
    """Given: values hold from their x to the next one, the last until here."""
    marks: tuple[float, ...] = ()
    """Places on the x axis of dashed lines."""
    y_range: tuple[float, float] | None = None
    linked: bool = False
    """Zooming in time also zooms the other linked charts of the page."""
    stacked: bool = False
    """Areas on top of one another instead of lines; `until` is given."""


@dataclass(frozen=True)
class HeatMap:
    """A value per row and column."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[str, ...]
    values: tuple[tuple[float | None, ...], ...]
    """Row by row."""
    x: Axis
    y: Axis
    z: Axis


class Use(StrEnum):
    """What an instance or share is used for; the order is that of legends."""

    SERVING = "serving"
    COLD = "cold start"
    CREATING = "creating"
    WARMING = "warming"
    RETRAINING = "retraining"
    DRAINING = "draining"
    UNUSED = "unused"
    CREATED = "being created"
    REMOVED = "being removed"


_PAINTS = {
    Use.COLD: {"light": True},
    Use.CREATING: {"light": True},
    Use.WARMING: {"light": True},
    Use.RETRAINING: {"hatched": True},
    Use.DRAINING: {"light": True, "hatched": True},
    Use.UNUSED: {"light": True},
    Use.CREATED: {"hatched": True},
    Use.REMOVED: {"light": True, "hatched": True},
}


@dataclass(frozen=True)
class Slab:
    """An instance or share on consecutive memory slices from one moment to another."""

    tenant: str | None
    """None: it belongs to no tenant."""
    use: Use
    size: str
    start: float
    width: float
    from_s: float
    until_s: float
    note: str = ""
    """Further words, such as the MIG profile."""

    @property
    def name(self) -> str:
        if self.tenant is None:
            return str(self.use)
        return self.tenant if self.use is Use.SERVING else f"{self.tenant}, {self.use}"


@dataclass(frozen=True)
class Slices:
    """The memory slices of a board over time: the one model of such drawings."""

    title: str
    slices: int
    until_s: float
    tenants: tuple[str, ...]
    """In the order of their colours."""
    slabs: tuple[Slab, ...]
    retrained: tuple[tuple[str, float], ...] = ()
    """Tenant and moment at which a retrained model takes over."""
    linked: bool = False
    """As in `Lines`."""

    @property
    def keys(self) -> tuple[tuple[str, Paint], ...]:
        by_name = {slab.name: slab for slab in self.slabs}
        ranks = list(Use)
        ordered = sorted(
            by_name.values(), key=lambda slab: (self.place(slab.tenant), ranks.index(slab.use))
        )
        return tuple((slab.name, self.paint(slab)) for slab in ordered)

    def place(self, tenant: str | None) -> int:
        """The place of a tenant among the colours."""
        return self.tenants.index(tenant) if tenant in self.tenants else len(self.tenants)

    def paint(self, slab: Slab) -> Paint:
        """The look of a slab: the hue says whose it is, lightness and hatching its use."""
        hue = self.place(slab.tenant) % HUES if slab.tenant in self.tenants else None
        return Paint(hue, **_PAINTS.get(slab.use, {}))


Chart = Bars | Lines | HeatMap | Slices


@dataclass(frozen=True)
class Table:
    """A table of formatted cells; columns in `numeric` are aligned to the right."""

    caption: str
    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: frozenset[int] = frozenset()
    highlights: frozenset[tuple[int, int]] = frozenset()
    """Row and column of cells to emphasise."""
    folded: bool = False
    """Shown only when opened."""


@dataclass(frozen=True)
class Note:
    """A remark in a box, such as what the paper reports; neighbours stand side by side."""

    title: str
    paragraphs: tuple[str, ...]


Block = Chart | Table | Note


@dataclass(frozen=True)
class Section:
    """A part of the page; `anchor` is its address within it."""

    title: str
    anchor: str
    paragraphs: tuple[str, ...] = ()
    blocks: tuple[Block, ...] = ()
    shown: int | None = None
    """Blocks that are shown; the rest opens with a click. None: all of them."""
    more: str = "Details"
    """What the rest is."""


@dataclass(frozen=True)
class Page:
    """A whole report. In paragraphs and cells, `code` and web addresses are recognised."""

    title: str
    lead: str
    sections: tuple[Section, ...]


@dataclass(frozen=True)
class Picture:
    """Charts for a PNG, one below the other."""

    title: str
    subtitle: str
    charts: tuple[Chart, ...]


def legend_of(chart: Chart) -> tuple[tuple[str, Paint, bool], ...]:
    """Name, look and whether it is a dashed line, of everything the legend explains."""
    if isinstance(chart, HeatMap):
        return ()
    if isinstance(chart, Slices):
        return tuple((name, paint, False) for name, paint in chart.keys)
    if len(chart.series) == 1:
        return ()
    floors = band_floors(chart.series)
    return tuple(
        (row.filled or row.name, paint, row.dashed)
        for at, (row, paint) in enumerate(zip(chart.series, paints(chart.series), strict=True))
        if at not in floors
    )


def band_floors(series: Sequence[Series]) -> set[int]:
    """The places of series that are only the lower edge of a band."""
    return {at - 1 for at, row in enumerate(series) if row.filled}


def paints(series: Sequence[Series]) -> list[Paint]:
    """The looks of a chart's series."""
    return [row.paint or paint_of(index) for index, row in enumerate(series)]


def present(*blocks: Block | None) -> tuple[Block, ...]:
    """The blocks without those that have nothing to show."""
    return tuple(block for block in blocks if block is not None)


def anchor_of(text: str) -> str:
    """An address made of `text`: lower case, everything but letters and digits a hyphen."""
    plain = "".join(
        character if character.isascii() and character.isalnum() else "-"
        for character in text.lower()
    )
    return "-".join(part for part in plain.split("-") if part) or "part"
