"""The model of a tenant: what it has learned, how accurate it is, and what retraining it gains."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from migrator.control.expected_accuracy import ExpectedAccuracy
from migrator.core.evidence import Accuracy, Evidence

NOTHING_LEARNED = -1
"""The first window whose labels are not learned, if none are: some may come before window 0."""
_LEAST_PART = 0.2
"""A smaller part of the usual gain, as of a short configuration, says little about the whole."""


class ModelVersion(Protocol):
    """A version of a tenant's model, as planning sees it."""

    @property
    def number(self) -> int:
        """The version number, from 1."""
        ...

    @property
    def accuracy(self) -> float | None:
        """Accuracy on held-out labels; None if unknown."""
        ...

    @property
    def about(self) -> Mapping[str, Any]:
        """Details of how the version was made."""
        ...


class ServedModel:
    """The version that serves, its accuracy with its evidence, and estimates of the next one."""

    def __init__(self) -> None:
        self.version: Any = None
        """The version that serves; None without a model, as in a simulation."""
        self.accuracy = Accuracy(1.0, Evidence.NONE)
        """That plans rest on."""
        self.is_measured = False
        """Whether it was measured on the data that this window's retraining learns."""
        self.since = NOTHING_LEARNED
        """The first window whose labels the model has not learned."""
        self.gains = ExpectedAccuracy()
        self.estimate: float | None = None
        """The last estimate of the accuracy after a retraining in the configuration that gains
        most, while its labels are not learned."""
        self.no_estimate = ""
        """Why the last estimate failed; empty if it did not."""
        self._learned_of_since = 0
        """Labels of window `since` that it has learned nevertheless: there were that many."""
        self.window = NOTHING_LEARNED
        """The window that has begun."""
        self._is_given = False
        """Whether labels of answers, or the scenario, gave the accuracy with which the window
        began."""
        self._evaluated: float | None = None
        """Its accuracy on held-out labels that it has not learned; None if it was not evaluated."""
        self._evaluated_in = NOTHING_LEARNED
        """The last window of those labels."""
        self._estimated_for = 0
        """The window of the retraining that was estimated."""
        self._gain_parts: Mapping[str, float] = {}
        """By configuration: its gain relative to the one that gains most; 1 unless given."""

    def new_labels(self, labelled: int) -> int:
        """How many of the stored labels since window `since` are not learned."""
        return max(0, labelled - self._learned_of_since)

    # The version that serves.

    def switch(self, version: ModelVersion) -> None:
        """Serve another version than the retraining made, or the first. Everything received since
        it was made is to be learned."""
        self.version, self.estimate = version, None
        self.since = int(version.about.get("window", NOTHING_LEARNED))
        self._learned_of_since = 0
        self.gains.restore(version.about.get("gains", {}))
        if version.accuracy is not None:
            self.accuracy = Accuracy(version.accuracy, Evidence.EARLIER)
            self.gains.made = version.accuracy

    def adopt(self, version: Any, accuracy: float) -> None:
        """Serve the version that a retraining made."""
        self.version, self.accuracy = version, Accuracy(accuracy, Evidence.SAMPLES)
        self._evaluated = None  # another model was evaluated

    def learn_labels(self, window: int, of_window: int = 0) -> None:
        """Note that a retraining used the labels of earlier windows and `of_window` of this one.

        Whether its model was adopted makes no difference.
        """
        self.since, self._learned_of_since = window, of_window

    # Its accuracy.

    def begin_window(self, window: int, accuracy: float | None, *, has_new_data: bool) -> None:
        """Begin a window. `accuracy`: by the labels of answers of the last one; None if there were
        none."""
        # a version that was made on another machine may name a later window
        self.since = min(self.since, window)
        self.window, self._is_given = window, accuracy is not None
        if accuracy is None and self.since <= self._evaluated_in < window:
            accuracy = self._evaluated  # samples were uploaded, and no answers were labelled
        evidence = Evidence.EARLIER if self._is_given else Evidence.SAMPLES
        self._believe(accuracy, evidence, has_new_data=has_new_data)

    def begin_known_window(self, accuracy: float | None, *, has_new_data: bool) -> None:
        """Begin a window of which the scenario gives the accuracy; None if it does not."""
        self._is_given = accuracy is not None
        self._believe(accuracy, Evidence.ANSWERS, has_new_data=has_new_data)

    def _believe(self, measured: float | None, evidence: Evidence, *, has_new_data: bool) -> None:
        """Set the accuracy that plans rest on in the window that begins: as measured, else as
        earlier retrainings found it on new data."""
        self.is_measured = measured is not None
        if measured is None:
            measured = self.accuracy.value
            if has_new_data:
                measured = self.gains.before_retraining(measured)
            assumed = self.accuracy.evidence is Evidence.NONE
            evidence = Evidence.NONE if assumed else Evidence.EARLIER
        self.accuracy = Accuracy(measured, evidence)

    def measure(self, accuracy: float) -> None:
        """Note the accuracy of the serving model, unless labels of answers gave it."""
        if not self._is_given:
            self.accuracy = Accuracy(accuracy, Evidence.SAMPLES)

    def evaluate(self, accuracy: float, window: int, version: Any) -> bool:
        """Take the accuracy of a version on the labels up to `window`. Returns whether it changes
        what is known of the serving model now.

        The labels of a window are the data of the next one. An evaluation that ends after that
        began still tells how the model does on it, unless labels of answers do.
        """
        if self.version is not version or window < self.since:
            return False
        self._evaluated, self._evaluated_in = accuracy, window
        if self.window <= window or self._is_given:
            return False
        self.accuracy, self.is_measured = Accuracy(accuracy, Evidence.SAMPLES), True
        return True

    # The accuracy after its next retraining.

    def set_estimate(self, accuracy: float, window: int) -> None:
        """Expect this accuracy after a retraining in a window."""
        self.estimate, self._estimated_for, self.no_estimate = accuracy, window, ""

    def fail_estimate(self, why: str) -> None:
        """Note why there is no estimate."""
        self.no_estimate = why

    def estimate_for(self, window: int) -> float | None:
        """The estimate of a retraining in a window; None if there is none. One made late in a
        window is for the next."""
        return self.estimate if self.since < self._estimated_for <= window else None

    def drop_learned_estimate(self) -> None:
        """Drop the estimate if its labels are learned."""
        if self.since >= self._estimated_for:
            self.estimate = None

    def expect_gains(self, parts: Mapping[str, float]) -> None:
        """Expect these gains of the configurations, relative to the one that gains most."""
        self._gain_parts = parts

    def expected(self, window: int, configuration: str, idle_windows: int) -> float:
        """The accuracy to plan with after a retraining in a window: as estimated, or by the gains
        of earlier ones. `idle_windows`: in a row that ended without a retraining."""
        before = self.accuracy.value
        highest = self.gains.after_retraining(before, self.estimate_for(window), idle_windows)
        part = self._gain_parts.get(configuration, 1.0)
        return highest if part == 1 else before + part * (highest - before)

    def compare(
        self, before: float, after: float, estimated: float | None, configuration: str = ""
    ) -> None:
        """Learn from the accuracies on the same data before and after a retraining.

        `estimated`: with the configuration that gains most; None if nothing was estimated, or for
        other data. `configuration`: the one that was carried out.
        """
        part = self._gain_parts.get(configuration, 1.0)
        if part < 1:  # what the one that gains most would have reached
            after = min(1.0, before + (after - before) / max(_LEAST_PART, part))
        self.gains.completed(before, after, estimated)
