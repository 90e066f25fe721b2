"""What every task held in a window, as a chart: instances on slices, or shares in percent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from migrator.core.catalogue import Board
from migrator.core.instance import Instance, Kind, Task
from migrator.core.outcome import WindowOutcome
from migrator.core.share import Holding, Share
from migrator.report.page import Areas, Axis, Chart, Paint, Series, Slab, Slices

Slot = tuple[Holding, ...]

TIME = Axis("time", "s")
_SHARES = Axis("share of the SMs", "%")
_COLD, _UNUSED = "cold start", "unused"


@dataclass(frozen=True)
class Stretch:
    """An instance that holds one task without a break: slots `first` to `end` - 1."""

    instance: Instance
    first: int
    end: int
    is_new: bool
    """It was not with its tenant in the slot before."""


def allocation_charts(
    window: WindowOutcome,
    before: Slot | None,
    board: Board,
    slot_s: float,
    tenants: Sequence[str],
    overhead_s: Mapping[str, float],
) -> tuple[Chart, ...]:
    """A chart of the instances and one of the shares, whichever the window has.

    `before` is the slot before the window, None where nobody knows of it. `overhead_s` says how
    long a tenant's new instance is cold; a tenant that is not in it gets a mark at its start.
    """
    kinds = {type(each) for slot in window.slots for each in slot}
    charts: list[Chart] = []
    if Instance in kinds:
        charts.append(_instances(window, before, board, slot_s, tenants, overhead_s))
    if Share in kinds:
        charts.append(_shares(window, slot_s, tenants))
    return tuple(charts)


def stretches_of(slots: Sequence[Slot], before: Slot | None) -> tuple[Stretch, ...]:
    """Every instance's unbroken stretches, by beginning and slice."""
    opened: dict[Instance, tuple[int, bool]] = {}
    found: list[Stretch] = []
    known = _spots(before if before is not None else slots[0]) if slots else set()
    for number, slot in enumerate((*slots, ())):
        held = {each for each in slot if isinstance(each, Instance)}
        for instance in [each for each in opened if each not in held]:
            first, is_new = opened.pop(instance)
            found.append(Stretch(instance, first, number, is_new))
        for instance in held:
            is_new = instance.task is not None and _spot(instance) not in known
            opened.setdefault(instance, (number, is_new))
        known = _spots(slot)
    return tuple(sorted(found, key=lambda each: (each.first, each.instance.start)))


def _spot(instance: Instance) -> tuple[int, int, str | None]:
    return instance.start, instance.gpcs, instance.task.tenant if instance.task else None


def _spots(slot: Iterable[Holding]) -> set[tuple[int, int, str | None]]:
    return {_spot(each) for each in slot if isinstance(each, Instance)}


def task_paint(task: Task | None, tenants: Sequence[str]) -> Paint:
    """A tenant's colour, hatched where it retrains; light grey where nobody uses it."""
    if task is None:
        return Paint(None, light=True)
    return Paint(tenants.index(task.tenant) % 7, hatched=task.kind is Kind.RETRAINING)


def _tasks(tenants: Sequence[str]) -> list[Task]:
    return [Task(name, kind) for name in tenants for kind in Kind]


def _instances(
    window: WindowOutcome,
    before: Slot | None,
    board: Board,
    slot_s: float,
    tenants: Sequence[str],
    overhead_s: Mapping[str, float],
) -> Slices:
    stretches = stretches_of(window.slots, before)
    present = {each.instance.task for each in stretches}
    tasks: list[Task | None] = [each for each in (*_tasks(tenants), None) if each in present]
    keys = [(_name(task), task_paint(task, tenants)) for task in tasks]
    slabs, starts = [], []
    for each in stretches:
        task, width = each.instance.task, _width(each.instance, board)
        cold_s = 0.0
        if each.is_new and task is not None and task.kind is Kind.INFERENCE:
            if task.tenant in overhead_s:
                cold_s = min(overhead_s[task.tenant], (each.end - each.first) * slot_s)
            else:
                starts.append((each.first * slot_s, each.instance.start + width / 2))
        if cold_s > 0 and task is not None:
            key = _cold_key(keys, task.tenant, tenants)
            slabs.append(_slab(each, key, width, slot_s, (0.0, cold_s)))
        if cold_s < (each.end - each.first) * slot_s:
            slabs.append(_slab(each, tasks.index(task), width, slot_s, (cold_s, None)))
    return Slices(
        title=f"Window {window.window}: instances on memory slices",
        slices=board.memory_slices,
        until_s=len(window.slots) * slot_s,
        keys=tuple(keys),
        slabs=tuple(slabs),
        starts=tuple(starts),
    )


def _name(task: Task | None) -> str:
    if task is None:
        return _UNUSED
    return task.tenant if task.kind is Kind.INFERENCE else f"{task.tenant}, retraining"


def _cold_key(keys: list[tuple[str, Paint]], tenant: str, tenants: Sequence[str]) -> int:
    """The key of a tenant's cold starts, added where it is the first."""
    key = (f"{tenant}, {_COLD}", Paint(tenants.index(tenant) % 7, light=True))
    if key not in keys:
        keys.append(key)
    return keys.index(key)


def _width(instance: Instance, board: Board) -> int:
    return board.plain_profiles[instance.gpcs].memory_slices


def _slab(
    stretch: Stretch, key: int, width: int, slot_s: float, part_s: tuple[float, float | None]
) -> Slab:
    """A part of a stretch, counted in seconds from its start; None: to its end."""
    begins, ends = stretch.first * slot_s, stretch.end * slot_s
    from_s, until_s = part_s
    return Slab(
        key=key,
        label=f"{stretch.instance.gpcs}g",
        start=stretch.instance.start,
        width=width,
        from_s=begins + from_s,
        until_s=ends if until_s is None else begins + until_s,
    )


def _shares(window: WindowOutcome, slot_s: float, tenants: Sequence[str]) -> Areas:
    series = []
    for task in _tasks(tenants):
        held = tuple(_percent(slot, task) for slot in window.slots)
        if any(held):
            series.append(Series(_name(task), held, paint=task_paint(task, tenants)))
    return Areas(
        title=f"Window {window.window}: shares of the GPU",
        at=tuple(slot * slot_s for slot in range(len(window.slots))),
        until=len(window.slots) * slot_s,
        series=tuple(series),
        x=TIME,
        y=_SHARES,
    )


def _percent(slot: Slot, task: Task) -> float:
    """Percent of the SMs, less where it has them for part of the time only."""
    shares = [each for each in slot if isinstance(each, Share) and each.task == task]
    return sum(each.percent * each.duty for each in shares)
