"""The image model of the live run on a GPU: ConvNeXt-B that looks at 384 pixels.

Clients send CIFAR's own small pictures, which are enlarged on the GPU; the model is heavy enough
that a few hundred requests a second are worth sharing a large GPU for.
"""

from __future__ import annotations

import numpy as np

from migrator.learn.model import Inputs
from migrator.learn.zoo.transformers_models import ConvNextB

_SENT = 32


class ConvNextB384(ConvNextB):
    """ConvNeXt-B at 384 pixels, for pictures of 32."""

    name = "convnext-b-384"
    summary = "ConvNeXt-B on pictures enlarged to 384 pixels"
    own_pixels = 384

    def example(self, batch: int) -> Inputs:
        """Random pixels, of the size that is sent."""
        size = (batch, 3, _SENT, _SENT)
        return np.random.default_rng(0).integers(0, 256, size, dtype=np.uint8)
