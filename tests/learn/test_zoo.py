"""The zoo's large models: right in size and shape. On torch's meta device nothing is computed."""

from __future__ import annotations

import sys
from importlib.util import find_spec

import pytest
import torch

from migrator.core.errors import InputError
from migrator.learn.image_model import ImageModel
from migrator.learn.registry import build, models
from migrator.learn.zoo import BertBase, VitB16

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
