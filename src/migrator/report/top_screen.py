"""`migrator top` on a terminal of any width from 80 columns on, with colours or without."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from migrator.core.catalogue import Board
from migrator.records.standing import Life
from migrator.report.live_text import printable
from migrator.report.plan_palette import Shade, shades
from migrator.report.top_slices import drawn_shares, drawn_slices
from migrator.report.top_view import TopLine, TopTenant, TopView

_BAR, _TRAINING_BAR = 24, 6
_NONE = "-"
_HEADERS = (
    *("tenant", "req/s", "in time", "good/s", "p50 ms", "p99 ms", "queue", "acc.", "v"),
    "retraining",
)


class Screen:
    """A view as it fits on the terminal that draws it."""

    def __init__(self, view: TopView, board: Board | None, *, whole: bool = False) -> None:
        """`whole`: as many lines as there are, not as the terminal has."""
        self._view, self._board, self._whole = view, board, whole

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Header, slices, tenants; events in what is left of the height."""
        view, width, plain = self._view, options.max_width, options.ascii_only
        colours = _colours(view)
        parts: list[RenderableType] = [*_head(view, width, plain), Text()]
        if self._board is not None and view.life is not Life.ENDED:
            parts += [*_slices(view, self._board, colours, width), Text()]
        parts.append(_tenants(view.tenants, colours, plain))
        used = sum(len(console.render_lines(each, options, pad=False)) for each in parts)
        room = len(view.lines) if self._whole else max(0, console.size.height - used - 2)
        lines = view.lines[-room:] if room else ()
        if lines:
            parts += [Text(), *(_line(each, width) for each in lines)]
        yield Group(*parts)


def _colours(view: TopView) -> Mapping[str, Shade]:
    names = [each.name for each in view.tenants]
    return dict(zip(names, shades(len(names)), strict=True))


def _head(view: TopView, width: int, plain: bool) -> Iterable[Text]:
    first = Text(f"{view.scenario}", style="bold", no_wrap=True)
    first.append(f"  {view.board}  {view.driver}  {view.policy}", style="not bold")
    if view.run is not None:
        first.append(f"  run {view.run}", style="not bold")
    if view.paused:
        first.append("  ")
        first.append(" PAUSED ", style="bold black on yellow")
    first.truncate(width, overflow="ellipsis")
    yield first
    yield _progress(view, plain)
    words = _life_words(view)
    if words:
        yield Text(words, style="yellow")


def _progress(view: TopView, plain: bool) -> Text:
    if view.window is None:
        return Text("no window yet")
    text = Text(f"window {view.window}  ")
    if view.slot is not None:
        text.append(bar((view.slot + 1) / view.slots, _BAR, plain), style="cyan")
        text.append(f"  slot {view.slot + 1} of {view.slots}")
    return text


def _life_words(view: TopView) -> str:
    """What is to be known of the daemon unless all is well."""
    match view.life:
        case Life.RUNNING:
            return ""
        case Life.SILENT:
            return f"from records alone: {view.why}" if view.run is not None else view.why
        case Life.ENDED:
            return "the daemon has ended; waiting for it to start again"
        case Life.KILLED:
            return "the daemon was killed or crashed; waiting for it to start again"


def _slices(
    view: TopView, board: Board, colours: Mapping[str, Shade], width: int
) -> Iterable[Text]:
    yield from drawn_slices(board, view.planned, view.held, colours, width)
    yield from drawn_shares("planned", board, view.planned or (), colours)
    yield from drawn_shares("held", board, view.held, colours)


def _tenants(tenants: Sequence[TopTenant], colours: Mapping[str, Shade], plain: bool) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for at, name in enumerate(_HEADERS):
        ends = at in (0, len(_HEADERS) - 1)
        table.add_column(
            name,
            justify="left" if ends else "right",
            no_wrap=True,
            overflow="ellipsis",
            ratio=1 if at == 0 else None,
            min_width=None if at == 0 else len(name),
        )
    for each in tenants:
        table.add_row(*_cells(each, colours[each.name], plain))
    return table


def _cells(each: TopTenant, shade: Shade, plain: bool) -> tuple[Text | str, ...]:
    paced = each.paced
    return (
        Text(each.name, style=f"bold {shade.fill}"),
        _number(paced.rate_rps, 1),
        _NONE if paced.in_time is None else f"{paced.in_time:.1%}",
        _number(each.goodput_rps, 1),
        _number(paced.p50_ms, 0 if (paced.p50_ms or 0) >= 10 else 1),
        _number(paced.p99_ms, 0 if (paced.p99_ms or 0) >= 10 else 1),
        _number(each.waiting, 0),
        _NONE if each.accuracy is None else f"{each.accuracy:.0%}",
        _number(each.version, 0),
        _work(each, plain),
    )


def _work(each: TopTenant, plain: bool) -> str:
    """How far its retraining is; a drained tenant says so."""
    if each.retraining == "running" and each.progress is not None:
        return f"{bar(each.progress, _TRAINING_BAR, plain)} {each.progress:.0%}"
    return "drained" if each.drained else each.retraining or _NONE


def _line(line: TopLine, width: int) -> Text:
    at = datetime.fromtimestamp(line.at_s)
    text = Text(f"{at:%H:%M:%S}  ", style="dim", no_wrap=True)
    strong = "bold" if line.kind == "action" else ""
    text.append(f"{line.kind}: ", style=f"not dim {strong}")
    text.append(printable(line.words), style="not dim")
    text.truncate(width, overflow="ellipsis")
    return text


def bar(part: float, width: int, plain: bool) -> str:
    """A part of one, as filled characters."""
    filled = min(width, max(0, round(part * width)))
    full, empty = ("#", ".") if plain else ("█", "░")
    return full * filled + empty * (width - filled)


def _number(value: float | None, digits: int) -> str:
    return _NONE if value is None else f"{value:,.{digits}f}"
