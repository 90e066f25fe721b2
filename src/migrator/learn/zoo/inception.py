"""Inception-v3 from torchvision, where that is installed."""

from __future__ import annotations

from importlib import import_module

from torch import nn

from migrator.core.errors import InputError
from migrator.learn.torch_model import ImageModel


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
        try:
            models = import_module("torchvision.models")
        except (ImportError, RuntimeError) as error:
            # a torchvision that does not fit torch dies with a RuntimeError
            raise InputError(
                "inception-v3 comes from torchvision, which is not installed or does not fit "
                "torch; install the torchvision of your torch, or use another model"
            ) from error
        built: nn.Module = models.inception_v3(
            weights=None, num_classes=classes, aux_logits=False, init_weights=True
        )
        return built


MODELS = (InceptionV3,)
