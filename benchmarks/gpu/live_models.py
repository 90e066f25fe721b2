"""The models of the live comparison: EfficientNet-Lite with published weights and many views.

An answer is the mean over 32 views of the picture (test-time augmentation), so that a whole H200
is worth about 600 requests per second, and HTTP and its clients carry bursts of twice that.
Trainings and their evaluations look at one view.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from migrator.learn.image_model import ImageModel
from migrator.learn.model import Inputs, Labels
from migrator.learn.zoo import EfficientNetLite1, EfficientNetLite2, SmallCnn

VIEWS = 32
"""Of every picture: moved to 16 places, each also mirrored."""
_MARGIN = 1 / 16
"""The longest way that a picture is moved, relative to its side."""
_PLACES = tuple((down, right) for down in range(4) for right in range(4))


def views(images: Tensor) -> Tensor:
    """Every image 32 times: rows 0 to 31 are those of the first one."""
    side = images.shape[-1]
    margin = max(1, round(side * _MARGIN))
    wide = nn.functional.pad(images, (margin,) * 4, mode="replicate")
    steps = [round(2 * margin * number / 3) for number in range(4)]
    moved = [
        wide[..., steps[down] : steps[down] + side, steps[right] : steps[right] + side]
        for down, right in _PLACES
    ]
    both = torch.stack([view for image in moved for view in (image, image.flip(-1))], dim=1)
    return both.flatten(0, 1).contiguous(memory_format=_layout_of(images))


def _layout_of(images: Tensor) -> torch.memory_format:
    last = images.is_contiguous(memory_format=torch.channels_last) and not images.is_contiguous()
    return torch.channels_last if last else torch.contiguous_format


class ManyViews(ImageModel):
    """Answers with the mean scores of many views, unless it is being trained or evaluated."""

    is_training = False

    def expect_training(self, steps: int) -> None:
        """Look at one view from now on."""
        self.is_training = True
        super().expect_training(steps)

    def train_step(self, inputs: Inputs, labels: Labels, lr: float) -> float:
        """One step; a profile measures it as in a short retraining."""
        if not self.is_training:
            self.expect_training(0)
        return super().train_step(inputs, labels, lr)

    def image_logits(self, images: Tensor) -> Tensor:
        """Scores of normalised images of the network's size."""
        if self.is_training or self.network.training:
            return super().image_logits(images)
        scores = super().image_logits(views(images))
        return scores.reshape(len(images), VIEWS, -1).mean(1)


class ManyViewsLite1(ManyViews, EfficientNetLite1):
    """EfficientNet-Lite1, 32 views."""

    name = "efficientnet-lite1-32-views"
    summary = "EfficientNet-Lite1 that answers with the mean of 32 views"


class ManyViewsLite2(ManyViews, EfficientNetLite2):
    """EfficientNet-Lite2, 32 views."""

    name = "efficientnet-lite2-32-views"
    summary = "EfficientNet-Lite2 that answers with the mean of 32 views"


class ManyViewsSmall(ManyViews, SmallCnn):
    """A small network, 32 views, to try the comparison without a GPU."""

    name = "small-cnn-32-views"
    summary = "a small network that answers with the mean of 32 views"
