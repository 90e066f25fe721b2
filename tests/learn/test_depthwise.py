"""Depthwise convolutions: which kernel computes them, and when answers switch to another one.

Without a GPU: a stand-in for PyTorch's CUDA kernel notes what it is given.
"""

from __future__ import annotations

import copy
import threading
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from migrator.learn import torch_model
from migrator.learn.cuda_graphs import CapturedAnswers, Forward, Graph
from migrator.learn.depthwise import (
    NativeDepthwise,
    QuickAnswers,
    _Convolution,
    has_depthwise,
    native_kernel,
)
from migrator.learn.image_model import BREAK_EVEN_STEPS, ImageModel
from migrator.learn.registry import build

LIMIT_S = 30.0


@dataclass
class Kernel:
    """Computes like torch and notes the channels."""

    channels: list[int] = field(default_factory=list)

    def __call__(self, given: _Convolution) -> Tensor:
        self.channels.append(given.groups)
        found: Tensor = torch.conv2d(**given._asdict())
        return found


def test_only_depthwise_convolutions_use_the_other_kernel() -> None:
    network = nn.Sequential(
        nn.Conv2d(3, 4, 3),
        nn.Conv2d(4, 8, 3, groups=4, stride=2, padding=1),
        nn.Conv2d(8, 8, 3, groups=2),
        nn.Conv2d(8, 8, 3, groups=8, padding="same"),
    ).eval()
    inputs, kernel = torch.rand(2, 3, 12, 12), Kernel()
    with torch.no_grad():
        expected = network(inputs)
        with NativeDepthwise(kernel):
            found = network(inputs)
    torch.testing.assert_close(found, expected)
    # the last one pads by a word, which the kernel does not know
    assert kernel.channels == [4]
    assert has_depthwise(network)
    assert not has_depthwise(network[0])


def test_other_threads_keep_their_kernels() -> None:
    """A worker loads new weights in a thread while another one compiles."""
    layer, kernel = nn.Conv2d(4, 4, 3, groups=4), Kernel()
    with NativeDepthwise(kernel):
        thread = threading.Thread(target=lambda: layer(torch.rand(1, 4, 5, 5)))
        thread.start()
        thread.join(LIMIT_S)
    assert kernel.channels == []


def test_the_kernel_of_pytorch_exists_with_these_arguments() -> None:
    """It has no CPU form: whether the call fits is known from its schema."""
    given = _Convolution(torch.rand(1, 4, 5, 5), torch.rand(4, 1, 3, 3), None, 1, (1,), 1, 4)
    with pytest.raises(NotImplementedError, match="CPU"):
        native_kernel(given)


@pytest.mark.skipif(find_spec("timm") is None, reason="the extra timm is not installed")
def test_every_block_of_an_efficientnet_is_seen() -> None:
    """timm pads before it calls torch, so its layers are not asked but torch's function is."""
    model, kernel = build("efficientnet-lite0", 4, 0, 32, pretrained=False), Kernel()
    inputs = model.example(2)
    expected = model.infer(inputs)
    with NativeDepthwise(kernel):
        found = model.infer(inputs)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    assert len(kernel.channels) == 16


@dataclass
class Stand:
    """Answers that say which they are."""

    name: float
    took_s: float

    def takes(self, inputs: Tensor) -> bool:
        return len(inputs) <= 4

    def answer(self, inputs: Tensor) -> Tensor:
        return torch.full((len(inputs),), self.name)

    def seconds(self, limit_s: float) -> float:
        assert limit_s > 0
        return self.took_s


QUICK, FAST = 1.0, 2.0


@pytest.mark.parametrize(("fast_s", "used"), [(0.5, FAST), (1.5, QUICK), (None, QUICK)])
def test_faster_answers_take_over_once_they_are_ready(fast_s: float | None, used: float) -> None:
    compiled = threading.Event()

    def fast() -> Stand:
        assert compiled.wait(LIMIT_S)
        if fast_s is None:
            raise RuntimeError("out of memory")
        return Stand(FAST, fast_s)

    answers, inputs = QuickAnswers(lambda: Stand(QUICK, 1.0), fast), torch.zeros(3)
    assert answers.takes(inputs)
    assert answers.answer(inputs).tolist() == [QUICK] * 3
    compiled.set()
    assert answers.decided.wait(LIMIT_S)
    assert answers.answer(inputs).tolist() == [used] * 3
    assert answers.seconds(1.0) == (fast_s if used == FAST else 1.0)


def test_a_model_serves_with_both_kinds_of_kernels_and_hands_its_weights_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As on a GPU, with graphs that run the network on the host."""
    kernel, forwards = Kernel(), list[str]()

    def capture(forward: Forward, inputs: Tensor) -> Graph:
        given, output = inputs.clone(), forward(inputs)
        forwards.append(f"{len(inputs)} {'native' if kernel.channels else 'cuDNN'}")
        kernel.channels.clear()

        def replay() -> None:
            output.copy_(forward(given))

        return Graph(replay, given, inputs, output)

    monkeypatch.setattr(torch_model, "CapturedAnswers", partial(CapturedAnswers, capture=capture))
    monkeypatch.setattr(torch_model, "NativeDepthwise", partial(NativeDepthwise, kernel))
    monkeypatch.setattr(Depthwise, "is_captured", True)
    model = Depthwise.build(3, 0)
    model.seen[:] = True
    model.begin_serving(2)
    answers = model._answers
    assert isinstance(answers, QuickAnswers)
    assert answers.decided.wait(LIMIT_S)
    assert forwards == ["1 native", "2 native", "1 cuDNN", "2 cuDNN"]
    inputs = np.random.default_rng(0).integers(0, 256, (2, 3, 8, 8), dtype=np.uint8)
    # another version is tried beside it, without a graph and without compiling
    other = copy.deepcopy(model)
    with torch.no_grad():
        for each in other.network.parameters():
            each.add_(0.25)
    kernel.channels.clear()
    tried = other.infer(inputs)
    assert kernel.channels == [4]
    assert model.take_over(other)
    np.testing.assert_allclose(model.infer(inputs), tried, rtol=0.02, atol=0.02)


class Depthwise(ImageModel):
    """Two layers, the second one depthwise."""

    name, summary, learning_rate, own_pixels, least_pixels = "depthwise", "small", 1e-3, 8, 8

    @classmethod
    def network_of(cls, classes: int) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3, groups=4), nn.Flatten(), nn.Linear(64, classes)
        )


@pytest.mark.skipif(find_spec("timm") is None, reason="the extra timm is not installed")
def test_a_short_training_of_depthwise_convolutions_is_not_in_channels_last() -> None:
    model = build("efficientnet-lite0", 4, 0, 32, pretrained=False)
    plain = build("resnet-50", 4, 0, 32, pretrained=False)
    assert isinstance(model, ImageModel)
    assert isinstance(plain, ImageModel)
    for each in (model, plain):
        each.device = torch.device("cuda")  # as on a GPU: nothing is computed
        each.expect_training(BREAK_EVEN_STEPS - 1)
    assert model.memory_format is torch.contiguous_format
    assert plain.memory_format is torch.channels_last
    model.expect_training(BREAK_EVEN_STEPS)
    assert model.memory_format is torch.channels_last
