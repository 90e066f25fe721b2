"""Forecasters by name, and `auto`: a rolling backtest over the latest windows picks one.

The simple forecaster is kept unless another was better by more than a margin: so few windows cannot
tell small differences from luck. The choice is made once per window and kept for the rest of it,
and `explain` says why. Here the loss alone decides; where the tenants and their GPU are known,
`policies/forecasts` asks what the plans are worth as well. What a window cost a forecaster does not
change, so it is remembered: with a history that grows only the newest window is forecast again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from migrator.core.errors import InputError
from migrator.core.registry import found_in, pick, refuse_file
from migrator.forecast.evaluation import measure, origins_of
from migrator.forecast.forecaster import Counts, Forecaster, without_gaps
from migrator.forecast.informer import saved
from migrator.forecast.own import OwnForecaster
from migrator.forecast.ridge import Ridge
from migrator.forecast.seasonal import Seasonal
from migrator.forecast.simple import Ewma, LastMean, LongMean

_SAVED = "informer:"
"""Before the file of a saved model."""
BACKTEST_WINDOWS = 30
"""The backtest covers this many windows: bursts are rare, and they decide."""
LEAST_WINDOWS = 4
"""With a shorter history the simple forecaster is used: too little precedes the windows."""
MARGIN = 0.02
"""A forecaster is chosen only if it lowers the simple one's loss by more than this share."""
_KEPT_CHOICES = 256
_KEPT_LOSSES = 20_000


@cache
def forecasters() -> dict[str, Forecaster]:
    """Every forecaster by name."""
    return found_in("migrator.forecast", "FORECASTERS")


def forecaster(name: str) -> Forecaster:
    """The forecaster called `name`, or the function or class at `package.module:NAME`.

    The error for an unknown name suggests the nearest ones.
    """
    if name == _SAVED.rstrip(":"):
        raise InputError(
            "forecaster: informer needs a model; train one with `migrator forecast train TRACE "
            "--out MODEL` and write informer:MODEL"
        )
    if name.startswith(_SAVED):
        return saved(Path(name.removeprefix(_SAVED)))
    refuse_file("forecaster", name)
    if ":" in name:
        return OwnForecaster(name)
    return pick("forecaster", name, forecasters())


Score = Callable[[Forecaster, Counts, int], float]
"""A loss in the last window of a history, lower is better; the forecaster sees what is before."""


def pinball_score(forecaster: Forecaster, history: Counts, window_slots: int) -> float:
    """Mean pinball loss in requests, so that windows with many count more."""
    origins = origins_of(len(history) - window_slots, len(history), window_slots)
    return measure(forecaster, history, origins, window_slots).loss


@dataclass(frozen=True)
class Choice:
    """The chosen forecaster and why; no losses where the history is too short."""

    chosen: str
    simple: str
    losses: tuple[tuple[str, float], ...]
    windows: int
    goodputs: tuple[tuple[str, float], ...] = ()
    """Of the plans that forecasters lead to; none where loss alone decides."""
    planned: int = 0
    """The windows they are of."""

    @property
    def rivals(self) -> tuple[str, ...]:
        """Those with less loss than the simple forecaster by more than the margin, best first."""
        losses = dict(self.losses)
        bound = (1 - MARGIN) * losses.get(self.simple, 0.0)
        better = (name for name, loss in self.losses if loss < bound)
        return tuple(sorted(better, key=lambda name: losses[name]))

    def __str__(self) -> str:
        """Why, in one sentence."""
        if not self.losses:
            return f"{self.chosen}: the history is too short for a backtest"
        why = self._by_goodput() if self.goodputs else self._by_loss()
        losses = ", ".join(f"{name} {loss:.4g}" for name, loss in self.losses)
        return f"{self.chosen}: {why} (loss: {losses})"

    def _by_loss(self) -> str:
        best = min(self.losses, key=lambda loss: loss[1])[0]
        if self.chosen == self.simple and best != self.simple:
            return f"{best} is not better by more than {MARGIN:.0%} over {self.windows} windows"
        return f"lowest loss over the last {self.windows} windows"

    def _by_goodput(self) -> str:
        goodputs = dict(self.goodputs)
        best = self.rivals[0] if self.chosen == self.simple else self.chosen
        gain = goodputs[best] / goodputs[self.simple] - 1 if goodputs[self.simple] else 0.0
        if self.chosen == self.simple:
            return (
                f"{best} has the least loss over the last {self.windows} windows, but in "
                f"{self.planned} of them its plans bring {-gain:.2%} less goodput"
            )
        return (
            f"less loss over the last {self.windows} windows, and in {self.planned} of them its "
            f"plans bring {gain:+.2%} goodput"
        )


class Auto:
    """Uses the forecaster that was best lately."""

    name = "auto"

    def __init__(
        self,
        others: Sequence[Forecaster] = (LongMean(), Ewma(), Seasonal(), Ridge()),
        score: Score = pinball_score,
    ) -> None:
        """`others` compete with last-mean."""
        self.simple: Forecaster = LastMean()
        self.others = tuple(others)
        self.score = score
        *most, last = (candidate.name for candidate in (self.simple, *self.others))
        self.summary = f"the best lately of {', '.join(most)} and {last}, per tenant"
        self._kept: dict[tuple[bytes, int], Choice] = {}
        self._losses: dict[tuple[str, bytes, int], float] = {}

    def ahead(self, history: Counts, slots: int, window_slots: int) -> NDArray[np.float64]:
        """Scenarios of the next `slots` slots."""
        chosen = self.explain(history, window_slots).chosen
        return self.named(chosen).ahead(history, slots, window_slots)

    def explain(self, history: Counts, window_slots: int) -> Choice:
        """The forecaster for this history, and why."""
        # whole windows, so that what comes within one does not change the forecaster of its rest
        whole = history[: len(history) // window_slots * window_slots]
        key = (fingerprint(whole, window_slots), window_slots)
        if key not in self._kept:
            if len(self._kept) >= _KEPT_CHOICES:
                self._kept.clear()
            self._kept[key] = self._choose(without_gaps(whole), window_slots)
        return self._kept[key]

    def _choose(self, history: Counts, window_slots: int) -> Choice:
        windows = min(BACKTEST_WINDOWS, len(history) // window_slots - 2)
        if len(history) < LEAST_WINDOWS * window_slots:
            return Choice(self.simple.name, self.simple.name, (), 0)
        ends = [len(history) - ago * window_slots for ago in range(windows)]
        losses = {
            candidate.name: sum(self._loss(candidate, history[:end], window_slots) for end in ends)
            / windows
            for candidate in (self.simple, *self.others)
        }
        choice = Choice(self.simple.name, self.simple.name, tuple(losses.items()), windows)
        return replace(choice, chosen=choice.rivals[0]) if choice.rivals else choice

    def _loss(self, forecaster: Forecaster, history: Counts, window_slots: int) -> float:
        key = (forecaster.name, fingerprint(history, window_slots), window_slots)
        if key not in self._losses:
            if len(self._losses) >= _KEPT_LOSSES:
                self._losses.clear()
            self._losses[key] = self.score(forecaster, history, window_slots)
        return self._losses[key]

    def named(self, name: str) -> Forecaster:
        """The candidate of that name."""
        return next(
            candidate for candidate in (self.simple, *self.others) if candidate.name == name
        )


def fingerprint(history: Counts, window_slots: int) -> bytes:
    """Which history it is: its length, its beginning and its end tell."""
    parts = (history[: 4 * window_slots], history[-4 * window_slots :])
    ends = np.concatenate(parts).tobytes()
    return hashlib.sha256(ends).digest() + len(history).to_bytes(8)


FORECASTERS = (Auto(),)
