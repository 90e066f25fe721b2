"""Networks of torchvision and transformers with random weights, and small ones for a CPU."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from migrator.learn.image_model import ImageModel
from migrator.learn.registry import torchvision, transformers
from migrator.learn.text import PADDING, VOCABULARY
from migrator.learn.torch_model import TextModel, seeded_weights


class InceptionV3(ImageModel):
    """Mixed convolutions; without the auxiliary classifier."""

    name = "inception-v3"
    summary = "Inception-v3, 22 M weights, images of 299 pixels (75 and more); needs torchvision"
    learning_rate = 1e-3
    head = "fc"
    own_pixels = 299
    least_pixels = 75

    @classmethod
    def network_of(cls, classes: int) -> nn.Module:
        """The network of torchvision, whatever the size of the images."""
        built: nn.Module = torchvision().models.inception_v3(
            weights=None, num_classes=classes, aux_logits=False, init_weights=True
        )
        return built


class SmallCnn(ImageModel):
    """Three convolutions, each halving the image."""

    name = "small-cnn"
    summary = "three convolutions, 0.1 M weights, images of 32 pixels; trains on a CPU"
    learning_rate = 3e-3
    own_pixels = 32
    least_pixels = 8

    @classmethod
    def network_of(cls, classes: int) -> nn.Module:
        """Convolution, normalisation; a mean over what is left of the image."""
        widths = (3, 32, 64, 128)
        layers: list[nn.Module] = []
        for before, after in pairwise(widths):
            layers += [
                # strides, not pooling: on some CPUs pooling takes longer than the convolution
                nn.Conv2d(before, after, 3, stride=2, padding=1, bias=False),
                nn.BatchNorm2d(after),
                nn.ReLU(),
            ]
        net = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        net.add_module("classifier", nn.Linear(widths[-1], classes))
        return net


class _Bag(nn.Module):
    """The mean of the words' vectors, normalised, then one layer."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        width = 64
        self.words = nn.Embedding(VOCABULARY, width, padding_idx=PADDING)
        nn.init.normal_(self.words.weight, std=0.1)
        # normalised, so that what was learned before never drowns what is new
        self.hidden = nn.Sequential(nn.LayerNorm(width), nn.Dropout(0.3))
        self.classifier = nn.Linear(width, classes)

    def forward(self, tokens: Tensor) -> Tensor:
        there = (tokens != PADDING).unsqueeze(-1)
        mean = (self.words(tokens) * there).sum(1) / there.sum(1).clamp(min=1)
        output: Tensor = self.classifier(self.hidden(mean))
        return output


class SmallText(TextModel):
    """A bag of words."""

    name = "small-text"
    summary = "a bag of hashed words, 2 M weights; trains on a CPU"
    learning_rate = 3e-3

    @classmethod
    def network_of(cls, classes: int) -> nn.Module:
        """A bag of words."""
        return _Bag(classes)

    def logits(self, inputs: Tensor) -> Tensor:
        """Scores of token numbers."""
        output: Tensor = self.network(inputs.to(torch.int64))
        return output


def network_from(configuration: str, network: str, **settings: object) -> nn.Module:
    """A newly initialised network of transformers; nothing is downloaded."""
    library = transformers()
    built: nn.Module = getattr(library, network)(getattr(library, configuration)(**settings))
    return built


class TransformersImages(ImageModel):
    """An image network of transformers."""

    family: ClassVar[str]
    """Prefix of its classes in transformers."""
    settings: ClassVar[Mapping[str, object]] = {}

    @classmethod
    def network_of(cls, classes: int) -> nn.Module:
        """The published network, whatever the size of the images."""
        return network_from(
            f"{cls.family}Config",
            f"{cls.family}ForImageClassification",
            num_labels=classes,
            **cls.settings,
        )

    def image_logits(self, images: Tensor) -> Tensor:
        """Scores of normalised images."""
        output: Tensor = self.network(pixel_values=images).logits
        return output


class MobileNetV2(TransformersImages):
    """Inverted residuals, for small devices."""

    name = "mobilenet-v2"
    summary = "MobileNetV2, 3.5 M weights, images of 224 pixels (32 and more when training)"
    learning_rate = 1e-3
    family = "MobileNetV2"


class ResNet50(TransformersImages):
    """Residual bottlenecks."""

    name = "resnet-50"
    summary = "ResNet-50, 26 M weights, images of 224 pixels (32 and more when training)"
    learning_rate = 1e-3
    family = "ResNet"


class ConvNextB(TransformersImages):
    """Convolutions in the manner of transformers."""

    name = "convnext-b"
    summary = "ConvNeXt-B, 88 M weights, images of 224 pixels (32 and more when training)"
    learning_rate = 3e-4
    family = "ConvNext"
    settings: ClassVar = {"depths": [3, 3, 27, 3], "hidden_sizes": [128, 256, 512, 1024]}


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
        with seeded_weights(seed):
            return cls(cls.network_of(classes, side), classes, seed, side)

    def mismatch(self, names: list[str]) -> str:
        """Weights for images of another size have other positions, and else fit."""
        if all("position_embeddings" in each for each in names):
            return (
                f"its weights are for images of another side than {self.pixels}; give that side "
                "with --pixels, or leave --pixels out"
            )
        return super().mismatch(names)


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
    output = nn.functional.scaled_dot_product_attention(
        query, key, value, dropout_p=dropout, scale=scaling
    )
    return output.transpose(1, 2).contiguous(), None


def _without_mask(network: Any) -> None:
    """Every patch sees every other.

    While a CUDA graph is captured transformers cannot know that and adds a mask of ones, with
    which the attention is several times slower.
    """
    library = transformers()
    if hasattr(library, "AttentionInterface"):
        library.AttentionInterface.register(_UNMASKED, _unmasked)
        network.config._attn_implementation = _UNMASKED


class BertBase(TextModel):
    """Twelve layers of attention over words."""

    name = "bert-base"
    summary = "BERT-base, 109 M weights, 128 hashed words"
    learning_rate = 1e-4

    @classmethod
    def network_of(cls, classes: int) -> nn.Module:
        """The published size, with the vocabulary of hashed words."""
        return network_from(
            "BertConfig",
            "BertForSequenceClassification",
            num_labels=classes,
            vocab_size=VOCABULARY,
            pad_token_id=PADDING,
        )

    def logits(self, inputs: Tensor) -> Tensor:
        """Scores of token numbers."""
        tokens = inputs.to(torch.int64)
        there = (tokens != PADDING).to(torch.int64)
        output: Tensor = self.network(input_ids=tokens, attention_mask=there).logits
        return output


MODELS = (InceptionV3, SmallCnn, SmallText, MobileNetV2, ResNet50, ConvNextB, VitB16, BertBase)
