"""The accuracy to expect of a tenant's next retraining, by how the earlier ones turned out.

An estimate says which accuracy a retraining will reach. A completed retraining shows by how much
the estimate was off, and the next one is corrected by that. Of a tenant that was left out for some
windows at least the usual gain is expected: an estimator that is always too low would otherwise
prevent the retrainings that correct it.

An estimate takes time on an instance that serves. None is needed while every retraining gains what
the ones before predicted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

_SMOOTHING = 0.5
"""Smoothing factor for measurements."""
_USUAL_GAIN = 0.3
"""Share of the errors that a retraining is assumed to remove before any is measured."""
_RESTORED = 0.6
"""Part of the accuracy lost on new data that a first retraining restores, if nothing was estimated:
the median of the packaged measurements (0.17 to 1.1)."""
_USUAL_ON_NEW_DATA = 0.7
"""The accuracy that a model is assumed to have on new data at most, before any was measured. One
that was measured on older data would say that there is nothing to gain."""
_DOUBTED = 3
"""Windows in a row without a retraining after which one is tried again. Doubles with every
retraining in a row that gained nothing, `_MOST_DOUBLINGS` times at most."""
_MOST_DOUBLINGS = 5
_NOTHING = 0.01
"""Accuracy gained up to which a retraining counts as one that gained nothing."""
_AS_PREDICTED = 0.25
"""Share of its gain by which a retraining may differ from what the ones before predicted. A plan
loses less by such an error than an estimate costs (decision 014)."""


@dataclass
class ExpectedAccuracy:
    """What the completed retrainings of a tenant say about its next one."""

    made: float | None = None
    """Accuracy of the first version on the data that it was made from; None if unknown."""
    removed: float = _USUAL_GAIN
    """Share of the errors that retrainings removed."""
    on_new_data: float | None = None
    """Accuracy before retrainings, on the data that they learned; None before the first."""
    completions: int = 0
    """Retrainings that have completed."""
    error: float | None = None
    """Accuracy reached minus accuracy estimated; None before the first measurement."""
    in_vain: int = 0
    """Retrainings in a row that gained nothing."""
    predicts: bool = False
    """Whether earlier retrainings predict the gain of the next one, as well as an estimate does.
    One is enough, until another one gains more or less."""

    @property
    def facts(self) -> dict[str, Any]:
        """What retrainings have shown, for the next daemon."""
        return {name: value for name, value in asdict(self).items() if name != "made"}

    def restore(self, facts: Mapping[str, Any]) -> None:
        """Begin with what an earlier daemon has seen."""
        for name in self.facts.keys() & facts.keys():
            setattr(self, name, facts[name])

    def before_retraining(self, accuracy: float) -> float:
        """The accuracy to plan with on new data, of a model that had `accuracy` on older data and
        was not evaluated since."""
        usual = _USUAL_ON_NEW_DATA if self.on_new_data is None else self.on_new_data
        return min(accuracy, usual)

    def after_retraining(self, accuracy: float, estimate: float | None, idle_windows: int) -> float:
        """The accuracy to plan with after the next retraining.

        `accuracy`: of the serving model; `estimate`: None if there is none; `idle_windows`: in a
        row that ended without a retraining.
        """
        usual = accuracy + _USUAL_GAIN * (1 - accuracy)
        expected = self._corrected(accuracy, estimate, usual)
        if idle_windows >= _DOUBTED * 2 ** min(self.in_vain, _MOST_DOUBLINGS):
            expected = max(expected, usual)
        return min(1.0, max(accuracy, expected))

    def _corrected(self, accuracy: float, estimate: float | None, usual: float) -> float:
        if estimate is not None:
            return estimate + (self.error or 0.0)
        if self.completions == 0:
            return max(usual, self._restored(accuracy))
        return accuracy + self.removed * (1 - accuracy)

    def _restored(self, accuracy: float) -> float:
        made = accuracy if self.made is None else self.made
        return accuracy + _RESTORED * (made - accuracy)

    def completed(self, before: float, after: float, estimate: float | None) -> None:
        """Learn from a retraining: accuracies on the same data before and after it.

        `estimate`: what was estimated for `after`; None if nothing was, or for other data.
        """
        gained = after - before
        self.in_vain = self.in_vain + 1 if gained <= _NOTHING else 0
        missed = abs(gained - self.removed * (1 - before))
        is_first = self.completions == 0
        self.predicts = not self.in_vain and (is_first or missed <= _AS_PREDICTED * gained)
        on_new_data = before if self.on_new_data is None else self.on_new_data
        self.on_new_data = on_new_data + _SMOOTHING * (before - on_new_data)
        if before < 1:
            removed = max(0.0, gained / (1 - before))
            self.removed += (1.0 if is_first else _SMOOTHING) * (removed - self.removed)
        self.completions += 1
        if estimate is not None:
            error = after - estimate
            self.error = (
                error if self.error is None else self.error + _SMOOTHING * (error - self.error)
            )
