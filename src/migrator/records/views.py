"""What the records of a live run say, put together for the text and the page about it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from migrator.core.instance import Instance, Task
from migrator.records.rows import (
    EventRecord,
    RunRecords,
    SecondRecord,
    TenantWindowRecord,
    UnitRecord,
    WindowRecord,
)

_WINDOW_S, _SLOT_S = 200.0, 1.0
"""Of a run that does not say."""


@dataclass(frozen=True)
class Counted:
    """Requests by what became of them, correct or not; None: nobody has judged them yet."""

    received: int = 0
    in_time: int = 0
    late: int = 0
    dropped: int = 0
    failed: int = 0
    goodput: float | None = None
    while_reconfiguring: int | None = None

    @property
    def wrong(self) -> float | None:
        """Answered in time, but not correctly."""
        return None if self.goodput is None else self.in_time - self.goodput

    @property
    def unanswered(self) -> int:
        """Of the received: those whose end nobody counted in time for the books."""
        known = self.in_time + self.late + self.dropped + self.failed
        return max(0, self.received - known)

    @property
    def share(self) -> float | None:
        """Goodput over received."""
        return self.goodput / self.received if self.goodput is not None and self.received else None

    @property
    def slo_attainment(self) -> float | None:
        """In time over received."""
        return self.in_time / self.received if self.received else None

    @property
    def accuracy(self) -> float | None:
        """Correct among what was answered in time."""
        return self.goodput / self.in_time if self.goodput is not None and self.in_time else None

    def __add__(self, other: Counted) -> Counted:
        return Counted(
            self.received + other.received,
            self.in_time + other.in_time,
            self.late + other.late,
            self.dropped + other.dropped,
            self.failed + other.failed,
            _sum(self.goodput, other.goodput),
            _sum(self.while_reconfiguring, other.while_reconfiguring),
        )


NOTHING = Counted(goodput=0.0, while_reconfiguring=0)
"""What sums begin with."""


def _sum(one: Any, other: Any) -> Any:
    return None if one is None or other is None else one + other


@dataclass(frozen=True)
class LiveWindow:
    """One window of a live run with everything that happened in it."""

    row: WindowRecord
    until_s: float
    """When it ended, or until when anything is known of it."""
    tenants: Mapping[str, Counted]
    rows: Mapping[str, TenantWindowRecord]
    """Empty while the window has not ended."""

    @property
    def ended(self) -> bool:
        """Whether it is over and judged."""
        return self.row.ended_s is not None

    @cached_property
    def planned(self) -> tuple[tuple[Instance, ...], ...]:
        """Per slot; empty where nothing was planned."""
        return planned_slots(self.row.plan)

    @property
    def whole(self) -> Counted:
        """All tenants together."""
        return sum(self.tenants.values(), NOTHING)

    def holds(self, at_s: float) -> bool:
        """Whether that moment lies in it."""
        return self.row.began_s <= at_s < self.until_s


@dataclass(frozen=True)
class LiveRun:
    """A run's records by window and tenant."""

    records: RunRecords
    tenants: tuple[str, ...]
    windows: tuple[LiveWindow, ...]
    window_s: float
    slot_s: float
    zero_s: float
    """When the first window began: moments are told from here."""

    @property
    def totals(self) -> dict[str, Counted]:
        """Every tenant over the windows that have ended."""
        return {
            name: sum((w.tenants[name] for w in self.windows if w.ended), NOTHING)
            for name in self.tenants
        }

    @property
    def whole(self) -> Counted:
        """All tenants over the windows that have ended."""
        return sum(self.totals.values(), NOTHING)

    @cached_property
    def starts(self) -> tuple[UnitRecord, ...]:
        """Units as they were when what their start took was known, by time."""
        found = [each for each in self.records.units if each.parts_s and each.tenant]
        return tuple(sorted(found, key=lambda each: each.from_s))

    def second_s(self, row: SecondRecord) -> float:
        """The moment at which a second begins."""
        return self.zero_s + row.second

    def window_at(self, at_s: float) -> LiveWindow | None:
        """The window in which a moment lies."""
        place = bisect_right(self.windows, at_s, key=lambda each: each.row.began_s) - 1
        window = self.windows[place] if place >= 0 else None
        return window if window is not None and window.holds(at_s) else None

    def events_of(self, window: LiveWindow) -> tuple[EventRecord, ...]:
        """What happened in a window."""
        return tuple(each for each in self.records.events if window.holds(each.at_s))


def live_run(records: RunRecords) -> LiveRun:
    """The records put together."""
    about = records.run.about
    window_s = float(about.get("window_s") or _WINDOW_S)
    zero_s = records.windows[0].began_s if records.windows else records.run.began_s
    tenants = _tenants(records)
    windows = tuple(_windows(records, tenants, window_s, zero_s))
    slot_s = float(about.get("slot_s") or _SLOT_S)
    return LiveRun(records, tenants, windows, window_s, slot_s, zero_s)


def _tenants(records: RunRecords) -> tuple[str, ...]:
    """In the run's own order where it says one, else by name."""
    found = {each.tenant for each in records.tenant_windows}
    found |= {each.tenant for each in records.seconds}
    found |= {each.tenant for each in records.units if each.tenant}
    said = [each for each in records.run.about.get("tenants", ()) if isinstance(each, str)]
    return tuple(dict.fromkeys((*said, *sorted(found))))


def _windows(
    records: RunRecords, tenants: tuple[str, ...], window_s: float, zero_s: float
) -> Iterator[LiveWindow]:
    rows: dict[int, dict[str, TenantWindowRecord]] = {}
    for each in records.tenant_windows:
        rows.setdefault(each.window, {})[each.tenant] = each
    seconds = sorted(records.seconds, key=lambda each: each.second)
    for number, row in enumerate(records.windows):
        following = records.windows[number + 1 : number + 2]
        due_s = min([row.began_s + window_s, *(each.began_s for each in following)])
        until_s = row.ended_s if row.ended_s is not None else due_s
        # a second belongs to the window in which its middle lies: clocks are not exact
        first, end = (
            bisect_left(seconds, at_s - zero_s - 0.5, key=lambda each: each.second)
            for at_s in (row.began_s, until_s)
        )
        own = rows.get(row.window, {})
        yield LiveWindow(
            row,
            until_s,
            {name: _counted(name, own.get(name), seconds[first:end]) for name in tenants},
            own,
        )


def _counted(tenant: str, row: TenantWindowRecord | None, seconds: list[SecondRecord]) -> Counted:
    """From the window's own row, or from its seconds while there is none."""
    if row is not None:
        return Counted(
            row.received,
            row.in_time,
            row.late,
            row.dropped,
            row.failed,
            row.goodput,
            row.while_reconfiguring,
        )
    own = [each for each in seconds if each.tenant == tenant]
    return Counted(
        sum(each.received for each in own),
        sum(each.in_time or 0 for each in own),
        sum(each.late for each in own),
        sum(each.dropped for each in own),
        sum(each.failed for each in own),
    )


def planned_slots(plan: Mapping[str, Any] | None) -> tuple[tuple[Instance, ...], ...]:
    """What a plan file's plan holds in every slot."""
    slots = (plan or {}).get("slots", ())
    return tuple(
        tuple(
            Instance(
                each["start"], each["gpcs"], Task.parse(each["task"]) if each["task"] else None
            )
            for each in slot["instances"]
        )
        for slot in slots
    )


def overheads_s(run: LiveRun) -> dict[str, float]:
    """Per tenant the mean of what a start took, from creation until it served."""
    found: dict[str, list[float]] = {}
    for each in run.starts:
        found.setdefault(each.tenant or "", []).append(start_s(each.parts_s))
    return {name: sum(values) / len(values) for name, values in found.items()}


def start_s(parts_s: Mapping[str, float]) -> float:
    """The whole of a start."""
    warm_s = parts_s.get("warm_s", parts_s.get("total", 0.0))
    return parts_s.get("create_s", 0.0) + warm_s
