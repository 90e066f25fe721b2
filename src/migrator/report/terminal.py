"""Plain text for terminals: tables, times, and memory slices drawn in characters."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime

from migrator.core.evidence import Accuracy
from migrator.report.page import Slab, Slices, Use

COLUMNS = 100
NONE, UNKNOWN = "-", "unknown"
_TIMELINE_COLUMNS = 92
_EMPTY, _COMING, _UNUSED = "·", "+", "-"
TIMELINE_KEY = (
    "capital: serves, small: retrains, + being created or warmed, - unused or draining, "
    "· no instance"
)
_FILLS = {
    Use.COLD: "+",
    Use.CREATING: "+",
    Use.WARMING: "+",
    Use.CREATED: "+",
    Use.RETRAINING: "/",
    Use.DRAINING: "-",
    Use.REMOVED: "-",
    Use.UNUSED: "-",
}
"""Around the name of a unit that does not serve."""


# Numbers and words

_MOST_CHANGE = 9.995
"""Above this change a multiple is printed instead of a percentage."""


def count(value: float | None, limit: float = 1e6) -> str:
    """A count to the unit below `limit`, in millions above: at most seven characters by default."""
    if value is None:
        return NONE
    if abs(value) < limit - 0.5:
        return f"{value:,.0f}"
    return f"{value / 1e6:.2f}M" if abs(value) < 999.995e6 else f"{value:.1e}"


def percent(part: float | None) -> str:
    """A part of one in percent, or a dash."""
    return NONE if part is None else f"{part:.1%}"


def known(value: float | None) -> str:
    """A count, or that it is unknown."""
    return UNKNOWN if value is None else count(value)


def accuracy_words(accuracy: Accuracy | None) -> str:
    """An accuracy in percent and what it rests on, or a dash."""
    return NONE if accuracy is None else f"{accuracy.value:.1%} {accuracy.evidence}"


def number(value: float | None, digits: int = 0) -> str:
    """A number with thousands separated, or a dash."""
    return NONE if value is None else f"{value:,.{digits}f}"


def relation(promised: float, measured: float, to: str) -> str:
    """How a promised number relates to a measured one; a percentage only while one says much."""
    change = promised / measured - 1
    if abs(change) <= _MOST_CHANGE:
        return f"{change:+.1%} to {to}"
    return f"{promised / measured:,.0f} times {to}"


def plural(count: int, noun: str) -> str:
    """A count and its noun: 1 window, 2 windows."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def capitalised(sentence: str) -> str:
    """The sentence with a capital first letter."""
    return f"{sentence[:1].upper()}{sentence[1:]}"


def short(name: str, longest: int = 18) -> str:
    """A name cut so that it cannot break a layout."""
    return name if len(name) <= longest else name[: longest - 1] + "…"


def moment(at_s: float, now_s: float | None = None) -> str:
    """A local time, with its date unless that is the date of `now_s`."""
    at = datetime.fromtimestamp(at_s)
    today = now_s is not None and datetime.fromtimestamp(now_s).date() == at.date()
    return f"{at:%H:%M:%S}" if today else f"{at:%Y-%m-%d %H:%M:%S}"


def printable(text: str) -> str:
    """On one line, without control characters: words may quote the error of a user's model."""
    return "".join(
        character if character.isprintable() else "?" for character in " ".join(text.split())
    )


def wrapped(sentence: str, indent: str = "  ") -> list[str]:
    """A sentence in lines of at most `COLUMNS`."""
    return textwrap.wrap(sentence, COLUMNS, subsequent_indent=indent, break_on_hyphens=False)


def dated_lines(at_s: float, now_s: float | None, text: str) -> list[str]:
    """Words with their time in front, long ones wrapped."""
    return textwrap.wrap(
        f"{moment(at_s, now_s)}  {printable(text)}", COLUMNS, subsequent_indent=" " * 15
    )


def table_lines(
    headers: Sequence[str],
    groups: Sequence[Sequence[tuple[str, ...]]],
    *,
    text_columns: int,
    shrinks: int,
) -> list[str]:
    """The lines of a table with a rule between groups; the first `words` columns are text.

    Column `shrinks` is cut so that the table is at most `COLUMNS` wide.
    """
    cells = [line for group in groups for line in group]
    widths = [max(map(len, column)) for column in zip(headers, *cells, strict=True)]
    spare = COLUMNS - sum(widths) - (len(widths) - 1)
    # the column keeps at least the width of its header
    widths[shrinks] = max(len(headers[shrinks]), widths[shrinks] + min(0, spare))
    room = widths[shrinks]

    def line(row: Sequence[str]) -> str:
        shown = [short(cell, room) if at == shrinks else cell for at, cell in enumerate(row)]
        sides: list[Callable[[str, int], str]] = [str.ljust] * text_columns
        sides += [str.rjust] * (len(row) - text_columns)
        return " ".join(
            side(cell, width) for side, cell, width in zip(sides, shown, widths, strict=True)
        ).rstrip()

    rule = "-" * (sum(widths) + len(widths) - 1)
    lines = [line(headers)]
    for group in groups:
        lines += [rule, *(line(row) for row in group)]
    return lines


def aligned(lines: Sequence[Sequence[str]], text_columns: int) -> str:
    """Lines in columns as wide as their widest cell; the first `words` columns are text."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if at < text_columns else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def grouped(first: str, lines: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """The lines with a column before them that has its word in the first line only."""
    return [(first if at == 0 else "", *line) for at, line in enumerate(lines)]


# Slices over time


def tenant_letters(tenants: Iterable[str]) -> dict[str, str]:
    """A capital letter per tenant."""
    return {name: chr(ord("A") + at % 26) for at, name in enumerate(tenants)}


def timeline_lines(chart: Slices, slot_s: float, columns: int = _TIMELINE_COLUMNS) -> list[str]:
    """A line per memory slice, a character per slot; of many slots only some are shown."""
    letters = tenant_letters(chart.tenants)
    slots = max(1, round(chart.until_s / slot_s))
    moments = [(slot + 0.5) * slot_s for slot in range(0, slots, max(1, -(-slots // columns)))]
    cells = [_cells(chart, at_s, letters) for at_s in moments]
    return [
        f"slice {at} |{''.join(cell.get(at, _EMPTY) for cell in cells)}|"
        for at in range(chart.slices - 1, -1, -1)
    ]


def _cells(chart: Slices, at_s: float, letters: dict[str, str]) -> dict[int, str]:
    cells: dict[int, str] = {}
    for slab in chart.slabs:
        if slab.from_s <= at_s < slab.until_s and slab.start == int(slab.start):
            letter = letters.get(slab.tenant or "", "?")
            signs = {Use.SERVING: letter, Use.RETRAINING: letter.lower()}
            fill = _COMING if _FILLS.get(slab.use) == "+" else _UNUSED
            places = range(int(slab.start), int(slab.start + slab.width))
            cells |= dict.fromkeys(places, signs.get(slab.use, fill))
    return cells


# Slices at one moment


def _box(slab: Slab, room: int) -> str:
    size = f" {slab.size}" if slab.size else ""
    owner = slab.tenant or slab.note
    label = (short(owner, max(1, room - 2 - len(size))) + size).strip()
    return f"[{label[: room - 2]:{_FILLS.get(slab.use, ' ')}^{room - 2}}]"


def slices_text(slabs: Sequence[Slab], slices: int, widest: int = 11) -> str:
    """The numbers of the slices and what is on them, as wide as the names need: [++tenant 3g++].

    What fills a box tells its use: `/` retrains, `+` is being created or warmed, `-` is draining or
    unused.
    """
    names = {slab: slab.tenant or slab.note for slab in slabs}
    needed = [
        -(-(len(f"{name} {slab.size}".strip()) + 2) // int(slab.width))
        for slab, name in names.items()
    ]
    columns = min(widest, max([6, *needed]))
    numbers = "".join(f"{at:^{columns}}" for at in range(slices))
    at, row = 0, ""
    for slab in sorted(slabs, key=lambda slab: slab.start):
        start, end = int(slab.start), int(slab.start + slab.width)
        if start >= at:
            row += "." * ((start - at) * columns) + _box(slab, (end - start) * columns)
            at = end
    row += "." * ((slices - at) * columns)
    return f"slice {numbers.rstrip()}\n      {row}"
