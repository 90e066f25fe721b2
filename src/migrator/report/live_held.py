"""A window's memory slices as charts: what was planned, and what was really held."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from migrator.core.catalogue import Board
from migrator.core.instance import Instance
from migrator.core.outcome import WindowOutcome
from migrator.records.rows import UnitRecord
from migrator.records.views import LiveRun, LiveWindow
from migrator.report.page import Chart, Paint, Slab, Slices
from migrator.report.run_allocation import allocation_charts
from migrator.report.share_lanes import size_of, slices_of, starts_of

_UNUSED = ("unused", Paint(None, light=True))
_NOBODY = {
    "creating": ("being created", Paint(None, hatched=True)),
    "destroying": ("being removed", Paint(None, light=True, hatched=True)),
}
_SHORTEST = 0.003
"""Part of a window below which a stretch would not be seen, and is drawn a little longer."""


def planned_chart(
    run: LiveRun, window: LiveWindow, board: Board, overhead_s: Mapping[str, float]
) -> Chart | None:
    """The plan on the slices; None where the window has none."""
    if not window.planned:
        return None
    outcome = WindowOutcome(window.row.window, (), window.planned, 0.0, None, None)
    before = _before(run, window)
    tenants = list(run.tenants)
    (chart,) = allocation_charts(outcome, before, board, run.slot_s, tenants, overhead_s)
    assert isinstance(chart, Slices)
    return replace(chart, title=f"Window {window.row.window}: planned at its beginning")


def _before(run: LiveRun, window: LiveWindow) -> tuple[Instance, ...] | None:
    """What the plan before held last; None where there is none."""
    earlier = [each for each in run.windows if each.row.window < window.row.window]
    return earlier[-1].planned[-1] if earlier and earlier[-1].planned else None


def held_chart(run: LiveRun, window: LiveWindow, board: Board) -> Slices:
    """Every instance's states as they were recorded."""
    began_s, until_s = window.row.began_s, window.until_s
    least_s = _SHORTEST * (until_s - began_s)
    keys: list[tuple[str, Paint]] = []
    slabs = []
    starts = starts_of(run.records.units, board)
    for each in sorted(run.records.units, key=lambda unit: (unit.from_s, starts[unit.unit])):
        to_s = min(each.to_s if each.to_s is not None else until_s, until_s)
        from_s = max(each.from_s, began_s)
        if to_s <= from_s or from_s >= until_s:
            continue
        key = state_key(each, run.tenants)
        if key not in keys:
            keys.append(key)
        slab = _slab(each, keys.index(key), board, from_s - began_s, to_s - began_s, least_s)
        slabs.append(replace(slab, start=starts[each.unit]))
    order = sorted(range(len(keys)), key=lambda at: _rank(keys[at], run.tenants))
    return Slices(
        title=f"Window {window.row.window}: held",
        slices=board.memory_slices,
        until_s=_whole_s(run, until_s - began_s),
        keys=tuple(keys[at] for at in order),
        slabs=tuple(replace(each, key=order.index(each.key)) for each in slabs),
    )


def _whole_s(run: LiveRun, seconds: float) -> float:
    """The window's own length where it lasted just about that."""
    return run.window_s if abs(seconds - run.window_s) < run.slot_s / 2 else round(seconds, 3)


def state_key(unit: UnitRecord, tenants: Sequence[str]) -> tuple[str, Paint]:
    """What a unit's state is called, and its look: a tenant's hue says whose it is."""
    if unit.tenant is None or unit.tenant not in tenants:
        return _NOBODY.get(unit.state, _UNUSED)
    hue = tenants.index(unit.tenant) % 7
    match unit.state:
        case "ready":
            return unit.tenant, Paint(hue)
        case "training":
            return f"{unit.tenant}, retraining", Paint(hue, hatched=True)
        case "warming" | "creating":
            return f"{unit.tenant}, {unit.state}", Paint(hue, light=True)
        case _:
            return f"{unit.tenant}, draining", Paint(hue, light=True, hatched=True)


def _rank(key: tuple[str, Paint], tenants: Sequence[str]) -> tuple[int, str]:
    owner = key[0].partition(",")[0]
    return (tenants.index(owner) if owner in tenants else len(tenants)), key[0]


def _slab(
    unit: UnitRecord, key: int, board: Board, from_s: float, until_s: float, least_s: float
) -> Slab:
    return Slab(
        key=key,
        label=size_of(unit, board),
        start=0,
        width=slices_of(unit, board),
        from_s=round(from_s, 3),
        until_s=round(max(until_s, from_s + least_s), 3),
    )
