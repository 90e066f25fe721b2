"""What a report page consists of, as plain data; `page_html` lays it out.

Reports build a `Page`; nothing here draws, so a report can be tested by what it says.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Paint:
    """How something coloured looks; hues count from 0, the most distinct first."""

    hue: int | None
    """None: grey."""
    light: bool = False
    hatched: bool = False


def paint_of(index: int) -> Paint:
    """The look of the `index`-th of many things: hues, then hatched ones, then light ones."""
    rounds, hue = divmod(index, 7)
    return Paint(hue, light=rounds % 4 >= 2, hatched=rounds % 2 == 1)


@dataclass(frozen=True)
class Axis:
    """What is measured along an axis."""

    title: str
    unit: str = ""
    share: bool = False
    """Values are parts of one and shown in percent."""


@dataclass(frozen=True)
class Series:
    """One row of values of a chart; None: nothing there."""

    name: str
    values: tuple[float | None, ...]
    half_widths: tuple[float | None, ...] | None = None
    """Of the 95% confidence intervals, for bars and lines."""
    paint: Paint | None = None
    """None: by its position."""
    dashed: bool = False
    filled: str = ""
    """Of lines: what the band down to the series before it is called; their lines are not drawn."""


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
    """Better where there is one series and its categories have long names."""


@dataclass(frozen=True)
class Lines:
    """Lines over a common x."""

    title: str
    at: tuple[float, ...]
    series: tuple[Series, ...]
    x: Axis
    y: Axis
    until: float | None = None
    """Given: values hold from their x to the next one, the last until here."""


@dataclass(frozen=True)
class Areas:
    """Stacked areas; values hold from their x to the next one, the last until `until`."""

    title: str
    at: tuple[float, ...]
    until: float
    series: tuple[Series, ...]
    x: Axis
    y: Axis


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


@dataclass(frozen=True)
class Slab:
    """Something on consecutive slices from one moment to another."""

    key: int
    """Index into the chart's keys."""
    label: str
    start: float
    width: float
    from_s: float
    until_s: float


@dataclass(frozen=True)
class Slices:
    """Memory slices of a board over time."""

    title: str
    slices: int
    until_s: float
    keys: tuple[tuple[str, Paint], ...]
    """What slabs are: name and look."""
    slabs: tuple[Slab, ...]
    starts: tuple[tuple[float, float], ...] = ()
    """Moment and slice of marks where an instance is new."""


Chart = Bars | Lines | Areas | HeatMap | Slices


@dataclass(frozen=True)
class Table:
    """A table of ready words; columns named in `numeric` are aligned to the right."""

    caption: str
    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: frozenset[int] = frozenset()
    highlights: frozenset[tuple[int, int]] = frozenset()
    """Row and column of cells to stand out."""
    folded: bool = False
    """Shown only when asked for."""


@dataclass(frozen=True)
class Note:
    """A remark set apart, e.g. what the paper reports; neighbours stand side by side."""

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


@dataclass(frozen=True)
class Page:
    """A whole report. In paragraphs and cells `code` is set as such, web addresses are links."""

    title: str
    lead: str
    sections: tuple[Section, ...]


def anchor_of(text: str) -> str:
    """An address made of `text`: lower case, everything but letters and digits a hyphen."""
    plain = "".join(each if each.isascii() and each.isalnum() else "-" for each in text.lower())
    return "-".join(part for part in plain.split("-") if part) or "part"
