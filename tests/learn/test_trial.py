"""A user's own class is tried before it is trained: what it cannot do is one sentence."""

from __future__ import annotations

from typing import cast

import numpy as np
import pytest
from support.own_model import NearestMean

from migrator.core.errors import InputError
from migrator.learn.benchmarks.benchmark import Material, Origin
from migrator.learn.course import Course, CourseSettings
from migrator.learn.model import Model
from migrator.learn.registry import benchmark
from migrator.learn.retraining import Settings
from migrator.learn.trial import require_works


@pytest.fixture(scope="module")
def material() -> Material:
    return benchmark("nc-synthetic").load(Origin())


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("BuildRaises", r"build\(\) of .* failed \(ValueError: no network for 10 and 0 today\)"),
        ("BuildNothing", r"build\(\) of .* gave None and no model"),
        ("BuildOfAnInstance", r"build\(\) of .* failed \(TypeError"),
        ("FlatScores", r"infer\(\) of .* gave scores of shape \(4,\), not \(4, 10\)"),
        ("FewScores", r"infer\(\) of .* gave scores of shape \(4, 3\)"),
        ("ListedScores", r"infer\(\) of .* gave a list and no array of numbers"),
        ("NoLoss", r"the loss that train_step\(\) gave \(None\)"),
        ("StepRaises", r"train_step\(\) of .* failed \(RuntimeError: boom"),
        ("NoCopy", r"copy\.deepcopy\(\) of .* failed \(TypeError: cannot copy a socket\)"),
        ("SameCopy", r"copy\.deepcopy\(\) of .* gave the model itself"),
        ("SaveWithoutTraining", r"save\(\) of .* failed \(TypeError"),
        ("SaveElsewhere", r"save\(\) of .* wrote no file of the very name"),
        ("LoadRaises", r"load\(\) of .* failed \(RuntimeError: cannot load weights\)"),
        ("RateInWords", r"learning_rate of .* is '1e-3' and no number above 0"),
        ("ExampleOfOne", r"example\(\) of .* no array of two inputs"),
    ],
)
def test_a_class_that_is_almost_a_model_is_told_what_is_wrong(
    material: Material, name: str, said: str
) -> None:
    settings = CourseSettings("nc-synthetic", f"support.faulty_models:{name}", Settings())
    with pytest.raises(InputError, match=said):
        Course(settings, material)


def test_the_model_itself_is_left_as_it_is(material: Material) -> None:
    model = NearestMean.build(10, 0)
    require_works("mine", cast(Model, model), material.train, 10)
    assert not np.any(model.counts)
