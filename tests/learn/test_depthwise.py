"""Depthwise convolutions: which kernel computes them, and whether it computes them rightly.

Without a GPU: a C++ compiler makes a host's function of the CUDA source, called thread by thread.
"""

from __future__ import annotations

import copy
import ctypes
import shutil
import subprocess
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from migrator.core.errors import InputError
from migrator.learn import depthwise, torch_model
from migrator.learn.cuda_graphs import CapturedAnswers, Forward, Graph
from migrator.learn.depthwise import Convolution, DepthwiseKernels, has_depthwise, launch_for
from migrator.learn.image_model import BREAK_EVEN_STEPS, ImageModel
from migrator.learn.registry import build

BF16 = torch.bfloat16


@dataclass
class Kernel:
    """Computes like torch and notes the channels."""

    channels: list[int] = field(default_factory=list)

    def __call__(self, convolution: Convolution) -> Tensor:
        self.channels.append(convolution.groups)
        computed: Tensor = torch.conv2d(**convolution._asdict())
        return computed


def test_only_depthwise_convolutions_use_the_other_kernel() -> None:
    network = nn.Sequential(
        nn.Conv2d(3, 16, 3),
        nn.Conv2d(16, 16, 3, groups=16, stride=2, padding=1),
        nn.Conv2d(16, 16, 3, groups=2),
        nn.Conv2d(16, 16, 3, groups=16, padding="same"),
        nn.Conv2d(16, 16, 3, groups=16, padding=2, dilation=2),
        nn.Conv2d(16, 32, 3, groups=16),
        nn.Conv2d(32, 12, 1),
        nn.Conv2d(12, 12, 3, groups=12, padding=1),
    ).to(BF16)
    inputs, kernel = torch.rand(2, 3, 12, 12, dtype=BF16), Kernel()
    with torch.no_grad():
        expected = network(inputs)
        with DepthwiseKernels(kernel):
            scores = network(inputs)
    torch.testing.assert_close(scores, expected)
    # only the second: the others are not depthwise, pad by a word, are dilated or have channels
    # that do not come in eights
    assert kernel.channels == [16]
    assert has_depthwise(network)
    assert not has_depthwise(network[0])


HOST = """
#include <cstring>
struct uint4 { unsigned int x, y, z, w; };
static thread_local struct { long long x; } blockIdx, blockDim, threadIdx;
static float __uint_as_float(unsigned int bits) { float v; memcpy(&v, &bits, 4); return v; }
static unsigned int __float_as_uint(float value) { unsigned v; memcpy(&v, &value, 4); return v; }
#define __device__
#define __global__
#define __forceinline__ inline
"""
"""What the source needs from CUDA."""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The kernels for the host."""
    compiler = shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        pytest.skip("there is no C++ compiler")
    folder: Path = tmp_path_factory.mktemp("kernel")
    source = HOST + depthwise.SOURCE.read_text(encoding="utf-8")
    source += 'extern "C" void place(long long block, long long size, long long thread) '
    source += "{ blockIdx.x = block; blockDim.x = size; threadIdx.x = thread; }"
    (folder / "kernel.cpp").write_text(source, encoding="utf-8")
    command = [compiler, "-shared", "-fPIC", "-O1", "-Wno-unknown-pragmas", "-o"]
    subprocess.run([*command, str(folder / "kernel.so"), str(folder / "kernel.cpp")], check=True)
    return ctypes.CDLL(str(folder / "kernel.so"))


@dataclass
class OnTheHost:
    """Launches the kernels thread by thread, and one thread too many."""

    library: ctypes.CDLL
    block: int = 4

    def __call__(self, convolution: Convolution) -> Tensor:
        launch = launch_for(convolution)
        tensors = [launch.inputs, launch.weights, launch.outputs]
        pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in tensors]
        for number in range(-(-launch.threads // self.block) * self.block):
            self.library.place(
                *map(ctypes.c_longlong, (number // self.block, self.block, number % self.block))
            )
            getattr(self.library, launch.name)(
                *pointers, *map(ctypes.c_int, launch.numbers), ctypes.c_longlong(launch.threads)
            )
        return launch.outputs


@pytest.mark.parametrize("side_and_stride", sorted(depthwise.KERNELS))
@pytest.mark.parametrize(("height", "width", "padding"), [(7, 11, 1), (8, 7, (0, 2))])
def test_the_kernel_convolves(
    library: ctypes.CDLL,
    side_and_stride: tuple[int, int],
    height: int,
    width: int,
    padding: int | tuple[int, int],
) -> None:
    side, stride = side_and_stride
    random = torch.Generator().manual_seed(side * 10 + stride)
    inputs = torch.randn(2, 16, height, width, generator=random).to(BF16)
    weights = torch.randn(16, 1, side, side, generator=random).to(BF16)
    convolution = Convolution(inputs, weights, None, stride, padding, 1, 16)
    assert convolution.has_kernel
    exact = torch.conv2d(inputs.float(), weights.float(), None, stride, padding, 1, 16)
    computed = OnTheHost(library)(convolution)
    assert computed.is_contiguous(memory_format=torch.channels_last)
    # the sum is in single precision, so only its last rounding may differ
    torch.testing.assert_close(computed.float(), exact, rtol=2**-8, atol=1e-5)


def test_without_the_libraries_of_cuda_nothing_changes(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    depthwise._functions.cache_clear()
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    monkeypatch.setattr(ctypes, "CDLL", _absent)
    assert not depthwise.can_compile()
    assert "depthwise convolutions use cuDNN" in caplog.text


@pytest.mark.parametrize("damage", [b"", None])
def test_a_damaged_file_of_the_cache_is_compiled_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: bytes | None
) -> None:
    compiled = list[str]()

    def compiles(_source: bytes, architecture: str) -> bytes:
        compiled.append(architecture)
        return b"machine code"

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(depthwise, "_compile", compiles)
    for _ in range(2):
        assert depthwise._compiled(b"source", "sm_90") == b"machine code"
    assert compiled == ["sm_90"]
    (kept,) = tmp_path.rglob("*.cubin")
    kept.write_bytes(kept.read_bytes()[:-1] if damage is None else damage)
    for _ in range(2):
        assert depthwise._compiled(b"source", "sm_90") == b"machine code"
    assert compiled == ["sm_90", "sm_90"]


def test_vectors_are_read_from_aligned_addresses() -> None:
    inputs, weights = torch.ones(1, 24, 1, 1, dtype=BF16), torch.ones(8, 1, 3, 3, dtype=BF16)
    assert Convolution(inputs[:, 8:16], weights, None, 1, 1, 1, 8).has_kernel
    assert not Convolution(inputs[:, 4:12], weights, None, 1, 1, 1, 8).has_kernel


def _absent(name: str) -> None:
    raise OSError(f"{name} is not there")


def test_a_model_serves_with_the_kernels_and_exchanges_its_weights(
    library: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a GPU, with graphs that run the network on the host."""
    sizes = list[int]()

    def capture(forward: Forward, inputs: Tensor) -> Graph:
        fixed, output = inputs.clone(), forward(inputs)
        sizes.append(len(inputs))

        def replay() -> None:
            output.copy_(forward(fixed))

        return Graph(replay, fixed, inputs, output)

    used = partial(DepthwiseKernels, OnTheHost(library))
    monkeypatch.setattr(torch_model, "CapturedAnswers", partial(CapturedAnswers, capture=capture))
    monkeypatch.setattr(torch_model, "DepthwiseKernels", used)
    monkeypatch.setattr(torch_model, "can_compile", lambda: True)
    monkeypatch.setattr(Depthwise, "is_captured", True)
    monkeypatch.setattr(Depthwise, "memory_format", torch.channels_last)
    model = Depthwise.build(3, 0)
    model.seen[:] = True
    inputs = np.random.default_rng(0).integers(0, 256, (2, 3, 8, 8), dtype=np.uint8)
    exact = model.infer(inputs)
    model.begin_serving(2)
    assert sizes == [2, 1]
    before = model.infer(inputs)
    np.testing.assert_allclose(before, exact, rtol=0.05, atol=0.05)
    other = copy.deepcopy(model)
    other.seen[2] = False
    with torch.no_grad():
        for parameter in other.network.parameters():
            parameter.add_(0.25)
    assert model.exchange(other)
    after = model.infer(inputs)
    assert (after[:, 2] == -np.inf).all()
    assert (np.abs(after - before)[:, :2] > 0.1).all()
    assert not other.exchange(model)  # it has no graphs
    assert model.exchange(other)
    np.testing.assert_array_equal(model.infer(inputs), before)


class LittleMemory(TorchFunctionMode):
    """Tensors of more than a thousand bytes cannot be allocated."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        del types
        size = args[0].nbytes if func is Tensor.clone else args[0] if func is torch.empty else 0
        if size > 1000:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return func(*args, **(kwargs or {}))


def test_without_memory_no_weight_is_exchanged() -> None:
    model, other = (Depthwise.build(3, seed) for seed in (0, 1))
    model._answers = Mock()
    before = copy.deepcopy(model.network.state_dict())
    with LittleMemory(), pytest.raises(InputError, match="does not fit into the memory"):
        model.exchange(other)
    for name, tensor in model.network.state_dict().items():
        assert torch.equal(tensor, before[name])


class Depthwise(ImageModel):
    """Two layers, the second one depthwise."""

    name, summary, learning_rate, own_pixels, least_pixels = "depthwise", "small", 1e-3, 8, 8

    @classmethod
    def network_of(cls, classes: int) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3, groups=8), nn.Flatten(), nn.Linear(128, classes)
        )


@pytest.mark.skipif(find_spec("timm") is None, reason="the extra timm is not installed")
def test_a_short_training_of_depthwise_convolutions_is_not_in_channels_last() -> None:
    model = build("efficientnet-lite0", 4, 0, 32, pretrained=False)
    plain = build("small-cnn", 4, 0, 32)
    assert isinstance(model, ImageModel)
    assert isinstance(plain, ImageModel)
    for served in (model, plain):
        served.device = torch.device("cuda")  # as on a GPU: nothing is computed
        served.expect_training(BREAK_EVEN_STEPS - 1)
    assert model.memory_format is torch.contiguous_format
    assert plain.memory_format is torch.channels_last
    model.expect_training(BREAK_EVEN_STEPS)
    assert model.memory_format is torch.channels_last
