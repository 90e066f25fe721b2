"""Small models that train on a CPU in seconds: for trying things out, and for tests."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from migrator.learn.image_model import ImageModel
from migrator.learn.text import PADDING, VOCABULARY
from migrator.learn.torch_model import TextModel


class SmallCnn(ImageModel):
    """Three convolutions, each halving the image."""

    name = "small-cnn"
    summary = "three convolutions, 0.1 M weights, images of 32 pixels; trains on a CPU"
    learning_rate = 3e-3
    own_pixels = 32
    least_pixels = 8

    @classmethod
    def network_of(cls, classes: int) -> nn.Module:
        """Convolution, normalisation; a mean over what is left of the image."""
        widths = (3, 32, 64, 128)
        layers: list[nn.Module] = []
        for before, after in pairwise(widths):
            layers += [
                # strides, not pooling: on some CPUs pooling takes longer than the convolution
                nn.Conv2d(before, after, 3, stride=2, padding=1, bias=False),
                nn.BatchNorm2d(after),
                nn.ReLU(),
            ]
        net = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        net.add_module("classifier", nn.Linear(widths[-1], classes))
        return net


class _Bag(nn.Module):
    """The mean of the words' vectors, normalised, then one layer."""

    def __init__(self, classes: int, width: int = 64) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, width, padding_idx=PADDING)
        nn.init.normal_(self.words.weight, std=0.1)
        # normalised, so that what was learned before never drowns what is new
        self.hidden = nn.Sequential(nn.LayerNorm(width), nn.Dropout(0.3))
        self.classifier = nn.Linear(width, classes)

    def forward(self, tokens: Tensor) -> Tensor:
        there = (tokens != PADDING).unsqueeze(-1)
        mean = (self.words(tokens) * there).sum(1) / there.sum(1).clamp(min=1)
        output: Tensor = self.classifier(self.hidden(mean))
        return output


class SmallText(TextModel):
    """A bag of words."""

    name = "small-text"
    summary = "a bag of hashed words, 2 M weights; trains on a CPU"
    learning_rate = 3e-3

    @classmethod
    def network_of(cls, classes: int) -> nn.Module:
        """A bag of words."""
        return _Bag(classes)

    def logits(self, inputs: Tensor) -> Tensor:
        """Scores of token numbers."""
        output: Tensor = self.network(inputs.to(torch.int64))
        return output


MODELS = (SmallCnn, SmallText)
