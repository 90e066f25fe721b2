"""Ekya (NSDI'22): MPS, weighs retraining against inference, ignores arrivals within a window.

The thief scheduler: from equal shares, every job in turn steals from every other, a tenth of the
GPU at a time, as long as the accuracy of all tenants over the window rises. In every step each
tenant has the retraining configuration with the highest accuracy over the window on its share, or
none. It runs at the window's start and whenever a retraining ends; a running retraining is never
resized.

`ekya` maximises the mean accuracy of the tenants, as in its paper; `ekya-by-requests` weights each
tenant by the requests of its last window, as goodput does.

Our adaptations, where the paper's video analytics and our requests differ:
- A tenant's accuracy over the window is the share of its requests that it can serve, times the
  time-average of its model's accuracy. There is one way to serve, hence no choice of frame rate or
  resolution, and no accuracy floor.
- The rate is the `QUANTILE` of the last window's slots, and what a share serves is what it serves
  beside neighbours that are busy for half of the time (`mps_workers.BUSY`), by the measured
  interference.
- The retraining configurations are those of the scenario, with durations and expected accuracies
  from the observation, in place of 5, 15 and 30 epochs that it micro-profiles itself: all policies
  get the same estimates. One is skipped if it would outlast the window, and none is chosen if none
  raises the average; of equally good ones the first is. The start of the process counts as part of
  it.
- The requests that weight tenants are the mean of the last window's; all count the same while none
  have been seen.
- Before a rate has been observed, a tenant is assumed to need what an equal share serves.
- With the runtime's shares the thief's step is the smallest of them (12% of an H200). If there are
  fewer steps than jobs, retrainings begin with nothing.
- With more than ten jobs an equal share is below the step of the thief, and no job steals; the
  original has the same step.
- Inference always keeps a share. The share of a retraining that is not worth starting goes to its
  tenant's inference, as does the share of a finished one.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from migrator.core.catalogue import Board
from migrator.core.problem import Kind, Share, Task
from migrator.policies import mps_workers
from migrator.policies.policy import (
    Decision,
    Observation,
    Policy,
    RetrainingChoice,
    Sharing,
    TenantView,
    last_window,
    mean_rate_rps,
)

STEP_PERCENT = 10.0
"""Percent of the GPU that a thief steals at a time."""
QUANTILE = 0.5
"""Of the requests per slot in the last window: the rate that a share is to serve. The median was
chosen among 0.5 to 0.95 in this policy's favour, in trials at loads 0.6 and 0.8."""
_TINY = 1e-9
_Shares = dict[Task, float]
"""Percent by job, without running jobs, which cannot be resized."""


class Ekya(Policy):
    """The thief scheduler."""

    name = "ekya"
    summary = "Ekya: MPS shares by thief scheduling at window start and retraining completion"
    sharing = Sharing.MPS
    estimates = True
    estimates_always = True
    """Its micro-profiling runs in every window."""

    def decide(self, observation: Observation) -> Decision:
        """The shares until the window or a retraining ends."""
        running = mps_workers.running_shares(observation)
        jobs = [Task(view.name, Kind.INFERENCE) for view in observation.tenants]
        jobs += [
            Task(view.name, Kind.RETRAINING)
            for view in observation.tenants
            if view.retraining and view.name not in running
        ]
        equal = _equal(jobs, 100 - sum(share.percent for share in running.values()), observation)
        tenants = [
            _WeighedTenant(
                view,
                observation,
                _rate_rps(observation, view),
                equal[Task(view.name, Kind.INFERENCE)],
                running.get(view.name),
                weight,
            )
            for view, weight in zip(observation.tenants, self._weights(observation), strict=True)
        ]
        board, limits = observation.board, observation.limits
        shares = _steal(
            equal,
            tenants,
            mps_workers.step_percent(board, limits, STEP_PERCENT),
            limits.least_percent(board),
        )
        held = (_held(tenant, shares, board) for tenant in tenants)
        chosen = {tenant.view.name: tenant.retrained(shares)[1] for tenant in tenants}
        return Decision(
            (tuple(share for some in held for share in some),),
            chosen={name: choice.configuration for name, choice in chosen.items() if choice},
        )

    def _weights(self, observation: Observation) -> list[float]:
        """The weight of each tenant's accuracy."""
        return [1.0] * len(observation.tenants)


class EkyaByRequests(Ekya):
    """The same for the accuracy of all requests."""

    name = "ekya-by-requests"
    summary = "Ekya that maximises the accuracy of all requests instead of the tenants' mean"

    def _weights(self, observation: Observation) -> list[float]:
        """The requests of each tenant in the last window, over their mean."""
        views = observation.tenants
        rates_rps = [mean_rate_rps(observation, view) or 0.0 for view in views]
        if not any(rates_rps):
            return super()._weights(observation)
        return [len(views) * rate_rps / sum(rates_rps) for rate_rps in rates_rps]


def _equal(jobs: list[Task], percent: float, observation: Observation) -> _Shares:
    """Equal shares; if they are below the smallest, retrainings begin with what inference
    leaves."""
    board, limits = observation.board, observation.limits
    least = limits.least_percent(board)
    serving = [job for job in jobs if job.kind is Kind.INFERENCE]
    if percent / len(jobs) < least - _TINY:
        left = max(0.0, percent - len(serving) * least)
        training = mps_workers.equal_parts(
            [job.tenant for job in jobs[len(serving) :]], left, board, limits
        )
        parts = {Task(name, Kind.RETRAINING): share for name, share in training.items()}
        return {**dict.fromkeys(serving, least), **parts}
    keys = [str(job) for job in jobs]
    shares = mps_workers.equal_parts(keys, percent, board, limits)
    return {job: shares[str(job)] for job in jobs}


def _rate_rps(observation: Observation, view: TenantView) -> float | None:
    """The quantile of the last window's requests per second; None if nothing has been observed."""
    recent = last_window(observation, view)
    return float(np.quantile(recent, QUANTILE)) / observation.slot_s if len(recent) else None


@dataclass(frozen=True)
class _WeighedTenant:
    """One tenant as the scheduler weighs it."""

    view: TenantView
    observation: Observation
    rate_rps: float | None
    equal_percent: float
    running: Share | None
    weight: float
    known_rps: dict[float, float] = field(default_factory=dict)

    def accuracy(self, shares: _Shares) -> float:
        """The accuracy over the rest of the window with these shares, over all requests."""
        serving = shares[Task(self.view.name, Kind.INFERENCE)]
        return self._keeps_up(serving) * self.retrained(shares)[0]

    def retrained(self, shares: _Shares) -> tuple[float, RetrainingChoice | None]:
        """The time-average of the model's accuracy, and the configuration in which it is retrained;
        None if none raises it."""
        best: tuple[float, RetrainingChoice | None] = self.view.accuracy, None
        state = self.view.retraining
        task = Task(self.view.name, Kind.RETRAINING)
        percent = self.running.percent if self.running else self.trains_on(shares.get(task, 0.0))
        if state is None or percent < _TINY:
            return best
        for choice in state.choices:
            average = self._average(choice, state.done, percent)
            if average > best[0]:
                best = average, choice
        return best

    def _average(self, choice: RetrainingChoice, done: float, percent: float) -> float:
        """The time-average of the model's accuracy; 0 if the retraining outlasts the window."""
        whole_s = choice.seconds.at(mps_workers.sms_of(self.observation.board, percent))
        needs_s = (1 - done) * whole_s + (0.0 if self.running else self.view.overhead_s)
        left_s = self.observation.slots_left * self.observation.slot_s
        if needs_s > left_s:
            return 0.0
        part = needs_s / left_s
        return part * self.view.accuracy + (1 - part) * choice.accuracy_post

    def trains_on(self, percent: float) -> float:
        """The share of a retraining process within `percent`."""
        seen = self.observation
        return mps_workers.process_percent(seen.board, seen.limits, percent)

    def _keeps_up(self, percent: float) -> float:
        """The part of its requests that a share answers in time."""
        able_rps = self._capability_rps(percent)
        rate_rps = self.rate_rps
        if rate_rps is None:
            rate_rps = self._capability_rps(self.equal_percent)
        return min(1.0, able_rps / rate_rps) if rate_rps > 0 else float(able_rps > 0)

    def _capability_rps(self, percent: float) -> float:
        if percent not in self.known_rps:
            seen = self.observation
            slowed, slowdown = mps_workers.beside_busy(self.view.service, percent, mps_workers.BUSY)
            able_rps = mps_workers.capability_rps(slowed, seen.board, percent, seen.limits)
            self.known_rps[percent] = able_rps / slowdown
        return self.known_rps[percent]


def _steal(shares: _Shares, tenants: list[_WeighedTenant], step: float, least: float) -> _Shares:
    """Let every job steal from every other while that raises the accuracy."""
    best = _mean_accuracy(shares, tenants)
    for thief in shares:
        for victim in shares:
            if thief != victim:
                floor = least if victim.kind is Kind.INFERENCE else 0.0
                shares, best = _steal_from(victim, thief, shares, best, tenants, step, floor)
    return shares


def _steal_from(
    victim: Task,
    thief: Task,
    shares: _Shares,
    best: float,
    tenants: list[_WeighedTenant],
    step: float,
    floor: float,
) -> tuple[_Shares, float]:
    """`floor`: what the victim keeps."""
    trial = dict(shares)
    while True:
        trial[victim] = round(trial[victim] - step, 9)
        trial[thief] = round(trial[thief] + step, 9)
        accuracy = _mean_accuracy(trial, tenants) if trial[victim] >= floor - 1e-6 else 0.0
        if accuracy <= best + _TINY:
            return shares, best
        shares, best = dict(trial), accuracy


def _mean_accuracy(shares: _Shares, tenants: list[_WeighedTenant]) -> float:
    """The weighted mean over all tenants."""
    return sum(tenant.weight * tenant.accuracy(shares) for tenant in tenants) / len(tenants)


def _held(tenant: _WeighedTenant, shares: _Shares, board: Board) -> tuple[Share, ...]:
    """The shares of the tenant's two tasks."""
    view = tenant.view
    serving = shares[Task(view.name, Kind.INFERENCE)]
    limits = tenant.observation.limits

    def served_on(percent: float) -> tuple[Share, ...]:
        slowed, _ = mps_workers.beside_busy(view.service, percent, mps_workers.BUSY)
        return mps_workers.serving(slowed, board, percent, limits)

    if tenant.running:
        return (*served_on(serving), tenant.running)
    training = shares.get(Task(view.name, Kind.RETRAINING), 0.0)
    if tenant.retrained(shares)[1] is None:
        return served_on(serving + training)
    trained = tenant.trains_on(training)
    return (*served_on(serving + training - trained), mps_workers.training(view.name, trained))


POLICIES = (Ekya(), EkyaByRequests())
