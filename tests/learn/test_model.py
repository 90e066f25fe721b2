"""What a class must have to be a model, and how a user's own is found."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from migrator.core.errors import InputError
from migrator.learn.model import METHODS, require_model
from migrator.learn.registry import model_class, models
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
        ("own_models:", "write package.module:Class"),
    ],
)
@pytest.mark.usefixtures("own")
def test_a_path_that_leads_nowhere_is_refused(path: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        model_class(path)
