"""The packaged data sets: the paper's windows, and what follows from the table."""

from __future__ import annotations

import pytest

from migrator.core.errors import InputError
from migrator.core.profiles import Curve, profile
from migrator.core.scenario import Drift
from migrator.simulation.tenant import DriftingModel
from migrator.workload.datasets import datasets, drifts, learned_a_window_later

H200 = "H200-141GB"


@pytest.mark.parametrize(
    ("name", "windows", "classes"),
    [("nc-cifar-10", 4, 10), ("nc-core50", 9, 50), ("nc-20-newsgroups", 9, 20)],
)
def test_windows_and_classes_of_the_paper(name: str, windows: int, classes: int) -> None:
    dataset = datasets()[name]
    assert dataset.windows == windows
    assert dataset.classes * (windows + 1) == classes


def test_policies_plan_with_the_estimate_and_get_the_measured_accuracy() -> None:
    windows = drifts("nc-cifar-10", profile("resnet-50", H200))
    accuracies = datasets()["nc-cifar-10"].measured["resnet-50"]
    assert tuple(drift.accuracy_expected for drift in windows) == accuracies.estimated
    assert tuple(drift.accuracy_post for drift in windows) == accuracies.post
    assert accuracies.estimated != accuracies.post


def test_unknown_names_are_refused() -> None:
    with pytest.raises(InputError, match=r"did you mean nc-cifar-10"):
        drifts("cifar-10", profile("resnet-50", H200))
    with pytest.raises(InputError, match=r"bert-base on nc-cifar-10 are measured; use"):
        drifts("nc-cifar-10", profile("bert-base", H200))


def test_labels_that_come_during_a_window_are_learned_one_drift_later() -> None:
    first, second = Curve(((16, 40.0),)), Curve(((16, 50.0),))
    drifts = (Drift(0.5, 0.8, first, 0.7), Drift(0.4, 0.9, second, 0.8), Drift(0.6, 0.9, second))
    late = learned_a_window_later(drifts)
    # nothing is labelled before the first window
    assert (late[0].accuracy_pre, late[0].accuracy_post, late[0].seconds) == (0.5, 0.5, None)
    # the first window's data, learned in the second: as good as the table says of such a model
    assert (late[1].accuracy_post, late[1].seconds) == (0.4, first)
    assert late[1].accuracy_pre == pytest.approx(0.5 * 0.4 / 0.8)
    assert late[1].accuracy_expected == pytest.approx(0.7 * 0.4 / 0.8)
    # a model that is never retrained falls as fast as with labels at the start
    models = DriftingModel(drifts), DriftingModel(late)
    for window in range(3):
        for model in models:
            model.begin(10.0 * window, window)
        assert models[0].accuracy == pytest.approx(models[1].accuracy)
