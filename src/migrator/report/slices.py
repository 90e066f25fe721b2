"""Turns plans, records and the current state into slabs, the one model of drawn slices."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from migrator.core.catalogue import Board
from migrator.core.problem import Kind, Task
from migrator.records.current_run import CurrentUnit
from migrator.records.rows import UnitRecord
from migrator.records.runs import Block, RecordedRun, RecordedWindow
from migrator.report.page import Slab, Slices, Use

_SHORTEST = 0.003
"""The least part of a window that is visible; shorter intervals are drawn this long."""
_USES = {
    "ready": Use.SERVING,
    "training": Use.RETRAINING,
    "warming": Use.WARMING,
    "creating": Use.CREATING,
}
_OWNERLESS = {"creating": Use.CREATED, "destroying": Use.REMOVED}

_Place = tuple[int, int, str]
"""Start, GPCs and tenant: what stays warm from slot to slot, in either task."""


def slice_width(board: Board, gpcs: float) -> int:
    """The memory slices of an instance."""
    profile = board.plain_profiles.get(round(gpcs))
    return profile.memory_slices if profile else max(1, round(gpcs))


def use_of(tenant: str | None, state: str, kind: str = "") -> Use:
    """What a unit in a state of the executor is used for."""
    if tenant is None:
        return _OWNERLESS.get(state, Use.UNUSED)
    if kind == Kind.RETRAINING and state == "ready":
        return Use.RETRAINING
    return _USES.get(state, Use.DRAINING)


# Plans


def planned_slices(
    title: str,
    blocks: Sequence[Block],
    board: Board,
    slots: int,
    slot_s: float,
    tenants: Sequence[str],
    overhead_s: Mapping[str, float],
    before: Iterable[Block] | None = None,
) -> Slices:
    """The blocks of a plan. New serving instances are cold for `overhead_s` of their tenant.

    `before` are the blocks held before slot 0; None: what slot 0 holds is warm.
    """
    instances = [block for block in blocks if block["start"] is not None]
    since = _arrivals(instances, before)
    lanes = _share_lanes([block for block in blocks if block["start"] is None], board)
    slabs: list[Slab] = []
    for block in blocks:
        task = Task.parse(block["task"]) if block["task"] else None
        slab = _planned_slab(block, task, board, slot_s, lanes)
        cold_s = 0.0
        if task is not None and task.kind is Kind.INFERENCE and block["start"] is not None:
            there_s = (block["from"] - since[_place(block), block["from"]]) * slot_s
            cold_s = max(0.0, overhead_s.get(task.tenant, 0.0) - there_s)
            cold_s = min(cold_s, slab.until_s - slab.from_s)
        slabs += _split(slab, cold_s)
    return Slices(title, board.memory_slices, slots * slot_s, tuple(tenants), tuple(slabs))


def _planned_slab(
    block: Block,
    task: Task | None,
    board: Board,
    slot_s: float,
    lanes: Mapping[int, tuple[float, float]],
) -> Slab:
    use = Use.UNUSED
    if task is not None:
        use = Use.SERVING if task.kind is Kind.INFERENCE else Use.RETRAINING
    if block["start"] is None:
        start, width = lanes[id(block)]
        size, note = share_size(block["gpcs"], board, block.get("duty", 1.0)), ""
    else:
        start, width = block["start"], slice_width(board, block["gpcs"])
        size, note = f"{block['gpcs']:g}g", _profile(block, board)
    tenant = task.tenant if task else None
    return Slab(
        tenant, use, size, start, width, block["from"] * slot_s, block["until"] * slot_s, note
    )


def _profile(block: Block, board: Board) -> str:
    profile = board.plain_profiles.get(block["gpcs"])
    if profile is None:
        return ""
    last = block["start"] + profile.memory_slices - 1
    where = f"slice {last}" if profile.memory_slices == 1 else f"slices {block['start']}-{last}"
    return f"{profile.name} on {where}"


def share_size(gpcs: float, board: Board, duty: float = 1.0) -> str:
    """A share in percent of the SMs, and the part of the time in which it has them."""
    size = f"{100 * gpcs / board.compute_slices:.3g}%"
    return size if duty == 1 else f"{size} for {duty:.0%} of the time"


def _split(slab: Slab, cold_s: float) -> list[Slab]:
    warm_from = slab.from_s + cold_s
    parts = []
    if cold_s > 0:
        parts.append(replace(slab, use=Use.COLD, until_s=min(warm_from, slab.until_s)))
    if warm_from < slab.until_s - 1e-9:
        parts.append(replace(slab, from_s=warm_from))
    return parts


def _place(block: Block) -> _Place:
    return block["start"], block["gpcs"], (block["task"] or "").rpartition("/")[0]


def _arrivals(
    blocks: Sequence[Block], before: Iterable[Block] | None
) -> dict[tuple[_Place, int], float]:
    """By place and first slot of a block: since which slot its tenant has held the place.

    Infinitely long for places held before the window.
    """
    ends = {} if before is None else {_place(block): (0, -math.inf) for block in before}
    if before is None:
        ends = {_place(block): (0, -math.inf) for block in blocks if block["from"] == 0}
    since: dict[tuple[_Place, int], float] = {}
    for block in sorted(blocks, key=lambda block: block["from"]):
        place = _place(block)
        end, came = ends.get(place, (-1, 0.0))
        came = came if end >= block["from"] else block["from"]
        since[place, block["from"]] = came
        ends[place] = (max(end, block["until"]), came)
    return since


def _share_lanes(blocks: Sequence[Block], board: Board) -> dict[int, tuple[float, float]]:
    """Start and width of every block of a share, by its id; see `_stacked`."""
    spans = [
        (
            block["from"],
            block["until"],
            block["gpcs"] * block.get("duty", 1.0) * board.memory_slices / board.compute_slices,
            None,
        )
        for block in blocks
    ]
    starts = _stacked(spans, board.memory_slices)
    return {
        id(block): (start, span[2])
        for block, span, start in zip(blocks, spans, starts, strict=True)
    }


def _stacked(spans: Sequence[tuple[float, float, float, float | None]], slices: int) -> list[float]:
    """Where to draw spans (from, until, width, start): shares have no place and get a free one.

    While old and new shares overlap, because the new ones are warmed beside the old, the topmost
    are drawn over others.
    """
    starts: list[float] = []
    current: list[tuple[float, float, float]] = []
    for begin, end, width, place in spans:
        current = [span for span in current if span[0] > begin]
        start = place
        if start is None:
            start = _lowest([(low, high) for _, low, high in current], width, slices)
        starts.append(start)
        current.append((end, start, start + width))
    return starts


def _lowest(taken: list[tuple[float, float]], width: float, slices: int) -> float:
    at = 0.0
    for low, high in sorted(taken):
        if low - at >= width - 1e-6:
            break
        at = max(at, high)
    return max(0.0, min(at, slices - width))


def planned_chart(
    run: RecordedRun, window: RecordedWindow, board: Board, overhead_s: Mapping[str, float]
) -> Slices | None:
    """The plan made at the beginning of a window; None where none was recorded."""
    slots = run.records.run.slots
    blocks = window.first_plan
    if not blocks:
        return None
    earlier = run.window_before(window)
    last = earlier.first_plan if earlier is not None else ()
    before = [block for block in last if block["until"] >= slots] if last else None
    title = f"Window {window.number}: planned at its beginning"
    return planned_slices(title, blocks, board, slots, run.slot_s, run.tenants, overhead_s, before)


# Records and the current state


def held_chart(run: RecordedRun, window: RecordedWindow, board: Board) -> Slices:
    """The recorded states of all instances and shares in a window."""
    began_s, until_s = window.row.began_s, window.until_s
    least_s = _SHORTEST * (until_s - began_s)
    starts, slabs = _unit_starts(run.records.units, board), []
    for unit in sorted(run.records.units, key=lambda unit: (unit.from_s, starts[unit.unit])):
        to_s = min(unit.to_s if unit.to_s is not None else until_s, until_s) - began_s
        from_s = max(unit.from_s, began_s) - began_s
        if to_s <= from_s or from_s >= until_s - began_s:
            continue
        tenant = unit.tenant if unit.tenant in run.tenants else None
        slabs.append(
            Slab(
                tenant,
                use_of(tenant, unit.state),
                share_size(unit.gpcs, board) if unit.start is None else f"{unit.gpcs:g}g",
                starts[unit.unit],
                _unit_width(unit, board),
                round(from_s, 3),
                round(max(to_s, from_s + least_s), 3),
            )
        )
    length_s = until_s - began_s
    if abs(length_s - run.window_s) < run.slot_s / 2:
        length_s = run.window_s
    title = f"Window {window.number}: held"
    return Slices(title, board.memory_slices, round(length_s, 3), run.tenants, tuple(slabs))


def joined(title: str, windows: Sequence[tuple[float, Slices]]) -> Slices:
    """The charts of at least one window as one, each moved by its seconds."""
    slabs = [
        replace(slab, from_s=slab.from_s + offset_s, until_s=slab.until_s + offset_s)
        for offset_s, chart in windows
        for slab in chart.slabs
    ]
    first = windows[0][1]
    until_s = max(offset_s + chart.until_s for offset_s, chart in windows)
    return Slices(title, first.slices, until_s, first.tenants, tuple(slabs))


def _unit_starts(units: Sequence[UnitRecord], board: Board) -> dict[str, float]:
    histories: dict[str, list[UnitRecord]] = {}
    for unit in sorted(units, key=lambda unit: unit.from_s):
        histories.setdefault(unit.unit, []).append(unit)
    spans = [
        (
            states[0].from_s,
            math.inf if states[-1].to_s is None else states[-1].to_s,
            _unit_width(states[0], board),
            states[0].start,
        )
        for states in histories.values()
    ]
    return dict(zip(histories, _stacked(spans, board.memory_slices), strict=True))


def _unit_width(unit: UnitRecord, board: Board) -> float:
    if unit.start is None:
        return unit.gpcs * board.memory_slices / board.compute_slices
    return float(slice_width(board, unit.gpcs))


def current_slabs(units: Iterable[CurrentUnit], board: Board) -> tuple[Slab, ...]:
    """The instances of one moment; shares have no place."""
    return tuple(
        Slab(
            unit.tenant,
            use_of(unit.tenant, unit.state, unit.kind),
            f"{unit.gpcs:g}g",
            unit.start,
            slice_width(board, unit.gpcs),
            0.0,
            1.0,
            unit.state,
        )
        for unit in units
        if unit.start is not None
    )
