"""Networks from the configurations of transformers, with random weights, and how they answer."""

from __future__ import annotations

from importlib import import_module

from torch import Tensor, nn

from migrator.core.errors import InputError
from migrator.learn.image_model import ImageModel


class TransformersImages(ImageModel):
    """What the image networks of transformers have in common."""

    def answered(self, images: Tensor) -> Tensor:
        """Scores of normalised images."""
        said: Tensor = self.network(pixel_values=images).logits
        return said


def network_from(configuration: str, network: str, **settings: object) -> nn.Module:
    """The network called so in transformers, freshly initialised; nothing is downloaded."""
    try:
        transformers = import_module("transformers")
    except ModuleNotFoundError as error:
        raise InputError(
            f"{network} comes from transformers, which is not installed: "
            "pip install 'migrator[learn]'"
        ) from error
    built: nn.Module = getattr(transformers, network)(
        getattr(transformers, configuration)(**settings)
    )
    return built
