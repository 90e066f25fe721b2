"""Units of a simulated run: what was held slot by slot, as the lives of instances and shares.

Part of `simulation_records`. As in the simulator, what is new to a tenant gets warm first, and a
share goes on until the one in its place is warm. Waits for batches in flight are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from migrator.core.instance import Instance, Kind, Task
from migrator.core.outcome import RunOutcome
from migrator.core.scenario import Scenario
from migrator.core.share import Holding, Share
from migrator.records.rows import UnitRecord

_Place = tuple[int, int, str] | Share
"""What stays the same unit from slot to slot: a place with its tenant, or a share."""
_State = tuple[float, str, Task | None]
"""Since when, in which state, for which task."""


@dataclass
class _Life:
    """One unit from its first slot to its last."""

    holding: Holding
    states: list[_State] = field(default_factory=list)
    until_s: float | None = None


def unit_rows(
    outcome: RunOutcome, scenario: Scenario, overhead_s: Mapping[str, float], zero_s: float
) -> Iterator[UnitRecord]:
    """Every state of every unit, the lives in their order."""
    lives = _lives(outcome, scenario, overhead_s)
    for number, life in enumerate(lives, 1):
        starts = [each[0] for each in life.states]
        for (from_s, state, task), to_s in zip(
            life.states, [*starts[1:], life.until_s], strict=True
        ):
            if to_s is not None and to_s <= from_s:
                continue
            parts_s = {"warm_s": to_s - from_s} if state == "warming" and to_s is not None else {}
            yield UnitRecord(
                f"{life.holding}#{number}",
                zero_s + from_s,
                _start(life.holding),
                _gpcs(life.holding, scenario),
                task.tenant if task else None,
                str(task.kind) if task and state != "idle" else "",
                state,
                None if to_s is None else zero_s + to_s,
                parts_s,
            )


def _lives(outcome: RunOutcome, scenario: Scenario, overhead_s: Mapping[str, float]) -> list[_Life]:
    alive: dict[_Place, _Life] = {}
    every: list[_Life] = []
    ends = _trained_s(outcome, scenario)
    slots = [slot for window in outcome.windows for slot in window.slots]
    for number, slot in enumerate(slots):
        now_s = number * scenario.slot_s
        wanted = {_place(each): each for each in slot if each.task is not None}
        leaving = [(place, alive.pop(place)) for place in list(alive) if place not in wanted]
        for place, holding in wanted.items():
            if place in alive:
                _go_on(alive[place], holding, now_s, overhead_s)
                continue
            alive[place] = _born(holding, now_s, overhead_s, at_once=number == 0)
            every.append(alive[place])
        for place, life in leaving:
            life.until_s = max(now_s, _succeeded_s(place, alive.values()))
    for life in alive.values():
        life.until_s = len(slots) * scenario.slot_s
    for life in every:
        _idle_once_trained(life, ends)
    return every


def _born(
    holding: Holding, now_s: float, overhead_s: Mapping[str, float], *, at_once: bool
) -> _Life:
    task = holding.task
    assert task is not None
    cold_s = 0.0 if at_once and task.kind is Kind.INFERENCE else overhead_s[task.tenant]
    states: list[_State] = [(now_s, "warming", task)] if cold_s else []
    return _Life(holding, [*states, (now_s + cold_s, _busy(task), task)])


def _go_on(life: _Life, holding: Holding, now_s: float, overhead_s: Mapping[str, float]) -> None:
    """The same unit; where its task changes, its tenant's other process takes it."""
    task, before = holding.task, life.states[-1][2]
    if task is None or task == before:
        return
    ready_s = life.states[-1][0]
    life.states = [each for each in life.states if each[0] < now_s]
    if task.kind is Kind.RETRAINING:
        life.states += [(now_s, "warming", task)]
        ready_s = now_s + overhead_s[task.tenant]
    life.states.append((max(now_s, ready_s), _busy(task), task))


def _succeeded_s(place: _Place, alive: Iterable[_Life]) -> float:
    """When the share that takes over is warm."""
    if not isinstance(place, Share):
        return 0.0
    heirs = [each for each in alive if each.holding.task == place.task]
    return max((each.states[-1][0] for each in heirs), default=0.0)


def _trained_s(outcome: RunOutcome, scenario: Scenario) -> dict[str, list[float]]:
    """Per tenant, the moments at which a retraining ended."""
    found: dict[str, list[float]] = {}
    for window in outcome.windows:
        for each in window.tenants:
            if each.retrained_s is not None:
                at_s = window.window * scenario.window_s + each.retrained_s
                found.setdefault(each.tenant, []).append(at_s)
    return found


def _idle_once_trained(life: _Life, ends: Mapping[str, Sequence[float]]) -> None:
    """What is held for a retraining that is done idles."""
    states: list[_State] = []
    until = [*(each[0] for each in life.states[1:]), life.until_s or float("inf")]
    for (from_s, state, task), to_s in zip(life.states, until, strict=True):
        states.append((from_s, state, task))
        if state == "training" and task is not None:
            done = [each for each in ends.get(task.tenant, ()) if from_s < each < to_s - 1e-6]
            states += [(each, "idle", task) for each in done[:1]]
    life.states = states


def _busy(task: Task) -> str:
    return "training" if task.kind is Kind.RETRAINING else "ready"


def _place(holding: Holding) -> _Place:
    if isinstance(holding, Share):
        return holding
    assert holding.task is not None
    return holding.start, holding.gpcs, holding.task.tenant


def _start(holding: Holding) -> int | None:
    return holding.start if isinstance(holding, Instance) else None


def _gpcs(holding: Holding, scenario: Scenario) -> float:
    if isinstance(holding, Instance):
        return holding.gpcs
    return holding.percent / 100 * scenario.board.compute_slices
