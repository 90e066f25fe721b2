"""What a class must have to be a model; a user's own is found and tried before it is trained."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from support.means_model import Means

from migrator.core.errors import InputError
from migrator.learn.benchmark_run import BenchmarkRun, BenchmarkSettings
from migrator.learn.benchmarks.benchmark import Material, Origin
from migrator.learn.model import METHODS, Model, require_model
from migrator.learn.registry import benchmark, model_class, models, require_works
from migrator.learn.retraining import RetrainingSettings
from migrator.learn.zoo import SmallCnn

OWN = """
from migrator.learn.zoo import SmallCnn

class Mine(SmallCnn):
    pass

class Half:
    modality = "images"
    def infer(self, inputs):
        return inputs

NUMBER = 3
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "own_models.py").write_text(OWN)
    (tmp_path / "broken_models.py").write_text("1 / 0")
    (tmp_path / "attribute_models.py").write_text("import os\nos.no_such_thing\nclass Mine: pass")
    (tmp_path / "ending_models.py").write_text("raise SystemExit(0)")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "own_models", raising=False)
    return "own_models"


def test_the_zoo_holds_the_papers_models_and_small_ones() -> None:
    assert set(models()) >= {
        *("mobilenet-v2", "resnet-50", "inception-v3", "convnext-b", "vit-b-16", "bert-base"),
        *("small-cnn", "small-text"),
    }
    for name, kind in models().items():
        assert require_model(kind, name) is kind


def test_a_class_of_ones_own_is_found_by_its_path(own: str) -> None:
    assert issubclass(model_class(f"{own}:Mine"), SmallCnn)


def test_every_missing_method_is_named_at_once(own: str) -> None:
    with pytest.raises(InputError) as caught:
        model_class(f"{own}:Half")
    said = str(caught.value)
    assert all(f"{method}()" in said for method in METHODS if method != "infer")
    assert "learning_rate" in said
    assert "infer()" not in said
    assert "modality" not in said


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("own_models:NUMBER", "is not a class"),
        ("own_models:Absent", "has no Absent"),
        ("absent_models:Mine", "absent_models cannot be imported"),
        ("broken_models:Mine", "ZeroDivisionError"),
        ("attribute_models:Mine", "importing attribute_models failed .AttributeError"),
        ("ending_models:Mine", "importing ending_models failed .SystemExit"),
        ("own-models:Mine", "write package.module:Class"),
        ("own_models.py", "is a file; name what is in it: own_models:NAME"),
        ("own_models:", "write package.module:Class"),
    ],
)
@pytest.mark.usefixtures("own")
def test_a_path_that_leads_nowhere_is_refused(path: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        model_class(path)


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
