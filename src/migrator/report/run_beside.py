"""Several runs of a scenario side by side: where between windows and tenants they differ."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from migrator.core.outcome import RunOutcome, Tally
from migrator.report.page import Axis, Bars, Block, Lines, Series, Table, paint_of

_Key = TypeVar("_Key", int, str)
_SHARE = Axis("goodput over received", share=True)
_NONE = "-"
_MOST_BARS = 60
"""More windows times runs than that are lines."""
_MOST_ROWS = 60
"""A longer table is folded away."""


def beside_blocks(runs: Sequence[RunOutcome], names: Sequence[str]) -> tuple[Block, ...]:
    """Goodput shares by window, by tenant and by both, a series or column per run."""
    windows = list(dict.fromkeys(each.window for run in runs for each in run.windows))
    tenants = list(dict.fromkeys(name for run in runs for name in run.tenants))
    blocks: list[Block] = []
    if len(windows) > 1:
        blocks.append(_by_window(runs, names, windows))
    if len(tenants) > 1:
        blocks.append(_by_tenant(runs, names, tenants))
    if len(windows) * len(tenants) > 1:
        blocks.append(_table(runs, names))
    return tuple(blocks)


def _by_window(
    runs: Sequence[RunOutcome], names: Sequence[str], windows: list[int]
) -> Bars | Lines:
    series = _series(runs, names, windows, lambda run: {e.window: e.tally for e in run.windows})
    title, x = "Goodput share by window", Axis("window")
    if len(windows) * len(runs) > _MOST_BARS:
        return Lines(title, tuple(map(float, windows)), series, x, _SHARE)
    return Bars(title, tuple(map(str, windows)), series, x, _SHARE)


def _by_tenant(runs: Sequence[RunOutcome], names: Sequence[str], tenants: list[str]) -> Bars:
    series = _series(runs, names, tenants, lambda run: run.tenants)
    return Bars("Goodput share by tenant", tuple(tenants), series, Axis("tenant"), _SHARE)


def _series(
    runs: Sequence[RunOutcome],
    names: Sequence[str],
    keys: Sequence[_Key],
    tallies: Callable[[RunOutcome], dict[_Key, Tally]],
) -> tuple[Series, ...]:
    """A series per run; nothing where it received nothing."""
    made = []
    for at, (run, name) in enumerate(zip(runs, names, strict=True)):
        own = tallies(run)
        shares = tuple(_share(own.get(key)) for key in keys)
        made.append(Series(name, shares, paint=paint_of(at)))
    return tuple(made)


def _share(tally: Tally | None) -> float | None:
    return tally.goodput_share if tally is not None and tally.received else None


def _table(runs: Sequence[RunOutcome], names: Sequence[str]) -> Table:
    shares = [dict(_shares(run)) for run in runs]
    places = list(dict.fromkeys(place for own in shares for place in own))
    rows, best = [], set()
    for row, place in enumerate(places):
        cells = [_percent(own.get(place)) for own in shares]
        # as shown: what looks equal is marked alike
        highest = max(cells, key=lambda cell: -1.0 if cell == _NONE else float(cell))
        if set(cells) - {_NONE, highest}:
            best |= {(row, 2 + at) for at, cell in enumerate(cells) if cell == highest}
        rows.append((*place, *cells))
    return Table(
        caption="Goodput share (%) by window and tenant, the highest set apart",
        headers=("window", "tenant", *names),
        rows=tuple(rows),
        numeric=frozenset(range(2, 2 + len(names))),
        highlights=frozenset(best),
        folded=len(rows) > _MOST_ROWS,
    )


def _percent(share: float | None) -> str:
    return _NONE if share is None else f"{100 * share:.2f}"


def _shares(run: RunOutcome) -> Iterator[tuple[tuple[str, str], float | None]]:
    for window in run.windows:
        for each in window.tenants:
            yield (str(window.window), each.tenant), _share(each.tally)
