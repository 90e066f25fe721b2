"""ViT-B/16 and BERT-base as transformers builds them; nothing is downloaded."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from migrator.learn.model import Inputs, Modality
from migrator.learn.text import NOTHING, TOKENS, VOCABULARY
from migrator.learn.torch_model import TorchModel, initialised_from
from migrator.learn.zoo.transformers_network import TransformersImages, network_from

_PATCH = 16
_UNMASKED = "unmasked"


class VitB16(TransformersImages):
    """Patches of 16 pixels under attention."""

    name = "vit-b-16"
    summary = "ViT-B/16, 86 M weights, images of 224 pixels (a multiple of 16 when training)"
    learning_rate = 3e-4

    @classmethod
    def network_of(cls, classes: int, pixels: int = 224) -> nn.Module:
        """With positions for as many patches as the images have."""
        built = network_from(
            "ViTConfig", "ViTForImageClassification", num_labels=classes, image_size=pixels
        )
        _without_mask(built)
        return built

    @classmethod
    def build(cls, classes: int, seed: int, pixels: int | None = None) -> Self:
        """A new model; the side is rounded down to whole patches."""
        side = cls.side_of(pixels) // _PATCH * _PATCH
        with initialised_from(seed):
            return cls(cls.network_of(classes, side), classes, seed, side)

    def unfitting(self, names: list[str]) -> str:
        """Weights for images of another size have other positions, and else fit."""
        if all("position_embeddings" in each for each in names):
            return (
                f"its weights are for images of another side than {self.pixels}; give that side "
                "with --pixels, or leave --pixels out"
            )
        return super().unfitting(names)


def _unmasked(
    _module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    _mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **_unused: object,
) -> tuple[Tensor, None]:
    said = nn.functional.scaled_dot_product_attention(
        query, key, value, dropout_p=dropout, scale=scaling
    )
    return said.transpose(1, 2).contiguous(), None


def _without_mask(network: Any) -> None:
    """Every patch sees every other.

    While a CUDA graph is captured transformers cannot know that and adds a mask of ones, with
    which the attention is several times slower.
    """
    transformers = import_module("transformers")
    if hasattr(transformers, "AttentionInterface"):
        transformers.AttentionInterface.register(_UNMASKED, _unmasked)
        network.config._attn_implementation = _UNMASKED


class BertBase(TorchModel):
    """Twelve layers of attention over words."""

    name = "bert-base"
    summary = "BERT-base, 109 M weights, 128 hashed words"
    modality = Modality.TEXT
    learning_rate = 1e-4

    @classmethod
    def build(cls, classes: int, seed: int) -> Self:
        """A new model with random weights from the seed."""
        with initialised_from(seed):
            network = network_from(
                "BertConfig",
                "BertForSequenceClassification",
                num_labels=classes,
                vocab_size=VOCABULARY,
                pad_token_id=NOTHING,
            )
        return cls(network, classes, seed)

    def logits(self, inputs: Tensor) -> Tensor:
        """Scores of token numbers."""
        tokens = inputs.to(torch.int64)
        there = (tokens != NOTHING).to(torch.int64)
        said: Tensor = self.network(input_ids=tokens, attention_mask=there).logits
        return said

    def example(self, batch: int) -> Inputs:
        """Random words."""
        return np.random.default_rng(0).integers(2, VOCABULARY, (batch, TOKENS), dtype=np.int32)


MODELS = (VitB16, BertBase)
