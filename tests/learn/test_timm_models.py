"""`timm:` models: scores of timm itself, weights from files and folders, and what is refused."""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from support.small_models import train_copy

from migrator.core.errors import InputError
from migrator.learn.model import Modality
from migrator.learn.registry import build, model_class, timm
from migrator.learn.timm_models import TimmNamed

pytestmark = pytest.mark.skipif(find_spec("timm") is None, reason="the extra timm is not installed")
SMALL = "test_vit2"
"""One of timm's own small networks for tests."""


def built(name: str, classes: int = 3, **options: Any) -> TimmNamed:
    model = build(name, classes, 0, **options)
    assert isinstance(model, TimmNamed)
    return model


def save_folder(folder: Path, classes: int = 3) -> Any:
    """A network as timm pushes it to the hub."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        network = timm().create_model(SMALL, num_classes=classes).eval()
    about = {"mean": [0.1, 0.2, 0.3], "std": [0.5, 0.6, 0.7], "num_classes": classes}
    config = {"architecture": SMALL, "num_classes": classes, "pretrained_cfg": about}
    (folder / "config.json").write_text(json.dumps(config))
    save_file(network.state_dict(), folder / "model.safetensors")
    return network


def test_scores_and_preparation_are_those_of_timm(tmp_path: Path) -> None:
    network = save_folder(tmp_path)
    model = built(f"timm:local-dir:{tmp_path}")
    images = model.example(2)
    mean, spread = (
        torch.tensor(values).view(3, 1, 1) for values in ([0.1, 0.2, 0.3], [0.5, 0.6, 0.7])
    )
    with torch.inference_mode():
        wanted = network((torch.from_numpy(images) / 255 - mean) / spread).numpy()
    np.testing.assert_allclose(model.infer(images), wanted, atol=1e-5)
    assert model.weights == f"the folder {tmp_path.name}"
    assert model.seen.all()


def test_a_copy_trains_and_its_weights_come_back(tmp_path: Path) -> None:
    model = built(f"timm:{SMALL}", pixels=64)
    assert model.weights == "random, seed 0"
    assert model.modality is Modality.IMAGES
    assert model.example(4).shape == (4, 3, 64, 64)
    assert train_copy(model, model, tmp_path / "trained", 1e-3)[0] > 0


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("timm:resnet19", "timm has no 'resnet19'; did you mean .*resnet18"),
        ("timm:resnet18.a1_in2k", r"no weights 'resnet18.a1_in2k'; it has .*resnet18.a1_in1k"),
        ("timm:", "a name is missing after timm:"),
        ("timm:local-dir:/no/folder", "there is no folder '/no/folder'"),
    ],
)
def test_a_name_that_does_not_exist_is_refused(name: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        build(name, 3, 0)


def test_a_folder_of_another_library_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "vit"}')
    with pytest.raises(InputError, match="is not of timm; use hf:"):
        build(f"timm:local-dir:{tmp_path}", 3, 0)


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({"num_classes": "x"}, "num_classes"),
        ({"input_size": []}, "input_size"),
        ({"std": [0, 0, 0]}, "mean or std"),
        ({"classifier": 5}, "classifier"),
    ],
)
def test_odd_values_in_a_folder_are_one_sentence(
    change: dict[str, Any], wrong: str, tmp_path: Path
) -> None:
    save_folder(tmp_path)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    config["pretrained_cfg"] |= change
    config |= {key: value for key, value in change.items() if key == "num_classes"}
    path.write_text(json.dumps(config))
    with pytest.raises(InputError, match=f"{wrong} in its config.json is missing or not usable"):
        built(f"timm:local-dir:{tmp_path}")


def test_images_of_another_size_than_the_network_reads_are_refused() -> None:
    with pytest.raises(InputError, match="cannot read images of side 9; leave the size out"):
        build(f"timm:{SMALL}", 3, 0, pixels=9)


def test_without_timm_its_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = model_class("timm:resnet18")
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(InputError, match=r"needs timm.*pip install 'migrator-gpu\[timm\]'"):
        kind.build(3, 0)
