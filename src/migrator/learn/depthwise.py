"""Depthwise convolutions for inference on a GPU, with a kernel of our own.

In the channels-last layout cuDNN compiles a kernel for every shape of a depthwise convolution, in
every thread again. PyTorch's own kernels need no compilation but take about twice as long.
`depthwise.cu` has one kernel for all shapes. It is compiled once per kind of GPU and kept on disk.

On 16 SMs of an H200, until the first answers and per batch (benchmarks/gpu/depthwise.py):

| network, batch | this kernel | cuDNN | PyTorch's own |
|---|---|---|---|
| EfficientNet-Lite0, 16 | 0.8 s, 5.6 ms | 8.7 s, 5.4 ms | 0.6 s, 10.7 ms |
| EfficientNet-Lite2 with 32 views, 4 | 0.6 s, 62.5 ms | 5.3 s, 57.3 ms | 0.7 s, 143.6 ms |
| ConvNeXt-B, 16 | 0.5 s, 22.4 ms | 4.6 s, 22.5 ms | 0.5 s, 42.9 ms |

Trainings choose another layout instead (`ImageModel`).
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from migrator.core.errors import NotWrittenError
from migrator.io.atomic_write import write_atomically
from migrator.io.folders import cache_folder

SOURCE = files(__package__) / "depthwise.cu"
KERNELS = {(3, 1), (3, 2), (5, 1), (5, 2), (7, 1)}
"""Sides and strides for which there is a kernel."""
VECTOR, COLUMNS = 8, 4
"""Channels and columns that a thread computes."""
_THREADS = 128
"""Per block."""
_DIGEST_BYTES = 32
"""At the beginning of a kept file."""

_log = logging.getLogger(__name__)


def has_depthwise(network: nn.Module) -> bool:
    """Whether the network has a depthwise convolution of pictures."""
    layers = (module for module in network.modules() if isinstance(module, nn.Conv2d))
    return any(layer.groups > 1 and layer.groups == layer.in_channels for layer in layers)


class Convolution(NamedTuple):
    """The arguments of `torch.conv2d`."""

    input: Tensor
    weight: Tensor
    bias: Tensor | None = None
    stride: int | Sequence[int] = 1
    padding: str | int | Sequence[int] = 0
    dilation: int | Sequence[int] = 1
    groups: int = 1

    @property
    def has_kernel(self) -> bool:
        """Whether `depthwise.cu` computes it."""
        given, weight = self.input, self.weight
        if given.ndim != 4 or isinstance(self.padding, str) or _pair(self.dilation) != (1, 1):
            return False
        (down, right), side = _pair(self.stride), weight.shape[-1]
        return (
            self.groups == given.shape[1] == weight.shape[0]
            and given.shape[1] % VECTOR == 0
            and given.storage_offset() % VECTOR == 0  # vectors are read from aligned addresses
            and given.dtype == weight.dtype == torch.bfloat16
            and down == right
            and weight.shape[-2] == side
            and (side, down) in KERNELS
        )


class Launch(NamedTuple):
    """One launch of a kernel: its name, tensors and numbers, as `depthwise.cu` declares them."""

    name: str
    inputs: Tensor
    weights: Tensor
    outputs: Tensor
    numbers: tuple[int, ...]
    threads: int


def launch_for(given: Convolution) -> Launch:
    """Prepare the launch for a convolution that has a kernel."""
    assert not isinstance(given.padding, str)
    inputs = given.input.contiguous(memory_format=torch.channels_last)
    pictures, channels, height, width = inputs.shape
    side, (stride, _), padding = given.weight.shape[-1], _pair(given.stride), _pair(given.padding)
    rows, columns = (
        (size + 2 * pad - side) // stride + 1
        for size, pad in zip((height, width), padding, strict=True)
    )
    outputs = torch.empty(
        (pictures, channels, rows, columns),
        dtype=inputs.dtype,
        device=inputs.device,
        memory_format=torch.channels_last,
    )
    weights = given.weight.reshape(channels, side * side).t().contiguous()
    groups = channels // VECTOR
    threads = pictures * rows * -(-columns // COLUMNS) * groups
    numbers = (height, width, rows, columns, groups, *padding)
    return Launch(f"depthwise_{side}_{stride}", inputs, weights, outputs, numbers, threads)


def convolve(given: Convolution) -> Tensor:
    """The convolution on the GPU; without gradients."""
    launch = launch_for(given)
    tensors = (launch.inputs, launch.weights, launch.outputs)
    arguments = [
        *(ctypes.c_void_p(tensor.data_ptr()) for tensor in tensors),
        *map(ctypes.c_int, launch.numbers),
        ctypes.c_longlong(launch.threads),
    ]
    if launch.threads:
        _functions()[launch.name](-(-launch.threads // _THREADS), arguments)
    outputs = launch.outputs
    return outputs if given.bias is None else outputs.add_(given.bias.view(1, -1, 1, 1))


class DepthwiseKernels(TorchFunctionMode):
    """Within it, the calling thread computes depthwise convolutions with our kernel."""

    def __init__(self, kernel: Callable[[Convolution], Tensor] = convolve) -> None:
        super().__init__()
        self._kernel = kernel

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        del types
        named = dict(kwargs or {})
        if func is torch.conv2d:
            given = Convolution(*args, **named)
            if given.has_kernel:
                return self._kernel(given)
        return func(*args, **named)


def can_compile() -> bool:
    """Whether the kernels are there, or can be compiled, for the current GPU."""
    try:
        _functions()
    except (OSError, RuntimeError) as error:
        _log.warning("depthwise convolutions use cuDNN, whose first answers take long: %s", error)
        return False
    return True


# Compilation with NVRTC and launches with the CUDA driver; PyTorch brings both libraries


Function = Callable[[int, Sequence[Any]], None]
"""Launches a kernel on PyTorch's current stream, given the number of blocks and its arguments."""


@cache
def _functions() -> Mapping[str, Function]:
    """The kernels on the current GPU; OSError without a library, RuntimeError if one refuses."""
    driver, module = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
    major, minor = torch.cuda.get_device_capability()
    binary = _compiled(SOURCE.read_bytes(), f"sm_{major}{minor}")
    _require(driver.cuModuleLoadData(ctypes.byref(module), binary), "loads the kernels")

    def function(name: str) -> Function:
        handle = ctypes.c_void_p()
        _require(
            driver.cuModuleGetFunction(ctypes.byref(handle), module, name.encode()), f"has {name}"
        )

        def launch(blocks: int, arguments: Sequence[Any]) -> None:
            pointers = (ctypes.c_void_p * len(arguments))(
                *(ctypes.cast(ctypes.pointer(argument), ctypes.c_void_p) for argument in arguments)
            )
            stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
            shape = (blocks, 1, 1, _THREADS, 1, 1, 0)
            _require(
                driver.cuLaunchKernel(handle, *shape, stream, pointers, None), f"launches {name}"
            )

        return launch

    return {name: function(name) for name in (f"depthwise_{side}_{step}" for side, step in KERNELS)}


def _compiled(source: bytes, architecture: str) -> bytes:
    """The machine code, from the cache or compiled now; a damaged file is replaced."""
    version = torch.version.cuda or ""
    key = hashlib.sha256(b"\0".join((source, architecture.encode(), version.encode()))).hexdigest()
    kept = cache_folder("kernels") / f"depthwise-{architecture}-{key[:20]}.cubin"
    with suppress(OSError):
        content = kept.read_bytes()
        digest, binary = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
        # the driver would read beyond the end of a truncated one
        if digest == hashlib.sha256(binary).digest():
            return binary
    binary = _compile(source, architecture)
    with suppress(OSError, NotWrittenError):  # without a cache every process compiles
        kept.parent.mkdir(parents=True, exist_ok=True)
        with write_atomically(kept) as draft:
            draft.write_bytes(hashlib.sha256(binary).digest() + binary)
    return binary


def _compile(source: bytes, architecture: str) -> bytes:
    nvrtc, program = _nvrtc(), ctypes.c_void_p()
    _require(
        nvrtc.nvrtcCreateProgram(ctypes.byref(program), source, b"depthwise.cu", 0, None, None),
        "takes the source",
    )
    options = (ctypes.c_char_p * 1)(f"--gpu-architecture={architecture}".encode())
    result, size = nvrtc.nvrtcCompileProgram(program, 1, options), ctypes.c_size_t()
    if result:
        nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        nvrtc.nvrtcGetProgramLog(program, log)
        raise RuntimeError(f"depthwise.cu does not compile: {log.value.decode()[-800:]}")
    _require(nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size)), "knows the size")
    binary = ctypes.create_string_buffer(size.value)
    _require(nvrtc.nvrtcGetCUBIN(program, binary), "gives the machine code")
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return binary.raw


def _nvrtc() -> ctypes.CDLL:
    for name in _nvrtc_names():
        with suppress(OSError):
            return ctypes.CDLL(name)
    raise OSError("libnvrtc is not installed; it comes with PyTorch for CUDA")


def _nvrtc_names() -> Iterator[str]:
    major = (torch.version.cuda or "").partition(".")[0]
    yield f"libnvrtc.so.{major}"
    packages = Path(torch.__file__).parent.parent / "nvidia"
    yield from map(str, packages.glob(f"*/lib/libnvrtc.so.{major}"))
    yield "libnvrtc.so"


def _require(result: int, what: str) -> None:
    if result:
        raise RuntimeError(f"no library {what}: CUDA error {result}")


def _pair(value: int | Sequence[int]) -> tuple[int, int]:
    values = [value] if isinstance(value, int) else list(value)
    down, right = values * 2 if len(values) == 1 else values
    return down, right
