"""MobileNetV2, ResNet-50 and ConvNeXt-B as transformers builds them; nothing is downloaded."""

from __future__ import annotations

from torch import nn

from migrator.learn.zoo.transformers_network import TransformersImages, network_from


class MobileNetV2(TransformersImages):
    """Inverted residuals, for small devices."""

    name = "mobilenet-v2"
    summary = "MobileNetV2, 3.5 M weights, images of 224 pixels (32 and more when training)"
    learning_rate = 1e-3

    @classmethod
    def network_of(cls, classes: int) -> nn.Module:
        """The published width; images of other sizes need no other network."""
        return network_from(
            "MobileNetV2Config",
            "MobileNetV2ForImageClassification",
            num_labels=classes,
        )


class ResNet50(TransformersImages):
    """Residual bottlenecks."""

    name = "resnet-50"
    summary = "ResNet-50, 26 M weights, images of 224 pixels (32 and more when training)"
    learning_rate = 1e-3

    @classmethod
    def network_of(cls, classes: int) -> nn.Module:
        """Fifty layers, whatever the size of the images."""
        return network_from("ResNetConfig", "ResNetForImageClassification", num_labels=classes)


class ConvNextB(TransformersImages):
    """Convolutions in the manner of transformers."""

    name = "convnext-b"
    summary = "ConvNeXt-B, 88 M weights, images of 224 pixels (32 and more when training)"
    learning_rate = 3e-4

    @classmethod
    def network_of(cls, classes: int) -> nn.Module:
        """The base size, whatever the size of the images."""
        return network_from(
            "ConvNextConfig",
            "ConvNextForImageClassification",
            num_labels=classes,
            depths=[3, 3, 27, 3],
            hidden_sizes=[128, 256, 512, 1024],
        )


MODELS = (MobileNetV2, ResNet50, ConvNextB)
