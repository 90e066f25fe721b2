"""Image classifiers: any square image in, normalised and resized inside."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor, nn

from migrator.core.errors import InputError
from migrator.learn.model import Inputs, Modality
from migrator.learn.torch_model import TorchModel, initialised_from

_MEAN, _SPREAD = (123.7, 116.3, 103.5), (58.4, 57.1, 57.4)
"""Of the pixels of ImageNet, which published weights expect."""
_SMALLEST = 2
"""The smallest side that can be moved by a pixel."""
_SHIFT = 1 / 8
"""How far a training image is moved at most, of its side."""


class ImageModel(TorchModel):
    """An image classifier; `pixels` is the side its network sees, by default its own."""

    modality = Modality.IMAGES
    own_pixels: ClassVar[int] = 224
    least_pixels: ClassVar[int] = 32

    def __init__(self, network: nn.Module, classes: int, seed: int, pixels: int) -> None:
        super().__init__(network, classes, seed)
        self.pixels = pixels
        self._mean = torch.tensor(_MEAN).view(1, 3, 1, 1)
        self._spread = torch.tensor(_SPREAD).view(1, 3, 1, 1)

    @classmethod
    @abstractmethod
    def network_of(cls, classes: int) -> nn.Module:
        """The network, freshly initialised; the same for images of any size."""

    @classmethod
    def build(cls, classes: int, seed: int, pixels: int | None = None) -> Self:
        """A new model; a smaller side than its own trains faster."""
        side = cls.side_of(pixels)
        with initialised_from(seed):
            return cls(cls.network_of(classes), classes, seed, side)

    @classmethod
    def side_of(cls, pixels: int | None) -> int:
        """The side asked for, if the network can read such images."""
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
        network: Any = self.network
        network.to(memory_format=self.memory_format)

    @property
    def memory_format(self) -> torch.memory_format:
        """On a GPU channels last: convolutions need no copies in another order before and after."""
        return torch.channels_last if self.device.type == "cuda" else torch.contiguous_format

    def logits(self, inputs: Tensor) -> Tensor:
        """Scores of uint8 images of any square size."""
        return self.answered(self._seen(inputs))

    def answered(self, images: Tensor) -> Tensor:
        """Scores of normalised images of the network's size."""
        said: Tensor = self.network(images)
        return said

    def varied(self, inputs: Tensor) -> Tensor:
        """Some mirrored, all moved a little."""
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
        size = (batch, 3, self.pixels, self.pixels)
        return np.random.default_rng(0).integers(0, 256, size, dtype=np.uint8)

    def _seen(self, inputs: Tensor) -> Tensor:
        _require_images(inputs)
        images = inputs.float()
        if images.shape[-1] != self.pixels:
            images = nn.functional.interpolate(
                images, size=(self.pixels, self.pixels), mode="bilinear", antialias=True
            )
        seen = (images - self._mean) / self._spread
        return seen.contiguous(memory_format=self.memory_format)


def _require_images(inputs: Tensor) -> None:
    """Others would be stretched, or taken for grey ones, without a word."""
    square = inputs.ndim == 4 and inputs.shape[1] == 3 and inputs.shape[2] == inputs.shape[3]
    if not square or inputs.shape[2] < _SMALLEST:
        raise InputError(
            f"inputs: images are (n, 3, side, side) with sides of at least {_SMALLEST}, these are "
            f"{tuple(inputs.shape)}; crop them, or give grey ones three equal channels"
        )
