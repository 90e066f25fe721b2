"""What a course brought, window by window: plain values for tables and files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from migrator.learn.estimation import Estimate
from migrator.learn.retraining import Retrained


@dataclass(frozen=True)
class WindowRow:
    """One window of a course; accuracies are on held-out data of all classes seen so far."""

    window: int
    classes: int
    samples: int
    """Trained on, replayed ones included."""
    accuracy_pre: float
    accuracy_estimated: float
    accuracy_post: float
    """Of the model that serves from then on."""
    accuracy_new_pre: float
    """On the window's new classes alone."""
    accuracy_new_post: float
    adopted: bool
    retraining_s: float
    estimation_s: float
    curve: tuple[float, ...]
    """After every epoch of the retraining."""
    estimation_curve: tuple[float, ...]
    """Before, and after every little epoch of the estimation."""
    stopped: str = ""
    """Why the retraining ended before its last epoch, in words."""

    @property
    def error(self) -> float:
        """Of the estimate, in accuracy."""
        return self.accuracy_estimated - self.accuracy_post


@dataclass(frozen=True)
class CourseResult:
    """What became of a course."""

    benchmark: str
    model: str
    source: str
    """Where the samples came from, in words."""
    weights: str
    """Where the model began, in words."""
    seed: int
    accuracy_pretrained: float
    rows: tuple[WindowRow, ...]
    pretraining_stopped: str = ""
    """Why pre-training ended before its last epoch, in words."""

    @property
    def stops(self) -> list[str]:
        """One sentence for every training that was stopped."""
        stopped = {0: self.pretraining_stopped, **{each.window: each.stopped for each in self.rows}}
        return [
            f"{f'window {window}' if window else 'pre-training'}: {why}"
            for window, why in stopped.items()
            if why
        ]

    @property
    def median_error(self) -> float | None:
        """Median absolute error of the estimates; None without windows."""
        return median(abs(each.error) for each in self.rows) if self.rows else None

    @property
    def estimation_part(self) -> float | None:
        """Seconds of estimating over seconds of retraining; None without windows."""
        spent = sum(each.retraining_s for each in self.rows)
        return sum(each.estimation_s for each in self.rows) / spent if spent else None


def row_of(window: int, classes: int, samples: int, said: Estimate, done: Retrained) -> WindowRow:
    """The row of a window that has been lived through."""
    return WindowRow(
        window,
        classes,
        samples,
        done.accuracy_before,
        said.accuracy,
        done.accuracy_served,
        done.accuracy_new_before,
        done.accuracy_new_after if done.adopted else done.accuracy_new_before,
        done.adopted,
        done.seconds,
        said.seconds,
        done.curve,
        said.curve,
        done.stopped,
    )


def row_from(entry: Mapping[str, Any]) -> WindowRow:
    """The row that was written as JSON."""
    curves: dict[str, Any] = {k: tuple(entry[k]) for k in ("curve", "estimation_curve")}
    return WindowRow(**{**entry, **curves})
