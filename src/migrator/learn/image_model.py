"""Image classifiers, and those of timm: sizes, normalisation and augmentation of pictures."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor, nn

from migrator.core.errors import InputError
from migrator.learn.depthwise import has_depthwise
from migrator.learn.model import Inputs, Modality
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
        super().to(device)
        self._mean, self._spread = self._mean.to(device), self._spread.to(device)
        self._lay_out()

    def expect_training(self, steps: int) -> None:
        """Choose the layout for a training of `steps` steps and the evaluations around it."""
        self._short = steps < BREAK_EVEN_STEPS and has_depthwise(self.network)
        self._lay_out()

    def begin_serving(self, batch: int) -> None:
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
        values = np.array((mean, spread), dtype=float)
    except (TypeError, ValueError):
        return False
    return values.shape == (2, 3) and bool(np.isfinite(values).all() and values[1].all())


def _require_images(inputs: Tensor) -> None:
    """Refuse images that would silently be stretched or treated as grey."""
    square = inputs.ndim == 4 and inputs.shape[1] == 3 and inputs.shape[2] == inputs.shape[3]
    if not square or inputs.shape[2] < _SMALLEST:
        raise InputError(
            f"inputs: images are (n, 3, side, side) with sides of at least {_SMALLEST}, these are "
            f"{tuple(inputs.shape)}; crop them, or give grey ones three equal channels"
        )
