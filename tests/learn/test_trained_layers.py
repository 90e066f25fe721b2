"""Frozen layers stay as they are, cost no gradient, and learn again when all layers are trained."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from support.small_models import save_bert, save_convnext
from support.tiny_model import Tiny
from torch import Tensor

from migrator.core.errors import InputError
from migrator.core.training import Layers
from migrator.learn.image_model import ImageModel
from migrator.learn.model import Inputs, Labels
from migrator.learn.registry import build, models
from migrator.learn.torch_model import TorchModel
from migrator.learn.trained_layers import freeze
from migrator.learn.zoo import BertBase, SmallCnn, SmallText

LABELS = np.arange(8) % 4


def batch(model: TorchModel) -> tuple[Inputs, Labels]:
    inputs = model.example(8)
    return np.random.default_rng(1).permuted(inputs, axis=0), LABELS


def tensors(model: TorchModel) -> dict[str, Tensor]:
    """Weights and statistics."""
    return {name: tensor.clone() for name, tensor in model.network.state_dict().items()}


def changed_by_training(model: TorchModel) -> set[str]:
    before = tensors(model)
    for _ in range(2):
        model.train_step(*batch(model), 1e-2)
    return {name for name, tensor in tensors(model).items() if not tensor.equal(before[name])}


def of_folder(folder: Path) -> TorchModel:
    model = build(f"hf:{folder}", 4, 0)
    assert isinstance(model, TorchModel)
    return model


def convnext(folder: Path) -> TorchModel:
    save_convnext(folder)
    return of_folder(folder)


def bert(folder: Path) -> TorchModel:
    save_bert(folder)
    return of_folder(folder)


@pytest.mark.parametrize(
    ("built", "layers", "prefixes"),
    [
        (lambda _: SmallCnn.build(4, 0, 16), Layers.HEAD, ("classifier",)),
        (lambda _: SmallCnn.build(4, 0, 16), Layers.LAST_BLOCK, ("6", "7", "classifier")),
        (lambda _: SmallText.build(4, 0), Layers.HEAD, ("classifier",)),
        (convnext, Layers.HEAD, ("classifier",)),
        (
            convnext,
            Layers.LAST_BLOCK,
            ("convnext.encoder.stages.1", "convnext.layernorm", "classifier"),
        ),
        (bert, Layers.HEAD, ("classifier",)),
    ],
)
def test_only_the_layers_asked_for_change(
    built: Callable[[Path], TorchModel], layers: Layers, prefixes: tuple[str, ...], tmp_path: Path
) -> None:
    model = built(tmp_path)
    model.train_only(layers)
    expected = {name for name in tensors(model) if name.startswith(prefixes)}
    # weights alone: a layer of normalisation also counts its batches
    weights = {name for name, _ in model.network.named_parameters()}
    changed = changed_by_training(model)
    assert changed <= expected
    assert changed & weights == expected & weights
    with_gradient = {
        name for name, weight in model.network.named_parameters() if weight.grad is not None
    }
    assert with_gradient == expected & weights
    assert model._optimiser is not None
    assert len(model._optimiser.state_dict()["state"]) == len(with_gradient)


def test_all_layers_learn_again_afterwards() -> None:
    model = SmallCnn.build(4, 0, 16)
    every = changed_by_training(SmallCnn.build(4, 0, 16))
    model.train_only(Layers.HEAD)
    assert changed_by_training(model) < every
    model.end_training()
    assert changed_by_training(model) == every


BLOCKS = {
    "mobilenet-v2": ("mobilenet_v2.layer.15.", "mobilenet_v2.conv_1x1.", "classifier."),
    "resnet-50": ("resnet.encoder.stages.3.", "classifier."),
    "convnext-b": ("convnext.encoder.stages.3.", "convnext.layernorm.", "classifier."),
    "vit-b-16": ("vit.layers.11.", "vit.encoder.layer.11.", "vit.layernorm.", "classifier."),
    "bert-base": ("bert.encoder.layer.11.", "bert.pooler.", "classifier."),
    "inception-v3": ("Mixed_7c.", "fc."),
    "efficientnet-lite0": ("blocks.6.", "conv_head.", "bn2.", "classifier."),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_the_last_block_of_a_packaged_model_is_found(name: str) -> None:
    kind = models()[name]
    assert issubclass(kind, ImageModel | BertBase)
    with torch.device("meta"):
        network = kind.network_of(10)
    frozen = freeze(network, Layers.LAST_BLOCK, kind.head, kind.last_block, name)
    weights = [weight for weight, _ in network.named_parameters()]
    trained = [weight for weight in weights if weight not in frozen.parameters]
    assert trained == [weight for weight in weights if weight.startswith(BLOCKS[name])]
    assert 0 < len(trained) < len(weights) / 2


class Headless(Tiny):
    head = "classifier"


def test_without_a_list_of_blocks_the_head_can_be_trained_alone() -> None:
    model = Tiny.build(4, 0)
    model.train_only(Layers.HEAD)
    with pytest.raises(InputError, match="the last block of Tiny is not known; set its attribute"):
        model.train_only(Layers.LAST_BLOCK)
    assert changed_by_training(model), "refused, but still able to learn"


@pytest.mark.parametrize("layers", [Layers.HEAD, Layers.LAST_BLOCK])
def test_without_a_known_head_all_layers_must_be_trained(layers: Layers) -> None:
    with pytest.raises(InputError, match="the head of Headless is not known"):
        Headless.build(4, 0).train_only(layers)
