"""A run as its records describe it: windows, tenants, tallies. Reports and texts read this.

Plans are blocks: an instance or share with its task, over consecutive slots. A block is {"start",
"gpcs", "task", "from", "until"} and covers slots `from` to `until` - 1 of a window. A share has no
start, the size of an instance with as many SMs, and a "number".
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from migrator.core.catalogue import Board
from migrator.core.fairness import Fairness, fairness
from migrator.core.outcome import Tally
from migrator.core.preferences import Preferences
from migrator.core.problem import Holding, Share
from migrator.records.rows import (
    EventRecord,
    PlanRecord,
    RetrainingRecord,
    RunRecords,
    SecondRecord,
    TenantWindowRecord,
    UnitRecord,
    VersionRecord,
    WindowRecord,
)
from migrator.records.store import read_records

Block = Mapping[str, Any]
SIMULATED = "simulated"
"""The driver of runs that the simulator made."""


def held_blocks(
    slots: Sequence[Iterable[Holding]], board: Board, first: int = 0, until: int | None = None
) -> tuple[Block, ...]:
    """Blocks of the holdings of every slot, of which the first is slot `first` of the window.

    The last slot is extended to slot `until` - 1.
    """
    since: dict[Holding, int] = {}
    blocks: list[Block] = []
    end = max(first + len(slots), until or 0)
    for slot, holdings in enumerate((*slots, ()), first):
        current = set(holdings)
        closes = end if slot == first + len(slots) else slot
        blocks += [
            _block(past, since.pop(past), closes, board)
            for past in list(since)
            if past not in current
        ]
        for holding in current:
            since.setdefault(holding, slot)
    return tuple(sorted(blocks, key=_order))


def planned_blocks(plans: Sequence[PlanRecord], slots: int) -> tuple[Block, ...]:
    """The plans of a window, each until the next one replaces it."""
    blocks: list[Block] = []
    ordered = sorted(plans, key=lambda plan: plan.at_s)
    ends = [*(following.slot for following in ordered[1:]), slots]
    for plan, end in zip(ordered, ends, strict=True):
        blocks += _cut(plan.blocks, plan.slot, end)
    return tuple(_joined(blocks))


def _cut(blocks: Iterable[Block], first: int, end: int) -> list[Block]:
    cut = [
        {**block, "from": max(block["from"], first), "until": min(block["until"], end)}
        for block in blocks
    ]
    return [block for block in cut if block["from"] < block["until"]]


def _joined(blocks: Iterable[Block]) -> list[Block]:
    """Join blocks of the same holding that follow one another without a break."""
    last: dict[tuple[object, ...], dict[str, Any]] = {}
    joined: list[dict[str, Any]] = []
    for block in sorted(blocks, key=_order):
        key = tuple(block.get(name) for name in ("start", "gpcs", "task", "number"))
        before = last.get(key)
        if before is not None and before["until"] == block["from"]:
            before["until"] = block["until"]
            continue
        last[key] = dict(block)
        joined.append(last[key])
    return [*joined]


def _block(holding: Holding, first: int, until: int, board: Board) -> Block:
    if isinstance(holding, Share):
        gpcs = round(holding.percent / 100 * board.compute_slices, 3)
        where: dict[str, object] = {"start": None, "gpcs": gpcs, "number": holding.number}
        if holding.duty < 1:
            where["duty"] = round(holding.duty, 3)
    else:
        where = {"start": holding.start, "gpcs": holding.gpcs}
    task = None if holding.task is None else str(holding.task)
    return {**where, "task": task, "from": first, "until": until}


def _order(block: Block) -> tuple[int, float, str, int]:
    start = block["start"]
    return (
        block["from"],
        float("inf") if start is None else start,
        block["task"] or "",
        block.get("number", 0),
    )


@dataclass(frozen=True)
class RecordedWindow:
    """One window of a run."""

    row: WindowRecord
    until_s: float
    """When it ended; of a window that has not ended, when it should."""
    tenants: Mapping[str, Tally]
    rows: Mapping[str, TenantWindowRecord]
    """Empty while the window has not ended."""
    reconfigurations: Mapping[str, int]
    """Per tenant, the instances or shares that were new to it."""
    plans: tuple[PlanRecord, ...] = ()
    fluid: float | None = None
    """Of a simulation: goodput of the plan in the planner's fluid model on the real arrivals."""

    @property
    def number(self) -> int:
        return self.row.window

    @property
    def ended(self) -> bool:
        """Whether it is over and measured."""
        return self.row.ended_s is not None

    @property
    def tally(self) -> Tally:
        return sum(self.tenants.values(), Tally())

    def contains(self, at_s: float) -> bool:
        """Whether a moment lies in it."""
        return self.row.began_s <= at_s < self.until_s

    @property
    def first_plan(self) -> tuple[Block, ...]:
        """What was planned at its beginning; empty where no plan was recorded."""
        first = min(self.plans, key=lambda plan: plan.at_s, default=None)
        return () if first is None else tuple(first.blocks)


@dataclass(frozen=True)
class RecordedRun:
    """A run by window and tenant. Totals cover the windows that have ended."""

    records: RunRecords
    tenants: tuple[str, ...]
    windows: tuple[RecordedWindow, ...]
    zero_s: float
    """When the first window began; times in reports count from here."""

    @property
    def scenario(self) -> str:
        return self.records.run.scenario

    @property
    def policy(self) -> str:
        return self.records.run.policy

    @property
    def seed(self) -> int:
        return self.records.run.seed

    @property
    def is_simulated(self) -> bool:
        return self.records.run.driver == SIMULATED

    @property
    def forecaster(self) -> str:
        """The forecaster, or several names if it changed."""
        return ", ".join(sorted({window.row.forecaster for window in self.windows}))

    @property
    def window_s(self) -> float:
        return self.records.run.window_s

    @property
    def slot_s(self) -> float:
        return self.records.run.slot_s

    @cached_property
    def ended(self) -> tuple[RecordedWindow, ...]:
        return tuple(window for window in self.windows if window.ended)

    @cached_property
    def totals(self) -> dict[str, Tally]:
        return {
            name: sum((window.tenants[name] for window in self.ended), Tally())
            for name in self.tenants
        }

    @property
    def tally(self) -> Tally:
        return sum(self.totals.values(), Tally())

    @property
    def fairness(self) -> Fairness:
        """Between the tenants, over the windows that have ended."""
        return fairness(self.totals)

    @property
    def preferences(self) -> Preferences:
        """Weights and floors of the tenants."""
        return Preferences.recorded(self.records.run.about)

    @property
    def reconfigurations(self) -> int:
        """Instances or shares that were new to their tenant."""
        return sum(sum(window.reconfigurations.values()) for window in self.ended)

    @property
    def plan_s(self) -> float:
        """Planning time of all windows."""
        return sum(window.row.plan_s or 0.0 for window in self.ended)

    @cached_property
    def starts(self) -> tuple[UnitRecord, ...]:
        """The starts of instances and shares whose duration was recorded, by time."""
        return tuple(sorted(_starts(self.records), key=lambda start: start.from_s))

    @property
    def overheads_s(self) -> dict[str, float]:
        """Per tenant the mean duration of a start, from creation until it serves."""
        durations_s: dict[str, list[float]] = {}
        for start in self.starts:
            durations_s.setdefault(start.tenant or "", []).append(start_duration_s(start.parts_s))
        return {name: sum(values) / len(values) for name, values in durations_s.items()}

    def second_s(self, row: SecondRecord) -> float:
        return self.zero_s + row.second

    def window_at(self, at_s: float) -> RecordedWindow | None:
        """The window that contains a moment."""
        place = bisect_right(self.windows, at_s, key=lambda window: window.row.began_s) - 1
        window = self.windows[place] if place >= 0 else None
        return window if window is not None and window.contains(at_s) else None

    def window_before(self, window: RecordedWindow) -> RecordedWindow | None:
        earlier = [earlier for earlier in self.windows if earlier.number < window.number]
        return earlier[-1] if earlier else None

    def events_of(self, window: RecordedWindow) -> tuple[EventRecord, ...]:
        return tuple(event for event in self.records.events if window.contains(event.at_s))

    def retrainings_of(self, window: RecordedWindow) -> tuple[RetrainingRecord, ...]:
        """The retrainings planned in a window whose durations are known."""
        return tuple(
            retraining
            for retraining in self.records.retrainings
            if retraining.window == window.number and retraining.taken_s is not None
        )

    def not_retrained_in(self, window: RecordedWindow) -> tuple[RetrainingRecord, ...]:
        """The tenants that were not retrained in a window, with the reason."""
        return tuple(
            row for row in self.records.retrainings if row.window == window.number and row.reason
        )

    def adoptions(self, tenant: str) -> tuple[VersionRecord, ...]:
        """The versions of a tenant's model that began to serve, oldest first."""
        return self._adoptions.get(tenant, ())

    @cached_property
    def _adoptions(self) -> dict[str, tuple[VersionRecord, ...]]:
        adopted: dict[str, list[VersionRecord]] = {}
        for version in sorted(self.records.versions, key=lambda row: row.at_s):
            if version.adopted:
                adopted.setdefault(version.tenant, []).append(version)
        return {name: tuple(rows) for name, rows in adopted.items()}

    def retrained_s(self, window: RecordedWindow, tenant: str) -> float | None:
        """Seconds into the window at which a retrained model took over; None: none did."""
        adopted = self.adoptions(tenant)
        if self.is_simulated:
            adopted = adopted[1:]  # the first one is what the run began with
        place = bisect_left(adopted, window.until_s, key=lambda version: version.at_s) - 1
        if place < 0 or not window.contains(adopted[place].at_s):
            return None
        return round(adopted[place].at_s - window.row.began_s, 6)


def read_recorded_run(path: Path, run: int | None = None) -> RecordedRun:
    """A run of a file, by default the newest."""
    return recorded_run(read_records(path, run))


def recorded_run(records: RunRecords) -> RecordedRun:
    """The records arranged by window and tenant."""
    zero_s = records.windows[0].began_s if records.windows else records.run.began_s
    tenants = _tenants(records)
    return RecordedRun(records, tenants, tuple(_windows(records, tenants, zero_s)), zero_s)


def start_duration_s(parts_s: Mapping[str, float]) -> float:
    """The duration of a start: creation and warming."""
    warm_s = parts_s.get("warm_s", parts_s.get("total", 0.0))
    return parts_s.get("create_s", 0.0) + warm_s


def _starts(records: RunRecords) -> list[UnitRecord]:
    return [unit for unit in records.units if unit.parts_s and unit.tenant]


def _tenants(records: RunRecords) -> tuple[str, ...]:
    """In the order of the run if it states one, then by name."""
    names = {window.tenant for window in records.tenant_windows}
    names |= {second.tenant for second in records.seconds}
    names |= {unit.tenant for unit in records.units if unit.tenant}
    return tuple(dict.fromkeys((*records.run.tenants, *sorted(names))))


def _windows(
    records: RunRecords, tenants: tuple[str, ...], zero_s: float
) -> Iterator[RecordedWindow]:
    rows: dict[int, dict[str, TenantWindowRecord]] = {}
    for window in records.tenant_windows:
        rows.setdefault(window.window, {})[window.tenant] = window
    plans: dict[int, list[PlanRecord]] = {}
    for plan in records.plans:
        plans.setdefault(plan.window, []).append(plan)
    seconds = sorted(records.seconds, key=lambda second: second.second)
    fluid = records.run.about.get("fluid_goodput", ())
    reconfigurations = _reconfigurations(records, tenants)
    for at, row in enumerate(records.windows):
        following = records.windows[at + 1 : at + 2]
        due_s = min([row.began_s + records.run.window_s, *(window.began_s for window in following)])
        until_s = row.ended_s if row.ended_s is not None else due_s
        # a second belongs to the window in which its middle lies: clocks are not exact
        first, end = (
            bisect_left(seconds, at_s - zero_s - 0.5, key=lambda second: second.second)
            for at_s in (row.began_s, until_s)
        )
        tenant_rows = rows.get(row.window, {})
        yield RecordedWindow(
            row,
            until_s,
            {name: _tally(name, tenant_rows.get(name), seconds[first:end]) for name in tenants},
            tenant_rows,
            reconfigurations[at],
            tuple(plans.get(row.window, ())),
            fluid[at] if at < len(fluid) else None,
        )


def _reconfigurations(records: RunRecords, tenants: tuple[str, ...]) -> list[dict[str, int]]:
    """Per window and tenant: as a simulation counted them, else the starts in the window."""
    counted = records.run.about.get("reconfigurations")
    if counted is not None:
        return [
            {name: counted[name][at] for name in tenants if name in counted}
            for at in range(len(records.windows))
        ]
    counts = [dict.fromkeys(tenants, 0) for _ in records.windows]
    for start in _starts(records):
        place = bisect_right(records.windows, start.from_s, key=lambda row: row.began_s) - 1
        if place >= 0 and start.tenant in counts[place]:
            counts[place][start.tenant] += 1
    return counts


def _tally(tenant: str, row: TenantWindowRecord | None, seconds: list[SecondRecord]) -> Tally:
    """From the row of the window, or from its seconds while there is none."""
    if row is not None:
        ended = row.in_time + row.late + row.dropped + row.failed
        return Tally(
            row.received,
            row.goodput or 0.0,
            row.wrong or 0.0,
            row.late,
            row.dropped,
            row.received - ended,
            row.while_reconfiguring,
            row.failed,
            row.in_time if row.goodput is None else 0,
        )
    tenant_seconds = [second for second in seconds if second.tenant == tenant]
    tally = Tally(
        received=sum(second.received for second in tenant_seconds),
        late=sum(second.late for second in tenant_seconds),
        dropped=sum(second.dropped for second in tenant_seconds),
        failed=sum(second.failed for second in tenant_seconds),
        unjudged=sum(second.in_time or 0 for second in tenant_seconds),
        while_reconfiguring=sum(second.reconfiguring for second in tenant_seconds),
    )
    return Tally(**{**vars(tally), "queued": round(tally.balance)})
