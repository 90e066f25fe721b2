"""One tenant of a live run: what came, which model serves, and its retraining."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from migrator.core.catalogue import Board
from migrator.core.curve import Curve
from migrator.core.scenario import ServedTenant
from migrator.core.share import Holding
from migrator.learn.estimation import Past
from migrator.live.versions import Version
from migrator.policies.policy import RetrainingState, TenantView
from migrator.workload.live import LiveTenant

FEWEST_LABELS = 20
"""Below this there is nothing to learn a window from."""
_HISTORY_SLOTS = 7200
_FOLLOWED, _SLOWEST = 0.5, 10.0
"""How fast a measured duration is believed, and how much at most."""
_USUAL_GAIN = 0.3
"""Of the errors: what a retraining removes where nothing has been estimated or seen yet."""
_WINDOW_PART = 0.8
"""Of a window: what all retrainings together may take, one after the other."""
_SMALLER, _SMALLEST = 0.7, 0.1
"""After every window that a retraining waited in vain the next is planned smaller, down to that."""
_DOUBTED = 3
"""After so many of them an estimate without a gain is not believed any more."""


class Phase(StrEnum):
    """Where a window's retraining is."""

    NONE = "none"
    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"


@dataclass(frozen=True)
class TrainingRoom:
    """What a retraining may take: so long on an instance of so many SMs."""

    sms: float
    seconds: float

    @classmethod
    def of(cls, board: Board, tenants: Sequence[TenantRun], window_s: float) -> TrainingRoom:
        """The largest instance beside the smallest ones of every tenant, and an equal part of the
        window each: so all of them fit, one after the other."""
        left = board.compute_slices - sum(each.live.service.min_gpcs for each in tenants)
        sizes = [each for each in board.sizes if each <= left] or board.sizes[:1]
        return cls(board.sms_of(sizes[-1]), _WINDOW_PART * window_s / max(1, len(tenants)))


@dataclass
class Retraining:
    """A retraining on the labels of the windows before."""

    window: int
    """It learns from what came before this window."""
    seconds: Curve
    """As its profile says."""
    slower: float
    """By this factor it takes longer here, as measured."""
    expected: float
    phase: Phase = Phase.WAITING
    progress: float = 0.0
    on: Holding | None = None
    since: int = 0
    """The first window that it learns from."""
    labelled: int = 0
    """The labels that were not learned yet when it was planned."""
    most_samples: int | None = None
    """It trains on at most so many; None: on all."""


@dataclass
class TenantRun:
    """A tenant's state between requests."""

    live: LiveTenant
    history: NDArray[np.float64]
    """Requests per slot, the scenario's own past first."""
    version: Version | None = None
    accuracy: float = 1.0
    """Of the model that serves, on the newest labels."""
    overhead_s: float = 0.0
    retraining: Retraining | None = None
    estimate: float | None = None
    """What the next retraining is expected to bring."""
    estimated_for: int = 0
    """The window of that retraining."""
    replayed: int = 0
    """Samples of earlier windows that the next retraining learns again."""
    past: list[Past] = field(default_factory=list)
    slower: float = 1.0
    """Retrainings take so many times as long as the profile says."""
    since: int = 0
    """The first window whose labels the model has not learned yet."""
    missed: int = 0
    """Windows in a row at whose end a retraining waited that could have been made."""
    fruitless: int = 0
    """Labels that a retraining ended without samples with: it needs more than those."""
    drained: bool = False
    """No requests are taken, so there is nothing to plan for."""

    @property
    def name(self) -> str:
        """The tenant's name."""
        return self.live.name

    @property
    def planned(self) -> bool:
        """Whether plans are made with it: a drained one is there only while it is retrained."""
        job = self.retraining
        return not self.drained or (job is not None and job.phase is Phase.RUNNING)

    def goes_on_from(self, version: Version) -> None:
        """That version serves: what came since it was made is to be learned."""
        self.version, self.since = version, int(version.about.get("window", 0))
        self.slower = float(version.about.get("slower", self.slower))
        if version.accuracy is not None:
            self.accuracy = version.accuracy

    def saw(self, slot: float) -> None:
        """Another slot is over, and so many requests came in it; while drained it tells nothing."""
        if self.drained:
            return
        self.history = np.append(self.history, slot)[-_HISTORY_SLOTS:]

    def begin(self, window: int, labelled: int, accuracy: float | None, room: TrainingRoom) -> None:
        """A window begins with so many labels that were not learned yet.

        `accuracy` is what those of the last window say of the model; None: there were none.
        """
        if accuracy is not None:
            self.accuracy = accuracy
        if self.retraining is not None and self.retraining.phase is Phase.RUNNING:
            return  # it goes on; what came meanwhile is learned after it, if that pays then
        self.retraining = None
        if self.since >= self.estimated_for:
            self.estimate = None  # its labels are learned
        # one that is made late in a window is about the next one's retraining
        known = self.estimate if self.estimated_for <= window else None
        if labelled >= max(FEWEST_LABELS, self.fruitless + 1):
            most = self.most_samples(room)
            learned = round(labelled * (1 - self.live.held_out)) + self.replayed
            self.retraining = Retraining(
                window,
                self.live.training_s(min(most, learned)),
                self.slower,
                max(self.accuracy, self._expected(known)),
                since=self.since,
                labelled=labelled,
                most_samples=most,
            )

    def most_samples(self, room: TrainingRoom) -> int:
        """How many a retraining can train on within the room; fewer where it found none before."""
        part = max(_SMALLEST, _SMALLER**self.missed)
        each_s = self.live.training_s(1).at(room.sms) * self.slower
        return max(FEWEST_LABELS, int((part * room.seconds - self.overhead_s) / each_s))

    def end_window(self) -> None:
        """A window in which plans were followed is over: has its retraining waited in vain?

        What keeps it from ever being made must not stay: a duration that was measured once, or an
        estimate that says it would gain nothing.
        """
        job = self.retraining
        if job is not None and job.phase is Phase.WAITING:
            self.missed += 1
            self.slower += _FOLLOWED * (1 - self.slower)

    def end_without_samples(self, job: Retraining) -> None:
        """Its labels leave nothing to train on or to judge with: it needs more of them."""
        self.fruitless, job.phase = job.labelled, Phase.DONE

    @property
    def learned_before(self) -> int:
        """The first window whose labels are still to be learned, or are being learned."""
        job = self.retraining
        running = job is not None and job.phase is Phase.RUNNING
        return min(self.since, job.since) if job is not None and running else self.since

    def outlasted(self, window: int) -> bool:
        """Whether its retraining has come to its end in a later window than its own."""
        job = self.retraining
        return job is not None and job.phase is Phase.DONE and job.window < window

    def _expected(self, estimate: float | None) -> float:
        if estimate is None:
            return self._usual()
        return max(estimate, self._usual()) if self.missed >= _DOUBTED else estimate

    def _usual(self) -> float:
        return self.accuracy + _USUAL_GAIN * (1 - self.accuracy)

    def took(self, planned_s: float, seconds: float) -> None:
        """A retraining ended: what it took beside its profile tells of the next."""
        factor = min(_SLOWEST, max(1.0, seconds / planned_s))
        self.slower += _FOLLOWED * (factor - self.slower)
        self.missed = self.fruitless = 0

    def view(self) -> TenantView:
        """As a policy sees it."""
        return TenantView(
            self.live.service,
            np.zeros_like(self.history) if self.drained else self.history,
            None,
            self._state(),
            self.overhead_s,
            self.accuracy,
        )

    def _state(self) -> RetrainingState | None:
        job = self.retraining
        if job is None or job.phase is Phase.DONE:
            return None
        running = job.phase is Phase.RUNNING
        return RetrainingState(
            self.accuracy,
            job.expected,
            job.seconds.scaled(job.slower),
            min(job.progress, 0.99) if running else 0.0,
            job.on if running else None,
        )


def tenant_run(
    served: ServedTenant, live: LiveTenant, slot_s: float, overhead_s: float
) -> TenantRun:
    """A tenant before its first request, with the past that its scenario gives it."""
    counts = served.trace.counts[: served.offset_s].astype(np.float64)
    each = round(slot_s)
    whole = len(counts) // each * each
    past = counts[len(counts) - whole :].reshape(-1, each).sum(axis=1)
    return TenantRun(live, past[-_HISTORY_SLOTS:], overhead_s=overhead_s)
