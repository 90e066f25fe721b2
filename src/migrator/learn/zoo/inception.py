"""Inception-v3 from torchvision, where that is installed."""

from __future__ import annotations

from torch import nn

from migrator.learn.image_model import ImageModel
from migrator.learn.libraries import torchvision


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


MODELS = (InceptionV3,)
