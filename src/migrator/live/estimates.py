"""The retrainings of a window: planned from the labels that are not learned yet, and estimated
before the window begins."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator, Mapping
from typing import Any

from migrator.control.tenant_state import FEWEST_LABELS, TenantState, TrainingRoom
from migrator.control.window_clock import WindowClock
from migrator.core.catalogue import Board
from migrator.live.actuator import Actuator
from migrator.live.labels import Labels
from migrator.live.learning import Learning, enough

_AHEAD, _MOST_AHEAD_S = 0.35, 30.0
"""Share of a window before its end at which the next retraining is estimated, and its maximum in
seconds."""
_MARGIN_S, _MARGIN = 1.0, 0.25
"""An estimate on an instance ends this many seconds before the window does, or this share of the
remaining time if that is less. The next plan may destroy the instance, and CUDA takes a moment to
release it."""

_log = logging.getLogger(__name__)


class Estimates:
    """Retrainings and their estimates, once per window and tenant."""

    def __init__(
        self,
        tenants: Mapping[str, TenantState],
        clock: WindowClock,
        labels: Labels,
        learning: Learning,
        hands: Actuator | None,
        board: Callable[[], Board],
    ) -> None:
        """`hands`: gives the instances of tenants; None: estimates run on the host.

        `board`: returns the part of the board that we may divide, which changes.
        """
        self._tenants, self._clock, self._labels = tenants, clock, labels
        self._learning, self._hands, self._board = learning, hands, board
        self._made: int | None = None

    def begin_window(self) -> None:
        """Plan what every tenant can learn in the window that begins."""
        for tenant in self._tenants.values():
            last = self._labels.counts(tenant.name, self._clock.number - 1)
            # a few late labels, perhaps of an old version, say nothing about the model
            right = 1 - last.wrong / last.judged if last.judged >= FEWEST_LABELS else None
            self.begin(tenant, right)

    def end_window(self, *, paused: bool) -> None:
        """End a window. While paused no retraining could run, so none counts as missed."""
        for tenant in self._tenants.values():
            if not paused:
                tenant.end_window()

    def begin(self, tenant: TenantState, accuracy: float | None) -> None:
        """Plan what one tenant can learn in this window. `accuracy`: by its last labels."""
        number = self._clock.number
        # no window from this one on is learned, whatever a version of another machine's windows
        # says
        tenant.since = min(tenant.since, number)
        labelled = self._labels.kept(tenant.name, tenant.since, number)
        tenant.begin(number, labelled, accuracy, self._room())

    def due(self) -> Iterator[Coroutine[Any, Any, None]]:
        """Yield the estimates that are due. A late estimate is better than none."""
        clock = self._clock
        ahead_s = min(_MOST_AHEAD_S, _AHEAD * clock.window_s)
        if self._made == clock.number or clock.into_s < clock.window_s - ahead_s:
            return
        self._made = clock.number
        for name, tenant in self._tenants.items():
            labelled = self._labels.kept(name, tenant.since, clock.number + 1)
            if tenant.planned and enough(labelled):
                most = tenant.most_samples(self._room())
                beside = self._beside(name)
                estimate = self._learning.estimate(name, clock.number, beside, most)
                yield estimate if beside is None else self._end_before_edge(name, estimate)

    def _room(self) -> TrainingRoom:
        planned = [each for each in self._tenants.values() if each.planned]
        return TrainingRoom.of(self._board(), planned, self._clock.window_s)

    async def _end_before_edge(self, tenant: str, estimate: Coroutine[Any, Any, None]) -> None:
        """Stop an estimate whose instance must be free when the window ends."""
        left_s = self._clock.window_s - self._clock.into_s
        try:
            async with asyncio.timeout(left_s - min(_MARGIN_S, _MARGIN * left_s)):
                await estimate
        except TimeoutError:
            _log.warning(
                "%s: the estimate took too long and was stopped before the window's end; the one "
                "before stands until its labels are learned",
                tenant,
            )

    def _beside(self, tenant: str) -> Mapping[str, str] | None:
        """The environment of an instance of the tenant for its estimate, which takes seconds."""
        serving = self._hands.workers_of(tenant) if self._hands is not None else []
        return serving[0].assignment.environment if serving else None
