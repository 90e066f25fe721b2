"""A tenant's model through the windows: drift, retraining under way, and its accuracy.

Each window's data differs from the last one's. A model's accuracy falls by the ratio that the
scenario gives for the window, whether it was retrained in the window before or long ago: one
that missed a retraining falls from where it is.
"""

from __future__ import annotations

from dataclasses import dataclass

from migrator.core.curve import Curve
from migrator.core.scenario import Drift


@dataclass
class _Job:
    """A retraining on one window's data."""

    seconds: Curve
    accuracy_post: float
    """On the data of the window that is now."""
    accuracy_expected: float
    """The same, as it was estimated beforehand."""
    done: float = 0.0
    started: bool = False
    late: bool = False
    """It has outlasted its window."""

    def fade(self, by: float) -> None:
        """Its window has ended, and the data of the next is other data."""
        self.accuracy_post = min(1.0, self.accuracy_post * by)
        self.accuracy_expected = min(1.0, self.accuracy_expected * by)
        self.late = True


def _job_of(drift: Drift | None) -> _Job | None:
    if drift is None or drift.seconds is None:
        return None
    return _Job(drift.seconds, drift.accuracy_post, drift.accuracy_expected)


class Learner:
    """One tenant's model and its retraining."""

    def __init__(self, drifts: tuple[Drift, ...]) -> None:
        self._drifts = drifts
        self._window = -1
        self.accuracy = 1.0
        """Of the model that serves, on this window's data."""
        self._fresh = False
        """Whether it was retrained on the data of the window that is now."""
        self.job: _Job | None = None
        self._next: _Job | None = None
        self.switches: list[tuple[float, float]] = []
        """When in this window the accuracy became what: its begin first."""

    def begin(self, now_s: float, running: bool) -> None:
        """A window begins: the data changes, new data to retrain on is there.

        A retraining that runs goes on, and the window's own waits for it; one that does not run
        is given up, for its data is old.
        """
        self._window += 1
        drift = self._drift(self._window)
        fading = self._fading(drift)
        if drift is not None and (self._window == 0 or self._fresh):
            self.accuracy = drift.accuracy_pre
        else:
            self.accuracy = min(1.0, self.accuracy * fading)
        self._fresh = False
        new = _job_of(drift)
        if self.job is not None and running:
            self.job.fade(fading)
            self._next = new
        else:
            self.job, self._next = new, None
        self.switches = [(now_s, self.accuracy)]

    def train(self, from_s: float, to_s: float, sms: float, speed: float) -> None:
        """Train on `sms` SMs for a while, at a part of their speed; it may come to its end."""
        if self.job is None or to_s <= from_s:
            return
        rate = speed / self.job.seconds.at(sms)
        needs_s = (1 - self.job.done) / rate if rate else float("inf")
        if needs_s > to_s - from_s + 1e-9:
            self.job.done += (to_s - from_s) * rate
            return
        self.accuracy = self.job.accuracy_post
        self._fresh = not self.job.late
        self.switches.append((from_s + needs_s, self.accuracy))
        self.job, self._next = self._next, None

    def _drift(self, window: int) -> Drift | None:
        return self._drifts[window] if 0 <= window < len(self._drifts) else None

    def _fading(self, drift: Drift | None) -> float:
        before = self._drift(self._window - 1)
        if drift is None or before is None:
            return 1.0
        return drift.accuracy_pre / before.accuracy_post if before.accuracy_post else 1.0
