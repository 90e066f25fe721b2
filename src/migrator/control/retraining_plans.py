"""The retrainings of every window, from the labels that are not learned yet.

It decides what every tenant could learn, and which tenants are estimated, when, and on which
instance.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from migrator.control.controller import Controller
from migrator.control.tenant_state import FEWEST_LABELS, TenantState, TrainingRoom
from migrator.control.window_clock import WindowClock
from migrator.core.problem import Holding, Kind, Task
from migrator.policies.layouts import least_gpcs, training_sizes_beside
from migrator.policies.policy import Sharing

_AHEAD, _MOST_AHEAD_S = 0.35, 30.0
"""Share of a window before its end at which the next retraining is estimated, and its maximum in
seconds."""
_MARGIN_S, _MARGIN = 1.0, 0.25
"""An estimate on an instance ends this many seconds before the window does, or this share of the
remaining time if that is less. The next plan may destroy the instance, and CUDA takes a moment to
release it."""
_SETTLED_S = 1.0
"""Seconds without another label after which those for the first window are complete."""


@dataclass(frozen=True)
class Estimate:
    """Estimate the next retraining of a tenant, from the labels up to this window."""

    tenant: str
    window: int
    most_samples: int
    instance: Holding | None = None
    """An instance that serves the tenant; None: the host."""
    limit_s: float | None = None
    """Seconds after which it must have ended, because the instance may be destroyed."""


class LabelSource(Protocol):
    """The labels of all tenants."""

    def kept(self, tenant: str, first: int, before: int) -> int:
        """Number of stored labels of the windows from `first` to `before` - 1."""
        ...

    def accuracy(self, tenant: str, window: int, fewest: int, /) -> float | None:
        """Accuracy by the labels of a window; None if there are less than `fewest`."""
        ...


class RetrainingPlans:
    """Plans and estimates retrainings, once per window and tenant."""

    def __init__(
        self,
        tenants: Mapping[str, TenantState],
        clock: WindowClock,
        labels: LabelSource,
        controller: Controller,
        *,
        on_instances: bool,
    ) -> None:
        """`on_instances`: estimates use the tenants' instances rather than the host."""
        self._tenants, self._clock, self._labels = tenants, clock, labels
        self._controller, self._on_instances = controller, on_instances
        self._estimated: dict[str, int] = {}
        """The window in which the last estimate of each tenant was due."""
        self._arrived: dict[str, tuple[int, float]] = {}
        """Labels of each tenant before the first window, and since when there were that many."""

    def begin_window(self) -> None:
        """Plan what every tenant can learn in the window that begins."""
        for tenant in self._tenants.values():
            # a few late labels, perhaps of an old version, say nothing about the model
            window = self._clock.number - 1
            self.begin(tenant, self._labels.accuracy(tenant.name, window, FEWEST_LABELS))

    def end_window(self) -> None:
        """End a window. Where no retraining could be started, none is missed."""
        for tenant in self._tenants.values():
            if self._controller.executor.may_retrain(tenant.name):
                tenant.end_window()

    def begin(self, tenant: TenantState, accuracy: float | None) -> None:
        """Plan what one tenant can learn in this window. `accuracy`: by its last labels."""
        number = self._clock.number
        labelled = self._labels.kept(tenant.name, min(tenant.model.since, number), number)
        tenant.begin_window(number, labelled, accuracy, self.room())

    def new_labels(self, tenant: TenantState) -> int:
        """Labels up to now that its model has not learned."""
        return tenant.model.new_labels(self._labelled_until_now(tenant))

    def request(self, tenant: TenantState, reason: str) -> None:
        """Plan a retraining of a tenant at once, on its labels up to now, and ask the policy.

        `reason`: as the record has it.
        """
        number = self._clock.number
        of_window = self._labels.kept(tenant.name, number, number + 1)
        tenant.retrain_now(number, self._labelled_until_now(tenant), of_window, self.room())
        self._controller.request_retraining(tenant.name, reason)

    def _labelled_until_now(self, tenant: TenantState) -> int:
        number = self._clock.number
        return self._labels.kept(tenant.name, min(tenant.model.since, number), number + 1)

    def due(self) -> Iterator[Estimate]:
        """Yield the estimates that are due, once per window and tenant, unless earlier retrainings
        predict the next one and the policy does not estimate always. A late estimate is better than
        none, so one without memory waits.

        If a retraining of the tenant runs, its estimate waits for the new model for up to half of
        the time: one with the old model does not say how accurate the new one is on the next data.
        """
        if not self._controller.estimates:
            return
        clock = self._clock
        left_s = clock.window_s - clock.into_s
        ahead_s = min(_MOST_AHEAD_S, _AHEAD * clock.window_s)
        if left_s > ahead_s:
            return
        for name, tenant in self._tenants.items():
            # estimates are asked for once per slot
            waits = tenant.is_retraining and left_s - clock.slot_s >= 0.5 * ahead_s
            if waits or self._estimated.get(name) == clock.number:
                continue
            labelled = self._labels.kept(name, tenant.model.since, clock.number + 1)
            wanted = self._controller.estimates_always or tenant.wants_estimate
            able = tenant.planned and labelled >= FEWEST_LABELS and self._has_room(tenant)
            if not (wanted and able):
                self._estimated[name] = clock.number
                continue
            admitted, instance = self._admitted(tenant)
            if not admitted:
                continue  # there may be memory for it in the next slot
            self._estimated[name] = clock.number
            most = tenant.most_samples(self.room())
            limit_s = left_s - min(_MARGIN_S, _MARGIN * left_s) if instance else None
            yield Estimate(name, clock.number, most, instance, limit_s)

    def due_before_first_window(self) -> Iterator[Estimate]:
        """Yield the estimates for the first window, once the samples for it have arrived."""
        clock, now_s = self._clock, self._clock.now_s()
        for name, tenant in self._tenants.items():
            labelled = self._labels.kept(name, tenant.model.since, clock.number)
            before, since_s = self._arrived.get(name, (0, now_s))
            if labelled != before:
                since_s = now_s
            self._arrived[name] = labelled, since_s
            if labelled < FEWEST_LABELS or now_s - since_s < _SETTLED_S:
                continue
            if self._controller.estimates and tenant.planned and self._has_room(tenant):
                admitted, instance = self._admitted(tenant)
                if not admitted:
                    continue
                most = tenant.most_samples(self.room())
                yield Estimate(name, clock.number - 1, most, instance)
            self._arrived[name] = labelled, math.inf  # once, unless more arrive

    def room(self) -> TrainingRoom:
        """Limits of a retraining of the tenants that are planned."""
        planned = [tenant for tenant in self._tenants.values() if tenant.planned]
        return TrainingRoom.of(self._controller.planning.board, planned, self._clock.window_s)

    def _has_room(self, tenant: TenantState) -> bool:
        """Whether the tenant can be retrained beside the smallest instances of all tenants."""
        if self._controller.sharing is not Sharing.MIG:
            return True
        board = self._controller.planning.board
        planned = [tenant.service for tenant in self._tenants.values() if tenant.planned]
        least = [least_gpcs(service, board) for service in planned]
        return bool(training_sizes_beside(tenant.service, least, board))

    def _admitted(self, tenant: TenantState) -> tuple[bool, Holding | None]:
        """Whether an estimate may begin, and the instance that serves the tenant and has the memory
        for it. Beside it an estimate takes seconds; None: on the host."""
        if not self._on_instances:
            return True, None
        executor, task = self._controller.executor, Task(tenant.name, Kind.INFERENCE)
        places = [unit.bare for unit in executor.units if unit.does(task)]
        for place in places:
            if executor.admit_estimate(tenant.service, place):
                return True, place
        if places:
            tenant.model.fail_estimate("no instance of the tenant has the memory for it")
        return not places, None
