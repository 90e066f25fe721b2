"""The outcome of a simulated run: what experiments compare.

A run that was recorded carries its records, from which pages and files are made.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from migrator.core.fairness import Fairness, fairness
from migrator.core.not_retrained import NotRetrained
from migrator.core.outcome import Tally
from migrator.core.preferences import Preferences
from migrator.core.problem import Charge, Holding
from migrator.core.scenario import LabelsAt
from migrator.records.rows import RunRecords


@dataclass(frozen=True)
class TenantOutcome:
    """One tenant in one window."""

    tenant: str
    tally: Tally
    reconfigurations: int
    """Instances or shares that were new to it."""
    accuracy_before: float
    """Accuracy of its model at the window's start, on this window's data."""
    retrained_s: float | None
    """Seconds into the window at which a retrained model began to serve; None if none did."""
    accuracy_after: float
    forecast_by: str | None = None
    """The forecaster, and why it was selected; None if there was no forecast."""
    not_retrained: NotRetrained | None = None
    """Why no retraining ran in this window; None if one did."""


@dataclass(frozen=True)
class PlanGap:
    """How far a plan is at most from the best one."""

    slot: int
    """The slot of the window at which the plan was made."""
    charge: Charge
    gap: float
    """Certified gap, relative to the plan's objective; infinite if no bound is known."""


@dataclass(frozen=True)
class WindowOutcome:
    """One window of a run."""

    window: int
    tenants: tuple[TenantOutcome, ...]
    slots: tuple[tuple[Holding, ...], ...]
    """Of every slot: the layout that was decided."""
    plan_s: float
    """Wall time the policy took to decide."""
    predicted: float | None
    """Goodput of the policy's plan on its forecast, with the gaps that no order of steps avoids;
    None if the policy does not plan."""
    fluid: float | None
    """Goodput of the same plan in the planner's fluid model with the requests that arrived."""
    plans: tuple[PlanGap, ...] = ()
    """Every plan of the window and, after slot 0, of the rest of it. Inference planned again
    around the same retrainings has no certified gap and is not listed."""

    @property
    def tally(self) -> Tally:
        return sum((tenant.tally for tenant in self.tenants), Tally())

    @property
    def reconfigurations(self) -> int:
        return sum(tenant.reconfigurations for tenant in self.tenants)


@dataclass(frozen=True)
class RunOutcome:
    """A policy's run of a scenario."""

    scenario: str
    policy: str
    forecaster: str
    seed: int
    windows: tuple[WindowOutcome, ...]
    labels: LabelsAt = LabelsAt.START
    """When labels arrived, on which the accuracies rest."""
    records: RunRecords | None = None
    """What was recorded, for pages and files; None unless that was asked for."""
    preferences: Preferences = field(default_factory=Preferences)
    """Weights and floors of the tenants."""

    @property
    def tally(self) -> Tally:
        return sum((window.tally for window in self.windows), Tally())

    @property
    def tenants(self) -> dict[str, Tally]:
        """The counts of every tenant over all windows."""
        totals: dict[str, Tally] = {}
        for window in self.windows:
            for tenant in window.tenants:
                totals[tenant.tenant] = totals.get(tenant.tenant, Tally()) + tenant.tally
        return totals

    @property
    def fairness(self) -> Fairness:
        """Between the tenants, over all windows."""
        return fairness(self.tenants)

    @property
    def tenant_reconfigurations(self) -> dict[str, int]:
        totals: dict[str, int] = {}
        for window in self.windows:
            for tenant in window.tenants:
                totals[tenant.tenant] = totals.get(tenant.tenant, 0) + tenant.reconfigurations
        return totals

    @property
    def reconfigurations(self) -> int:
        return sum(window.reconfigurations for window in self.windows)

    @property
    def plan_s(self) -> float:
        """Wall time spent planning."""
        return sum(window.plan_s for window in self.windows)
