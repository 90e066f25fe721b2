"""Before a window ends, what retraining on its labels would bring is tried out."""

from __future__ import annotations

from collections.abc import Coroutine, Iterator, Mapping
from typing import Any

from migrator.runtime.hands import Hands
from migrator.runtime.labels import Labels
from migrator.runtime.learning import Learning, enough
from migrator.runtime.tenant_run import TenantRun
from migrator.runtime.window_clock import WindowClock

_AHEAD, _MOST_AHEAD_S = 0.35, 30.0
"""So much of a window before its end the next retraining is estimated, and not sooner."""


def unlearned(labels: Labels, tenant: TenantRun, before: int) -> int:
    """Labels from before a window that the tenant's model has not learned yet."""
    windows = range(tenant.since, before)
    return sum(labels.counts(tenant.name, each).labelled for each in windows)


class Estimates:
    """Once in every window, for every tenant."""

    def __init__(
        self,
        tenants: Mapping[str, TenantRun],
        clock: WindowClock,
        labels: Labels,
        learning: Learning,
        hands: Hands | None,
    ) -> None:
        """`hands`: who knows the tenants' instances; None: estimates are made on the host."""
        self._tenants, self._clock, self._labels = tenants, clock, labels
        self._learning, self._hands = learning, hands
        self._made: int | None = None

    def due(self) -> Iterator[Coroutine[Any, Any, None]]:
        """Those that are to be made now; late is better than never."""
        clock = self._clock
        ahead_s = min(_MOST_AHEAD_S, _AHEAD * clock.window_s)
        if self._made == clock.number or clock.into_s < clock.window_s - ahead_s:
            return
        self._made = clock.number
        for name, tenant in self._tenants.items():
            if tenant.planned and enough(unlearned(self._labels, tenant, clock.number + 1)):
                yield self._learning.estimate(name, clock.number, self._beside(name))

    def _beside(self, tenant: str) -> Mapping[str, str] | None:
        """An instance of the tenant for its estimate, which takes seconds."""
        serving = self._hands.workers_of(tenant) if self._hands is not None else []
        return serving[0].assignment.environment if serving else None
