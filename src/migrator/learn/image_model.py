"""Image classifiers, and those of timm: sizes, normalisation and augmentation of pictures."""

from __future__ import annotations

import difflib
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor, nn

from migrator.core.errors import InputError
from migrator.learn.depthwise import has_depthwise
from migrator.learn.model import Inputs, Modality, damaged
from migrator.learn.model_folder import ModelFolder, model_folder
from migrator.learn.registry import timm
from migrator.learn.torch_model import TorchModel, seeded_weights

_SMALLEST = 2
"""The smallest side that can be shifted by a pixel."""
BREAK_EVEN_STEPS = 400
"""Steps from which kernels compiled for channels last are worth their compilation. On an H200
EfficientNet-Lite0 takes 10 s for the first step and 16 ms for every other one, and without them
1.5 s and 36 ms."""
_SHIFT = 1 / 8
"""The largest shift of a training image, relative to its side."""


class ImageModel(TorchModel):
    """An image classifier that resizes and normalises square images to side `pixels`."""

    modality = Modality.IMAGES
    own_pixels: ClassVar[int] = 224
    least_pixels: ClassVar[int] = 32
    mean: ClassVar[Sequence[float]] = (123.7, 116.3, 103.5)
    spread: ClassVar[Sequence[float]] = (58.4, 57.1, 57.4)
    """Mean and standard deviation of the pixels that its weights expect; these are ImageNet's."""
    interpolation: ClassVar[str] = "bilinear"
    crop: ClassVar[float] = 1.0
    """Part of the side that is left of a resized picture, around its middle."""

    def __init__(self, network: nn.Module, classes: int, seed: int, pixels: int) -> None:
        super().__init__(network, classes, seed)
        self.pixels = self.input_pixels = pixels
        """Sides of the network's images and of those that it is given, which are resized."""
        self._short = False
        """Whether only a short training follows."""
        self._mean = torch.tensor(self.mean).view(1, 3, 1, 1)
        self._spread = torch.tensor(self.spread).view(1, 3, 1, 1)

    @classmethod
    @abstractmethod
    def network_of(cls, classes: int) -> nn.Module:
        """A newly initialised network; the same for images of any size."""

    @classmethod
    def build(cls, classes: int, seed: int, pixels: int | None = None) -> Self:
        """A new model; smaller images train faster."""
        side = cls.side_of(pixels)
        with seeded_weights(seed):
            return cls(cls.network_of(classes), classes, seed, side)

    @classmethod
    def side_of(cls, pixels: int | None) -> int:
        """The requested side; InputError if the network cannot read such images."""
        side = cls.own_pixels if pixels is None else pixels
        if not cls.least_pixels <= side <= 1024:
            raise InputError(
                f"pixels: {cls.name} cannot read images of side {side}; give {cls.least_pixels} "
                "to 1024"
            )
        return side

    def to(self, device: str) -> None:
        """Move to "cpu" or "cuda"."""
        super().to(device)
        self._mean, self._spread = self._mean.to(device), self._spread.to(device)
        self._lay_out()

    def expect_training(self, steps: int) -> None:
        """Choose the layout for a training of `steps` steps and the evaluations around it."""
        self._short = steps < BREAK_EVEN_STEPS and has_depthwise(self.network)
        self._lay_out()

    def begin_serving(self, batch: int) -> None:
        """Optimise for inference of batches of up to `batch`."""
        self._short = False
        self._lay_out()
        super().begin_serving(batch)

    @property
    def memory_format(self) -> torch.memory_format:
        """Channels last on a GPU, where convolutions then need no copies in another layout.

        Not for short trainings of depthwise convolutions: their kernels are compiled for that
        layout, which takes longer than the training.
        """
        last = self.device.type == "cuda" and not self._short
        return torch.channels_last if last else torch.contiguous_format

    def _lay_out(self) -> None:
        network: Any = self.network
        network.to(memory_format=self.memory_format)

    def logits(self, inputs: Tensor) -> Tensor:
        """Scores of uint8 images of any square size."""
        return self.image_logits(self._normalised(inputs))

    def image_logits(self, images: Tensor) -> Tensor:
        """Scores of normalised images of the network's size."""
        output: Tensor = self.network(images)
        return output

    def augmented(self, inputs: Tensor) -> Tensor:
        """The images shifted a little, half of them mirrored."""
        _require_images(inputs)
        mirrored = torch.rand(len(inputs), device="cpu").to(inputs.device) < 0.5
        inputs = torch.where(mirrored[:, None, None, None], inputs.flip(-1), inputs)
        side = inputs.shape[-1]
        most = max(1, int(side * _SHIFT))
        down, right = (int(torch.randint(2 * most + 1, ())) for _ in range(2))
        wide = nn.functional.pad(inputs.float(), (most,) * 4, mode="reflect")
        return wide[..., down : down + side, right : right + side]

    def example(self, batch: int) -> Inputs:
        """Random pixels."""
        size = (batch, 3, self.input_pixels, self.input_pixels)
        return np.random.default_rng(0).integers(0, 256, size, dtype=np.uint8)

    def _normalised(self, inputs: Tensor) -> Tensor:
        _require_images(inputs)
        images = inputs.float()
        if images.shape[-1] != self.pixels:
            images = self._resized(images)
        seen = (images - self._mean) / self._spread
        return seen.contiguous(memory_format=self.memory_format)

    def _resized(self, images: Tensor) -> Tensor:
        side = max(self.pixels, round(self.pixels / self.crop))
        smooth = self.interpolation != "nearest-exact"
        images = nn.functional.interpolate(
            images, size=(side, side), mode=self.interpolation, antialias=smooth
        )
        if self.interpolation == "bicubic":
            images = images.clamp(0, 255)  # it overshoots at edges
        first = (side - self.pixels) // 2
        return images[..., first : first + self.pixels, first : first + self.pixels]

    def require_size(self) -> None:
        """InputError unless the network reads images of side `pixels`."""
        self.network.eval()
        try:
            with torch.inference_mode():
                self.image_logits(torch.zeros(1, 3, self.pixels, self.pixels))
        except (RuntimeError, ValueError, AssertionError) as error:
            raise InputError(
                f"pixels: {self.name} cannot read images of side {self.pixels}; leave the size "
                f"out for {self.own_pixels}"
            ) from error


def is_normalisation(mean: object, spread: object) -> bool:
    """Whether these are a mean and a deviation of three colours."""
    try:
        found = np.array((mean, spread), dtype=float)
    except (TypeError, ValueError):
        return False
    return found.shape == (2, 3) and bool(np.isfinite(found).all() and found[1].all())


def _require_images(inputs: Tensor) -> None:
    """Refuse images that would silently be stretched or treated as grey."""
    square = inputs.ndim == 4 and inputs.shape[1] == 3 and inputs.shape[2] == inputs.shape[3]
    if not square or inputs.shape[2] < _SMALLEST:
        raise InputError(
            f"inputs: images are (n, 3, side, side) with sides of at least {_SMALLEST}, these are "
            f"{tuple(inputs.shape)}; crop them, or give grey ones three equal channels"
        )


PREFIX, _FOLDER_FORM = "timm:", "timm:local-dir:FOLDER"
_FOLDERS = ("hf-hub:", "hf_hub:", "local-dir:")
"""Prefixes with which timm names a model of the hub or in a folder."""


def timm_class(name: str) -> type[TorchModel]:
    """The class of the model called `name`; nothing is read yet."""
    wanted = name.removeprefix(PREFIX)
    if not wanted:
        raise InputError("model: a name is missing after timm:, such as timm:resnet18")
    return type(name, (TimmNamed,), {"name": name, "summary": "from timm", "wanted": wanted})


class TimmImages(ImageModel):
    """An image network that timm builds."""

    architecture: ClassVar[str]
    """Its name in timm."""

    def __init__(self, network: nn.Module, classes: int, seed: int, pixels: int) -> None:
        super().__init__(network, classes, seed, pixels)
        about: Any = network.pretrained_cfg
        named = about.get("classifier") or "classifier"
        self.head = named if isinstance(named, str) else tuple(named)

    @classmethod
    def network_of(cls, classes: int) -> nn.Module:
        """The network for any size of images; nothing is downloaded."""
        built: nn.Module = timm().create_model(
            cls.architecture, pretrained=False, num_classes=classes
        )
        return built


@dataclass(frozen=True)
class _Described:
    """A network of timm: how to build it, and how its weights want pictures."""

    architecture: str
    about: dict[str, Any]
    """timm's description, `pretrained_cfg`."""
    folder: ModelFolder | None
    """With the weights, where they are in a folder already."""


class TimmNamed(TimmImages):
    """A network that the user names.

    A name with a tag, as in resnet18.a1_in1k, stands for weights of the hub; one without a tag
    for random weights.
    """

    learning_rate = 5e-4
    least_pixels = 8
    wanted: ClassVar[str]

    @classmethod
    def build(cls, classes: int, seed: int, pixels: int | None = None) -> Self:
        """A new model for images of the published size unless another one is given."""
        described = cls._described()
        about = described.about
        cls.own_pixels = int(about["input_size"][-1])
        cls.mean = tuple(255 * each for each in about["mean"])
        cls.spread = tuple(255 * each for each in about["std"])
        bicubic = about.get("interpolation") == "bicubic"
        cls.interpolation = "bicubic" if bicubic else "bilinear"
        side = cls.side_of(pixels)
        with seeded_weights(seed):
            built = cls(_network(described, classes, side), classes, seed, side)
        if pixels is not None:
            built.require_size()
        return built

    def load_pretrained(self) -> None:
        """Load the weights that the name stands for; none without a tag."""
        described = self._described()
        folder, about = described.folder, described.about
        if folder is None:
            hub = about.get("hf_hub_id")
            if not hub or "." not in self.wanted:
                return
            folder = model_folder(hub, _FOLDER_FORM)
        folder.require_weights()
        file = next(iter(sorted(folder.path.glob("*.safetensors"))))
        classes = int(about["num_classes"])
        try:
            theirs = _network(described, classes, self.pixels, weights=str(file))
        except InputError:
            raise
        except Exception as error:
            raise damaged(file) from error
        self.begin_from(theirs.state_dict(), classes or None, folder.words, file)

    @classmethod
    def _described(cls) -> _Described:
        library, prefix = timm(), next((e for e in _FOLDERS if cls.wanted.startswith(e)), None)
        if prefix is None:
            if not library.is_model(cls.wanted.partition(".")[0]):
                raise _unknown(cls.wanted)
            try:
                about = library.get_pretrained_cfg(cls.wanted, allow_unregistered=False)
            except RuntimeError as error:
                raise _unknown_tag(cls.wanted) from error
            return _Described(cls.wanted, about.to_dict(), None)
        folder = model_folder(cls.wanted.removeprefix(prefix), _FOLDER_FORM)
        config = folder.config()
        architecture, about = config.get("architecture"), config.get("pretrained_cfg")
        if not isinstance(architecture, str) or not isinstance(about, dict):
            raise InputError(
                f"{folder.path}: its config.json is not of timm; use hf: for models of transformers"
            )
        if not library.is_model(architecture):
            raise _unknown(architecture)
        usual = library.get_pretrained_cfg(architecture.partition(".")[0])
        known, keys = usual.to_dict(), {field.name for field in fields(usual)}
        classes = config.get("num_classes", about.get("num_classes", 0))
        about = {key: each for key, each in about.items() if key in keys}  # later versions add some
        described = {**known, **about, "num_classes": classes}
        _require_usable(described, folder)
        return _Described(architecture, described, folder)


def _require_usable(about: dict[str, Any], folder: ModelFolder) -> None:
    """InputError unless a folder's description has the types that timm writes."""
    sides, classes = about.get("input_size"), about["num_classes"]
    wrong = None
    if not isinstance(classes, int) or classes < 0:
        wrong = "num_classes"
    elif not isinstance(sides, list | tuple) or len(sides) != 3 or not isinstance(sides[-1], int):
        wrong = "input_size"
    elif not isinstance(about.get("classifier", ""), str | list | tuple | None):
        wrong = "classifier"
    elif not is_normalisation(about.get("mean"), about.get("std")):
        wrong = "mean or std"
    if wrong is not None:
        raise InputError(
            f"{folder.path}: {wrong} in its config.json is missing or not usable; copy it again"
        )


def _network(found: _Described, classes: int, side: int, weights: str | None = None) -> nn.Module:
    """The network, with the weights in a file or random ones."""
    about = {**found.about, "file": weights, "hf_hub_id": None, "url": ""}
    more = {}
    if about.get("fixed_input_size") and side != about["input_size"][-1]:
        more = {"img_size": side}  # weights for positions are interpolated
    try:
        built: nn.Module = timm().create_model(
            found.architecture,
            pretrained=weights is not None,
            pretrained_cfg=about,
            num_classes=classes,
            **more,
        )
    except (TypeError, AssertionError, ValueError) as error:
        if not more:
            raise
        raise InputError(
            f"pixels: timm:{found.architecture} cannot read images of side {side}; leave the size "
            f"out for {about['input_size'][-1]}"
        ) from error
    return built


def _unknown(name: str) -> InputError:
    known = timm().list_models()
    near = difflib.get_close_matches(name.partition(".")[0][:100], known, n=3, cutoff=0.4)
    hint = f"did you mean {' or '.join(near)}?" if near else "timm.list_models() lists its models"
    return InputError(f"model: timm has no {name[:100]!r}; {hint}")


def _unknown_tag(name: str) -> InputError:
    base = name.partition(".")[0]
    tags = [each for each in timm().list_pretrained(f"{base}.*") if each != name]
    hint = f"it has {', '.join(tags[:8])}" if tags else f"write timm:{base} for random weights"
    return InputError(f"model: timm has no weights {name[:100]!r}; {hint}")
