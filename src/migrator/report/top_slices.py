"""The memory slices as coloured blocks on a line: what is planned above what is held.

Without colours a block still says whose it is and, by what fills it, what it does: `/` retrains,
`+` is being made or warmed, `-` is being emptied or unused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rich.text import Text

from migrator.core.catalogue import Board
from migrator.report.live_slices import width_of
from migrator.report.plan_blocks import short
from migrator.report.plan_palette import Shade
from migrator.report.top_view import TopUnit

_MARGIN = 8
_WIDEST = 14
_COMING = ("creating", "warming")
_GOING = ("idle", "draining", "stopping", "destroying")


def drawn_slices(
    board: Board,
    planned: Sequence[TopUnit] | None,
    held: Sequence[TopUnit],
    colours: Mapping[str, Shade],
    width: int,
) -> Iterable[Text]:
    """The numbers of the slices, the plan for this slot, what is there."""
    columns = max(2, min(_WIDEST, (width - _MARGIN) // board.memory_slices))
    known = (*(planned or ()), *held)
    if known and all(each.start is None for each in known):
        return  # shares alone: they have no slices
    numbers = "".join(f"{each:^{columns}}" for each in range(board.memory_slices))
    yield Text(f"{'slice':{_MARGIN}}{numbers.rstrip()}", style="dim", no_wrap=True)
    if planned is not None:
        yield _row("planned", planned, board, columns, colours)
    yield _row("held", held, board, columns, colours)


def _row(
    name: str,
    units: Iterable[TopUnit],
    board: Board,
    columns: int,
    colours: Mapping[str, Shade],
) -> Text:
    row, at = Text(f"{name:{_MARGIN}}", no_wrap=True), 0
    for each in units:
        if each.start is None or each.start < at:
            continue
        room = width_of(board, each.gpcs) * columns
        row.append("." * ((each.start - at) * columns), style="dim")
        row.append(_label(each, room), style=_style(each, colours))
        at = each.start + width_of(board, each.gpcs)
    row.append("." * ((board.memory_slices - at) * columns), style="dim")
    return row


def drawn_shares(
    name: str, board: Board, units: Iterable[TopUnit], colours: Mapping[str, Shade]
) -> Iterable[Text]:
    """Shares have no place: a list of whose they are, how large, and what they do; if any."""
    shares = [each for each in units if each.start is None]
    text = Text(f"{name:{_MARGIN}}")
    for number, each in enumerate(shares):
        shade = colours.get(each.tenant or "")
        text.append(", " if number else "")
        text.append(_share_words(each, board), style="" if shade is None else shade.fill)
    if shares:
        yield text


def _share_words(share: TopUnit, board: Board) -> str:
    percent = 100 * share.gpcs / board.compute_slices
    doing = "retrains" if share.kind == "retraining" else share.state
    said = "" if doing == "planned" else f" {doing}"
    return f"{share.tenant or 'nobody'} {percent:.0f}%{said}"


def _label(unit: TopUnit, room: int) -> str:
    size = f" {unit.gpcs:g}g"
    words = short(unit.tenant or unit.state, max(1, room - 2 - len(size))) + size
    return f"[{words[: room - 2]:{_fill(unit)}^{room - 2}}]"


def _fill(unit: TopUnit) -> str:
    if unit.state in _COMING:
        return "+"
    if unit.state in _GOING:
        return "-"
    return "/" if unit.kind == "retraining" else " "


def _style(unit: TopUnit, colours: Mapping[str, Shade]) -> str:
    shade = colours.get(unit.tenant or "")
    if shade is None:
        return "dim"
    if unit.state in _COMING or unit.state in _GOING or unit.kind == "retraining":
        return f"#1A1A1A on {shade.light}"
    return f"{shade.ink} on {shade.fill}"
