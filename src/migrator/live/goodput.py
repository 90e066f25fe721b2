"""How accurate the answers of a live run are, by their labels, and what is known without them."""

from __future__ import annotations

from collections.abc import Mapping

from migrator.control.tenant_state import FEWEST_LABELS, TenantState
from migrator.core.evidence import Accuracy, Evidence, known_share
from migrator.serving.queue import Counted, Counts


class Goodput:
    """The accuracy of the answers in time, by window and tenant.

    Only labels of answers show it. An evaluation says how a model does on the samples that were
    uploaded, which may be easier than what clients ask.
    """

    def __init__(self, counts: Mapping[str, Counts], tenants: Mapping[str, TenantState]) -> None:
        self._counts, self._tenants = counts, tenants

    def accuracy(self, tenant: str) -> Accuracy:
        """The accuracy of the serving model: by the labels of this window's answers, else the one
        that plans rest on."""
        measured = self.measured(tenant)
        if measured is None:
            return self._tenants[tenant].model.accuracy
        return Accuracy(measured, Evidence.ANSWERS)

    def measured(self, tenant: str) -> float | None:
        """By the labels of this window's answers; None if they are few."""
        return measured_share(self._counts[tenant].window)


def measured_share(counted: Counted) -> float | None:
    """The correct part of the judged answers; None if those are few."""
    return counted.correct / counted.judged if counted.judged >= FEWEST_LABELS else None


def correct_of(counted: Counted) -> float | None:
    """The answers in time that are correct; None if too few of them are labelled to say so."""
    if not counted.in_time:
        return 0.0
    share = known_share(counted.correct, counted.judged, counted.in_time)
    return None if share is None else counted.in_time * share
