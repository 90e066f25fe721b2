"""When a tenant is retrained besides the window's beginning: enough new labels, or lost accuracy.

Both limits are keys of the scenario. A retraining that they request is planned as one that an
operator asks for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import sqrt
from typing import Any, Protocol

from migrator.control.retraining import Phase
from migrator.control.retraining_plans import RetrainingPlans
from migrator.control.tenant_state import FEWEST_LABELS, TenantState
from migrator.control.window_clock import WindowClock

_ERRORS = 2.0
"""Standard errors by which the accuracy must have fallen: less may be chance."""


class JudgedLabels(Protocol):
    """The labels whose answers are known."""

    def judged(self, tenant: str, window: int) -> tuple[int, int]:
        """Labels of a window whose answer is known, and how many of these answers were wrong."""
        ...


@dataclass
class _RecentAnswers:
    """The answers of a version in a window, since its last retraining was requested."""

    version: Any
    window: int
    judged: int
    wrong: int
    """Counts of the window that belong to what was before."""
    reference: float | None
    """The accuracy from which it falls; None until it is known."""


class RetrainingTriggers:
    """Finds tenants whose limits are reached."""

    def __init__(
        self,
        tenants: Mapping[str, TenantState],
        clock: WindowClock,
        labels: JudgedLabels,
        plans: RetrainingPlans,
    ) -> None:
        self._tenants, self._clock, self._labels, self._plans = tenants, clock, labels, plans
        self._watches: dict[str, _RecentAnswers] = {}

    def due(self) -> Iterator[tuple[TenantState, str]]:
        """Yield the tenants to retrain now, each with the reason."""
        for tenant in self._tenants.values():
            fallen = self._fallen(tenant)
            if tenant.drained or _is_on_its_way(tenant):
                continue
            new = self._plans.new_labels(tenant)
            if new < tenant.labels_needed:
                continue
            limit = tenant.training.after_labels
            reason = f"{new} new labels" if limit is not None and new >= limit else fallen
            if reason:
                del self._watches[tenant.name]  # answers from now on count
                yield tenant, reason

    def _fallen(self, tenant: TenantState) -> str:
        """How far the accuracy has fallen, if that is the limit or more; else empty."""
        watch, number = self._watches.get(tenant.name), self._clock.number
        judged, wrong = self._labels.judged(tenant.name, number)
        if watch is None or watch.version is not tenant.version:
            accuracy = None if tenant.version is None else tenant.version.accuracy
            # what a window before had says nothing about another version
            watch = _RecentAnswers(tenant.version, number, judged, wrong, accuracy)
        elif watch.window != number:
            watch = _RecentAnswers(watch.version, number, 0, 0, watch.reference)
        self._watches[tenant.name] = watch
        limit, answers = tenant.training.after_drop, judged - watch.judged
        if limit is None or answers < FEWEST_LABELS:
            return ""
        accuracy = 1 - (wrong - watch.wrong) / answers
        if watch.reference is None:
            watch.reference = accuracy
        drop = watch.reference - accuracy
        error = sqrt(max(accuracy * (1 - accuracy), 1 / answers) / answers)
        if drop < max(limit, _ERRORS * error):
            return ""
        return f"its accuracy fell from {watch.reference:.1%} to {accuracy:.1%}"


def _is_on_its_way(tenant: TenantState) -> bool:
    """Whether a retraining runs, or a requested one waits."""
    job = tenant.retraining
    runs = job is not None and job.phase in (Phase.RUNNING, Phase.CANCELLED)
    return runs or tenant.retraining_requested
