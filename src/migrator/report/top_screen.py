"""`migrator top` on a terminal of at least 80 columns, with colours or without."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from migrator.core.catalogue import Board
from migrator.records.current_run import CurrentRun, CurrentTenant, CurrentUnit, DaemonState
from migrator.records.rows import EventRecord
from migrator.report.page import Slab, Use
from migrator.report.paint import Shade, shades
from migrator.report.slices import current_slabs
from migrator.report.terminal import (
    NONE,
    UNKNOWN,
    accuracy_words,
    number,
    printable,
    slice_numbers,
    slice_segments,
)

_BAR, _TRAINING_BAR, _MARGIN, _WIDEST = 24, 6, 8, 14
_HEADERS = (
    *("tenant", "req/s", "in time", "good/s", "p50 ms", "p99 ms", "queue", "acc.", "v"),
    "retraining",
)
_WIDTHS = {"acc.": len("80% answers"), "good/s": len(UNKNOWN)}
"""Of columns with words, which must not be cut."""
_Colours = Mapping[str, Shade]


class Screen:
    """The state of a run, fitted to the terminal that shows it."""

    def __init__(self, now: CurrentRun, board: Board | None, *, whole: bool = False) -> None:
        """`whole`: all lines, however many the terminal has."""
        self._now, self._board, self._whole = now, board, whole

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Header, slices, tenants; events in what is left of the height."""
        now, width = self._now, options.max_width
        names = [tenant.name for tenant in now.tenants]
        colours = dict(zip(names, shades(len(names)), strict=True))
        parts: list[RenderableType] = [*_head(now, width), Text()]
        if self._board is not None and now.probe.state is not DaemonState.ENDED:
            parts += [*_slices(now, self._board, colours, width), *_usage(now, colours), Text()]
        parts.append(_tenants(now.tenants, colours))
        used = sum(len(console.render_lines(part, options, pad=False)) for part in parts)
        events = now.distinct_events
        room = len(events) if self._whole else max(0, console.size.height - used - 2)
        if room and events:
            parts += [Text(), *(_event(event, width) for event in events[-room:])]
        yield Group(*parts)


def _head(now: CurrentRun, width: int) -> Iterable[Text]:
    first = Text(f"{now.scenario}", style="bold", no_wrap=True)
    first.append(f"  {now.board}  {now.driver}  {now.policy}", style="not bold")
    if now.run is not None:
        first.append(f"  run {now.run.run}", style="not bold")
    if now.paused:
        first.append("  ")
        first.append(" PAUSED ", style="bold black on yellow")
    first.truncate(width, overflow="ellipsis")
    yield first
    yield _progress(now)
    text = _daemon_words(now)
    if text:
        yield Text(text, style="yellow")


def _progress(now: CurrentRun) -> Text:
    if now.window is None:
        return Text("no window yet")
    text = Text(f"window {now.window}  ")
    if now.slot is not None:
        text.append(_bar((now.slot + 1) / now.slots, _BAR), style="cyan")
        text.append(f"  slot {now.slot + 1} of {now.slots}")
    return text


def _daemon_words(now: CurrentRun) -> str:
    """Empty while the daemon replies."""
    match now.probe.state:
        case DaemonState.RUNNING:
            return ""
        case DaemonState.SILENT:
            why = now.probe.why
            return f"from records alone: {why}" if now.run is not None else why
        case DaemonState.ENDED:
            return "the daemon has ended; waiting for it to start again"
        case DaemonState.KILLED:
            return "the daemon was killed or crashed; waiting for it to start again"


# Slices and shares


def _slices(now: CurrentRun, board: Board, colours: _Colours, width: int) -> Iterable[Text]:
    rows = {"held": now.held}
    if now.planned is not None:
        rows = {"planned": now.planned} | rows
    units = [unit for row in rows.values() for unit in row]
    if not units or any(unit.start is not None for unit in units):
        columns = max(2, min(_WIDEST, (width - _MARGIN) // board.memory_slices))
        heading = slice_numbers(board.memory_slices, columns, _MARGIN)
        yield Text(heading, style="dim", no_wrap=True)
        for name, row in rows.items():
            yield _row(name, current_slabs(row, board), board.memory_slices, columns, colours)
    for name, row in rows.items():
        yield from _shares(name, [unit for unit in row if unit.start is None], board, colours)


def _row(name: str, slabs: Sequence[Slab], slices: int, columns: int, colours: _Colours) -> Text:
    row = Text(f"{name:{_MARGIN}}", no_wrap=True)
    for text, slab in slice_segments(slabs, slices, columns):
        row.append(text, style=_style(slab, colours))
    return row


def _style(slab: Slab | None, colours: _Colours) -> str:
    shade = colours.get(slab.tenant or "") if slab is not None else None
    if slab is None or shade is None:
        return "dim"
    if slab.use is Use.SERVING:
        return f"{shade.ink} on {shade.fill}"
    return f"#1A1A1A on {shade.light}"


def _shares(
    name: str, shares: Sequence[CurrentUnit], board: Board, colours: _Colours
) -> Iterable[Text]:
    """Shares have no place: a list of tenants, sizes and states."""
    text = Text(f"{name:{_MARGIN}}")
    for at, share in enumerate(shares):
        shade = colours.get(share.tenant or "")
        text.append(", " if at else "")
        text.append(_share_words(share, board), style="" if shade is None else shade.fill)
    if shares:
        yield text


def _share_words(share: CurrentUnit, board: Board) -> str:
    percent = 100 * share.gpcs / board.compute_slices
    state = "retrains" if share.kind == "retraining" else share.state
    shown = "" if state == "planned" else f" {state}"
    return f"{share.tenant or 'unused'} {percent:.0f}%{shown}"


def _usage(now: CurrentRun, colours: _Colours) -> Iterable[Text]:
    """Memory, and how busy it is, of every instance or of the whole GPU, where it is known."""
    owners: dict[int | None, str | None] = {
        holding.start: holding.tenant for holding in now.held if holding.start is not None
    }
    text = Text(f"{'used':{_MARGIN}}")
    for at, usage in enumerate(now.usage):
        tenant = owners.get(usage.start)
        name = "GPU" if usage.start is None else f"{tenant or 'unused'} @{usage.start}"
        busy = f" {'-' if usage.busy is None else format(usage.busy, '.0%')} busy"
        memory = f"{usage.used_mib / 1024:.1f} of {usage.total_mib / 1024:.1f} GiB"
        shade = colours.get(tenant or "")
        text.append(", " if at else "")
        text.append(f"{name}{busy} {memory}", style="" if shade is None else shade.fill)
    if now.usage:
        yield text


# Tenants and events


def _tenants(tenants: Sequence[CurrentTenant], colours: _Colours) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    for at, name in enumerate(_HEADERS):
        table.add_column(
            name,
            justify="left" if at in (0, len(_HEADERS) - 1) else "right",
            no_wrap=True,
            overflow="ellipsis",
            ratio=1 if at == 0 else None,
            min_width=max(len(name), _WIDTHS.get(name, 0)) if at else None,
        )
    for tenant in tenants:
        table.add_row(*_cells(tenant, colours[tenant.name]))
    return table


def _cells(tenant: CurrentTenant, shade: Shade) -> tuple[Text | str, ...]:
    pace = tenant.pace
    return (
        Text(tenant.name, style=f"bold {shade.fill}"),
        number(pace.rate_rps, 1),
        NONE if pace.in_time is None else f"{pace.in_time:.1%}",
        _goodput(tenant),
        number(pace.p50_ms, 0 if (pace.p50_ms or 0) >= 10 else 1),
        number(pace.p99_ms, 0 if (pace.p99_ms or 0) >= 10 else 1),
        number(tenant.waiting),
        accuracy_words(tenant.accuracy, 0),
        number(tenant.version),
        _retraining(tenant),
    )


def _goodput(tenant: CurrentTenant) -> str:
    """Per second; unknown while labels do not tell it."""
    if tenant.pace.in_time_rps is not None and tenant.goodput_rps is None:
        return UNKNOWN
    return number(tenant.goodput_rps, 1)


def _retraining(tenant: CurrentTenant) -> str:
    """Its progress; a drained tenant is marked here."""
    if tenant.retraining == "running" and tenant.progress is not None:
        return f"{_bar(tenant.progress, _TRAINING_BAR)} {tenant.progress:.0%}"
    if tenant.drained:
        return "drained"
    if tenant.reason:
        return tenant.reason.replace("_", " ")
    return NONE if tenant.retraining in (None, "none") else str(tenant.retraining)


def _event(event: EventRecord, width: int) -> Text:
    at = datetime.fromtimestamp(event.at_s)
    text = Text(f"{at:%H:%M:%S}  ", style="dim", no_wrap=True)
    strong = "bold" if event.kind == "action" else ""
    text.append(f"{event.kind}: ", style=f"not dim {strong}")
    text.append(printable(event.words), style="not dim")
    text.truncate(width, overflow="ellipsis")
    return text


def _bar(part: float, width: int) -> str:
    filled = min(width, max(0, round(part * width)))
    return "█" * filled + "░" * (width - filled)
