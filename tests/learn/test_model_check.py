"""A user's own class is tried before it is trained: what it cannot do is one sentence."""

from __future__ import annotations

from typing import cast

import numpy as np
import pytest
from support.means_model import Means

from migrator.core.errors import InputError
from migrator.learn.benchmark_run import BenchmarkRun, BenchmarkSettings
from migrator.learn.benchmarks.benchmark import Material, Origin
from migrator.learn.model import Model
from migrator.learn.registry import benchmark, require_works
from migrator.learn.retraining import RetrainingSettings


@pytest.fixture(scope="module")
def material() -> Material:
    return benchmark("nc-synthetic").load(Origin())


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("BuildRaises", r"build\(\) of .* failed \(ValueError: no network for 10 and 0 today\)"),
        ("BuildNothing", r"build\(\) of .* returned None instead of a model"),
        ("FlatScores", r"infer\(\) of .* returned scores of shape \(4,\), not \(4, 10\)"),
        ("ListedScores", r"infer\(\) of .* returned a list instead of an array of numbers"),
        ("StepRaises", r"train_step\(\) of .* failed \(RuntimeError: boom"),
        ("NoCopy", r"copy\.deepcopy\(\) of .* failed \(TypeError: cannot copy a socket\)"),
        ("SameCopy", r"copy\.deepcopy\(\) of .* returned the model itself"),
        ("SaveElsewhere", r"save\(\) of .* did not write the file"),
        ("LoadRaises", r"load\(\) of .* failed \(RuntimeError: cannot load weights\)"),
        ("RateInWords", r"learning_rate of .* is '1e-3', not a number above 0"),
    ],
)
def test_a_class_that_is_almost_a_model_is_told_what_is_wrong(
    material: Material, name: str, said: str
) -> None:
    settings = BenchmarkSettings(
        "nc-synthetic", f"support.faulty_models:{name}", RetrainingSettings()
    )
    with pytest.raises(InputError, match=said):
        BenchmarkRun(settings, material)


def test_the_model_itself_is_left_as_it_is(material: Material) -> None:
    model = Means.build(10, 0)
    require_works("mine", cast(Model, model), material.train, 10)
    assert not np.any(model.counts)
