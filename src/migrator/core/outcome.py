"""The outcome of a run, simulated or as clients of a live one saw it; every request counts once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from migrator.core.problem import Charge, Holding
from migrator.core.scenario import LabelsAt


@dataclass(frozen=True)
class Tally:
    """Requests by outcome. Tallies can be added."""

    received: int = 0
    goodput: float = 0.0
    """Answered in time and correctly."""
    wrong: float = 0.0
    """Answered in time, but not correctly."""
    late: int = 0
    """Answered after the deadline."""
    dropped: int = 0
    """Dropped because the deadline could not be met."""
    queued: int = 0
    """Waiting at the end, minus those waiting at the beginning."""
    while_reconfiguring: int = 0
    """Late and dropped requests that arrived while an instance of their tenant was not warm."""
    failed: int = 0
    """Ended by an error."""
    unjudged: int = 0
    """Answered in time; whether correctly is unknown."""

    def __add__(self, other: Tally) -> Tally:
        return Tally(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(Tally)))

    @property
    def in_time(self) -> float:
        """Answered in time, correctly or not."""
        return self.goodput + self.wrong + self.unjudged

    @property
    def balance(self) -> float:
        """Requests received minus all outcomes. It is 0 unless a request was not counted."""
        ended = self.in_time + self.late + self.dropped + self.failed
        return self.received - (ended + self.queued)

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
        """The share of correct answers among the judged ones in time."""
        judged = self.goodput + self.wrong
        return self.goodput / judged if judged else 0.0

    @property
    def correct_share(self) -> float:
        """Correct answers over received, late ones included: accuracy as the paper defines it.

        Late answers count with the accuracy of those in time.
        """
        correct = self.goodput + self.late * self.accuracy
        return correct / self.received if self.received else 0.0


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
    received: tuple[int, ...]
    """Requests per slot."""
    expected: tuple[float, ...] | None
    """Per slot, the mean of the forecast at the window's start; None if there was no forecast."""
    forecast_by: str | None = None
    """The forecaster, and why it was selected; None if there was no forecast."""


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
        """The counts of all tenants."""
        return sum((each.tally for each in self.tenants), Tally())

    @property
    def reconfigurations(self) -> int:
        """Reconfigurations of all tenants."""
        return sum(each.reconfigurations for each in self.tenants)


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

    @property
    def tally(self) -> Tally:
        """The counts of all windows and tenants."""
        return sum((each.tally for each in self.windows), Tally())

    @property
    def tenants(self) -> dict[str, Tally]:
        """The counts of every tenant over all windows."""
        totals: dict[str, Tally] = {}
        for window in self.windows:
            for each in window.tenants:
                totals[each.tenant] = totals.get(each.tenant, Tally()) + each.tally
        return totals

    @property
    def tenant_reconfigurations(self) -> dict[str, int]:
        """Reconfigurations of every tenant over all windows."""
        totals: dict[str, int] = {}
        for window in self.windows:
            for each in window.tenants:
                totals[each.tenant] = totals.get(each.tenant, 0) + each.reconfigurations
        return totals

    @property
    def reconfigurations(self) -> int:
        """Reconfigurations in all windows."""
        return sum(each.reconfigurations for each in self.windows)

    @property
    def plan_s(self) -> float:
        """Wall time spent planning."""
        return sum(each.plan_s for each in self.windows)


@dataclass(frozen=True)
class Latencies:
    """Latencies of answered requests, from their due time to the answer."""

    p50_s: float
    p95_s: float
    p99_s: float


@dataclass(frozen=True)
class ClientTally:
    """Requests by outcome, as their sender observed it."""

    sent: int
    goodput: int
    """Answered in time and correctly."""
    wrong: int
    """Answered in time, but not correctly."""
    late: int
    """Answered after the deadline."""
    dropped: int
    """Dropped by the server because the deadline could not be met."""
    refused: Mapping[str, int]
    """Refused at once, by reason."""
    failed: Mapping[str, int]
    """Neither answered nor properly refused, by reason."""
    latencies: Latencies | None
    """None if no request was answered."""
    versions: Mapping[str, int]
    """Answers by model version."""
    labels_stored: int
    """Number of sent labels that the server stored."""
    labels_lost: int

    @property
    def in_time(self) -> int:
        """Answered in time, correctly or not."""
        return self.goodput + self.wrong

    @property
    def balance(self) -> int:
        """Requests sent minus all outcomes. It is 0 unless a request was not counted."""
        gone = sum(self.refused.values()) + sum(self.failed.values())
        return self.sent - (self.in_time + self.late + self.dropped + gone)

    @property
    def goodput_share(self) -> float:
        """Goodput over sent."""
        return self.goodput / self.sent if self.sent else 0.0

    @property
    def slo_attainment(self) -> float:
        """Answered in time over sent."""
        return self.in_time / self.sent if self.sent else 0.0

    @property
    def accuracy(self) -> float:
        """The share of correct answers among those in time."""
        return self.goodput / self.in_time if self.in_time else 0.0


@dataclass(frozen=True)
class ClientSeconds:
    """Counts of one tenant by second since the start of the run, by the due time of requests."""

    sent: tuple[int, ...]
    in_time: tuple[int, ...]
    goodput: tuple[int, ...]


@dataclass(frozen=True)
class ClientWindow:
    """One window as clients observed it."""

    window: int
    """The server's window number."""
    tenants: Mapping[str, ClientTally]
    whole: ClientTally


@dataclass(frozen=True)
class LoadOutcome:
    """The outcome of a whole load."""

    scenario: str
    url: str
    seed: int
    speed: float
    window_s: float
    windows: tuple[ClientWindow, ...]
    tenants: Mapping[str, ClientTally]
    whole: ClientTally
    seconds: Mapping[str, ClientSeconds]
    lag_p99_s: float
    """Delay between due time and sending; large if this machine is too slow."""
    ended: str | None
    """Why it ended early; None if it did not."""
    labels_at: str = "feedback"
    """When labels were sent: as `feedback` after answers, or at the `start` of their window."""
