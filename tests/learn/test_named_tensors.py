"""Models with named tensors of their own: declared, checked, compared with labels, retrained."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.detector_model import Detector, Picky, scenes
from support.means_model import Means

from migrator.core.errors import InputError
from migrator.core.tensors import TensorSpec, to_records
from migrator.learn.benchmark_run import matching_benchmark
from migrator.learn.estimation import estimate
from migrator.learn.named_tensors import NamedTensorModel, compare
from migrator.learn.registry import build
from migrator.learn.retraining import RetrainingSettings, accuracy, retrain
from migrator.learn.samples import WindowData

NAME = "support.detector_model:Detector"


def _data() -> WindowData:
    return WindowData(scenes(60, 0), scenes(20, 1), scenes(40, 2), scenes(40, 3), frozenset({0}))


def test_a_detector_is_retrained_on_boxes() -> None:
    model, data = build(NAME, 1, 0), _data()
    before = accuracy(model, data.held_out)
    assert before == pytest.approx(1 / 8)  # the empty pictures
    settings = RetrainingSettings(epochs=4, part=0.5)
    assert estimate(model, data, before, settings, ()).accuracy > 0.9
    served, result = retrain(model, data, before, settings)
    assert result.adopted
    assert result.accuracy_after == 1.0
    assert accuracy(served, data.held_out) == 1.0
    assert accuracy(model, data.held_out) == before


def test_labels_that_a_class_cannot_judge_count_as_wrong() -> None:
    """One client's label must not keep a model from being retrained."""
    samples, model = scenes(40, 1), NamedTensorModel(Picky())
    model.model.bias[:] = 0.0
    assert accuracy(model, samples, 16) == 1.0
    labels: Any = samples.labels  # records
    labels["place"][[3, 39]] = -1.0
    assert accuracy(model, samples, 13) == 38 / 40  # the last batch has only such a label
    labels["place"] = -1.0
    with pytest.raises(ValueError, match="outside of the picture"):
        accuracy(model, samples, 16)


class Scores(Detector):
    """Answers with scores; its labels are classes."""

    inputs: Any = (TensorSpec("place", "FP32", (3,)),)
    outputs = (TensorSpec("scores", "FP32", (3,)), TensorSpec("sum", "FP64"))
    labels: Any = ()
    is_correct: Any = property()  # an AttributeError: there is none

    def infer(self, inputs: dict[str, Any]) -> dict[str, Any]:
        return {"scores": inputs["place"], "sum": inputs["place"].sum(axis=1)}


def test_the_highest_score_is_compared_with_the_label_by_default() -> None:
    model = NamedTensorModel(Scores())
    outputs = model.infer(to_records({"place": np.eye(3, dtype=np.float32)}))
    correct, invalid = compare(model, outputs, np.array([0, 1, 1]))
    assert correct.tolist() == [True, True, False]
    outputs["sum"][0] = np.nan
    correct, invalid = compare(model, outputs, np.array([0, 1, 1]))
    assert (correct.tolist(), invalid.tolist()) == ([False, True, False], [True, False, False])


class NearMeans(Means):
    """A classifier of which the second guess counts as well."""

    def is_correct(self, outputs: Any, label: int) -> bool:
        return label in np.argsort(outputs)[-2:]


def test_a_classifier_may_decide_what_is_correct() -> None:
    scores = np.array([[3, 2, 1], [3, 2, 1]], np.float32)
    near: Any = NearMeans.build(3, 0)
    plain: Any = Means.build(3, 0)
    assert compare(near, scores, np.array([1, 2]))[0].tolist() == [True, False]
    assert not compare(plain, scores, np.array([1, 2]))[0].any()


SPEC = TensorSpec("x", "FP32", (2,))


@pytest.mark.parametrize(
    ("declared", "reason"),
    [
        ({"inputs": ()}, "declare at least one input"),
        ({"outputs": ()}, "declare at least one input"),
        ({"inputs": ["x"]}, "inputs of Other is no sequence of TensorSpec"),
        ({"inputs": (SPEC,), "labels": (SPEC,)}, "give inputs and labels different names"),
        ({"outputs": (SPEC, SPEC)}, "two outputs of Other have one name"),
        ({"is_correct": property()}, r"needs is_correct\(outputs, label\)"),
    ],
)
def test_declarations_that_cannot_be_served_are_refused(
    declared: dict[str, Any], reason: str
) -> None:
    with pytest.raises(InputError, match=reason):
        NamedTensorModel(type("Other", (Detector,), declared)())


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (np.zeros((1, 4)), "returned a ndarray; return a dictionary of"),
        ({"box": np.zeros((1, 4), np.float32)}, "return a dictionary of"),
        ({"box": np.zeros((2, 4), np.float32), "empty": np.zeros(1, bool)}, r"of shape \(2, 4\)"),
        ({"box": np.zeros((1, 4), np.float32), "empty": np.zeros(1)}, "empty as float64"),
    ],
)
def test_answers_other_than_declared_are_refused(given: Any, reason: str) -> None:
    kind = type("Other", (Detector,), {"infer": lambda _self, _inputs: given})
    with pytest.raises(InputError, match=reason):
        NamedTensorModel(kind()).infer(scenes(1, 0).inputs)


def test_a_benchmark_is_refused_for_such_a_model() -> None:
    with pytest.raises(InputError, match="reads tensors, but nc-synthetic consists of images"):
        matching_benchmark("nc-synthetic", NAME)
