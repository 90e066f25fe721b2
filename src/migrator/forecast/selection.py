"""Forecasters by name, and `auto`: a rolling backtest over the latest windows picks one.

The simple forecaster keeps the job unless another was better by more than a margin: so few
windows cannot tell small differences from luck. The choice is made once per window and kept
for the rest of it, and `explain` says why. Here the loss alone decides; where the tenants and
their GPU are known, `policies/forecasts` asks what the plans are worth as well. What a window
cost a forecaster does not change, so it is remembered: with a history that grows only the
newest window is forecast again.

A forecaster is measured by walking it along a trace: it sees what came before and is held to the
rest. `migrator forecast evaluate` does that on traces, `auto` on the latest windows of a history.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from migrator.core.registry import found_in, pick
from migrator.forecast.forecaster import (
    Counts,
    Ewma,
    Forecaster,
    LastMean,
    LongMean,
    Origins,
    Seasonal,
    without_gaps,
)
from migrator.forecast.informer import InformerForecaster, saved
from migrator.forecast.ridge import Ridge

LEVELS = np.array([0.1, 0.5, 0.9])
"""Quantiles that are scored; the outer two bound the 80% interval where requests come steadily."""

_EMPTY = 0.5
"""Requests: a slot with fewer is an empty one."""

_NOTHING = 1e-9
"""Requests per slot: an error over so few says nothing."""

_ROUNDING = 1e-9


@dataclass(frozen=True)
class Figures:
    """Figures of a forecaster on a trace; `wape` and `pinball` are over the mean received."""

    windows: int
    mean: float
    """Requests per slot that came."""
    mae: float
    """Of the scenarios' mean, in requests per slot."""
    loss: float
    """Mean pinball loss of the 10%, 50% and 90% quantiles, in requests per slot."""
    coverage: float
    """Part of the slots inside the nominal 80% interval (`interval_of`)."""
    ms: float
    """One forecast, median."""

    @property
    def wape(self) -> float | None:
        """The mean absolute error over the mean; None where nothing came."""
        return over_mean(self.mae, self.mean)

    @property
    def pinball(self) -> float | None:
        """The loss over the mean; None where nothing came."""
        return over_mean(self.loss, self.mean)


def over_mean(value: float, mean: float) -> float | None:
    """An error in requests over the mean received; None where nothing came."""
    return value / mean if mean > _NOTHING else None


def origins_of(first: int, slots: int, window_slots: int) -> Origins:
    """Window after window from `first` on, as long as a whole one is left."""
    return np.arange(first, slots - window_slots + 1, window_slots, dtype=np.intp)


def measure(
    forecaster: Forecaster,
    counts: Counts,
    origins: Origins,
    window_slots: int,
    step_done: Callable[[], None] = lambda: None,
) -> Figures:
    """The figures over these origins; at each the forecaster is given what is before it alone."""
    came, mean, quantiles, inside, taken_ms = [], [], [], [], []
    for origin in origins:
        began = time.perf_counter()
        # a copy, so that nothing can reach past its end
        ahead = forecaster.ahead(counts[:origin].copy(), window_slots, window_slots)
        taken_ms.append(1e3 * (time.perf_counter() - began))
        came.append(counts[origin : origin + window_slots])
        mean.append(ahead.mean(axis=0))
        quantiles.append(quantiles_of(ahead))
        inside.append(covered(came[-1], ahead))
        step_done()
    received, limits = np.concatenate(came), np.concatenate(quantiles, axis=1)
    return Figures(
        windows=len(came),
        mean=float(received.mean()),
        mae=float(np.abs(received - np.concatenate(mean)).mean()),
        loss=float(pinball(received, limits).mean()),
        coverage=float(np.mean(inside)),
        ms=float(np.median(taken_ms)),
    )


def quantiles_of(ahead: NDArray[np.float64]) -> NDArray[np.float64]:
    """Per level and slot; each scenario is the middle of its equal part of the probability."""
    quantiles: NDArray[np.float64] = np.quantile(ahead, LEVELS, axis=0, method="hazen")
    return quantiles


def pinball(came: Counts, quantiles: NDArray[np.float64]) -> NDArray[np.float64]:
    """The loss per level and slot."""
    missed = came - quantiles
    return np.maximum(LEVELS[:, None] * missed, (LEVELS[:, None] - 1) * missed)


def interval_of(ahead: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Per slot the nominal 80% interval: a tenth of the probability below it, a tenth above.

    Where the lowest tenth is an empty slot nothing can come below: a fifth is left above, or
    the interval would hold nine tenths.
    """
    low, upper, highest = np.quantile(ahead, [0.1, 0.8, 0.9], axis=0, method="hazen")
    empty = low < _EMPTY
    return np.where(empty, 0.0, low), np.where(empty, upper, highest)


def covered(came: Counts, ahead: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Per slot whether what came is inside the nominal 80% interval."""
    low, high = interval_of(ahead)
    inside: NDArray[np.bool_] = (came >= low - _ROUNDING) & (came <= high + _ROUNDING)
    return inside


_SAVED = "informer:"


@cache
def forecasters() -> dict[str, Forecaster]:
    """Every forecaster by name."""
    return found_in("migrator.forecast", "FORECASTERS")


def forecaster(name: str) -> Forecaster:
    """The forecaster called `name`; an unknown name is answered with the nearest ones."""
    if name.startswith(_SAVED):
        return saved(Path(name.removeprefix(_SAVED)))
    return pick("forecaster", name, forecasters())


BACKTEST_WINDOWS = 30
"""The backtest covers this many windows: bursts are rare, and they decide."""
LEAST_WINDOWS = 4
"""With a shorter history the simple forecaster is used: too little precedes the windows."""
MARGIN = 0.02
"""A forecaster is chosen only if it lowers the simple one's loss by more than this share."""
_KEPT_CHOICES = 256
_KEPT_LOSSES = 20_000
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

    def __init__(
        self,
        others: Sequence[Forecaster] = (LongMean(), Ewma(), Seasonal(), Ridge()),
        score: Score = pinball_score,
        name: str = "auto",
    ) -> None:
        """`others` compete with last-mean: by default those that need no training."""
        self.name = name
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


FORECASTERS = (
    Auto(),
    Auto((LongMean(), Ewma(), Seasonal(), Ridge(), InformerForecaster()), name="auto-informer"),
)
