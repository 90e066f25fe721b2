"""What came of a run: every request counted once, per tenant, window and in all."""

from __future__ import annotations

from dataclasses import dataclass, fields

from migrator.core.share import Holding


@dataclass(frozen=True)
class Tally:
    """Requests by what became of them; sums of tallies are tallies."""

    received: int = 0
    goodput: float = 0.0
    """Answered in time and correctly."""
    wrong: float = 0.0
    """Answered in time, but not correctly."""
    late: int = 0
    """Answered after the deadline."""
    dropped: int = 0
    """Given up because the deadline could no longer be met."""
    queued: int = 0
    """Still waiting at the end, less those that waited at the beginning."""
    while_reconfiguring: int = 0
    """Of the late and dropped: those that came while an instance of theirs was not yet warm."""

    def __add__(self, other: Tally) -> Tally:
        return Tally(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(Tally)))

    @property
    def in_time(self) -> float:
        """Answered in time, correctly or not."""
        return self.goodput + self.wrong

    @property
    def balance(self) -> float:
        """Received less everything that became of it: 0, or a request was lost from the books."""
        return self.received - (self.in_time + self.late + self.dropped + self.queued)

    @property
    def goodput_share(self) -> float:
        """Goodput over received."""
        return self.goodput / self.received if self.received else 0.0

    @property
    def slo_attainment(self) -> float:
        """Answered in time over received."""
        return self.in_time / self.received if self.received else 0.0

    @property
    def accuracy(self) -> float:
        """Correct among what was answered in time."""
        return self.goodput / self.in_time if self.in_time else 0.0


@dataclass(frozen=True)
class TenantOutcome:
    """One tenant in one window."""

    tenant: str
    tally: Tally
    reconfigurations: int
    """Instances or shares that were new to it."""
    accuracy_before: float
    """Of its model at the window's start, on this window's data."""
    retrained_s: float | None
    """Seconds into the window at which a retrained model took over; None: none did."""
    accuracy_after: float
    received: tuple[int, ...]
    """Per slot, what came."""
    expected: tuple[float, ...] | None
    """Per slot, the mean of what was forecast at the window's start; None: nobody forecast."""
    forecast_by: str | None = None
    """Who forecast, and why where that was chosen; None: nobody did."""


@dataclass(frozen=True)
class WindowOutcome:
    """One window of a run."""

    window: int
    tenants: tuple[TenantOutcome, ...]
    slots: tuple[tuple[Holding, ...], ...]
    """What was held in every slot."""
    plan_s: float
    """Wall time the policy took to decide."""
    predicted: float | None
    """Goodput the policy's plan promised on its forecast; None: it promised nothing."""
    fluid: float | None
    """Goodput of the same plan in the planner's fluid model on what really came."""

    @property
    def tally(self) -> Tally:
        """All tenants together."""
        return sum((each.tally for each in self.tenants), Tally())

    @property
    def reconfigurations(self) -> int:
        """All tenants together."""
        return sum(each.reconfigurations for each in self.tenants)


@dataclass(frozen=True)
class RunOutcome:
    """A policy's run of a scenario."""

    scenario: str
    policy: str
    forecaster: str
    seed: int
    windows: tuple[WindowOutcome, ...]

    @property
    def tally(self) -> Tally:
        """All windows and tenants together."""
        return sum((each.tally for each in self.windows), Tally())

    @property
    def tenants(self) -> dict[str, Tally]:
        """Every tenant over all windows."""
        totals: dict[str, Tally] = {}
        for window in self.windows:
            for each in window.tenants:
                totals[each.tenant] = totals.get(each.tenant, Tally()) + each.tally
        return totals

    @property
    def tenant_reconfigurations(self) -> dict[str, int]:
        """Every tenant over all windows."""
        totals: dict[str, int] = {}
        for window in self.windows:
            for each in window.tenants:
                totals[each.tenant] = totals.get(each.tenant, 0) + each.reconfigurations
        return totals

    @property
    def reconfigurations(self) -> int:
        """All windows together."""
        return sum(each.reconfigurations for each in self.windows)

    @property
    def plan_s(self) -> float:
        """Wall time spent planning."""
        return sum(each.plan_s for each in self.windows)
