"""Depthwise convolutions on a GPU: PyTorch's own kernels answer at once, cuDNN's later and faster.

In the channels-last layout cuDNN compiles a kernel for every shape of a depthwise convolution, in
every thread again: 0.3 to 0.8 s each on an H200, 4 to 10 s until the first answer of a network
with a dozen shapes. PyTorch's kernels need no compilation, the first answer then takes 0.6 to
0.9 s, but later ones up to half as long again. So a new worker answers with PyTorch's kernels
until cuDNN's are compiled. Trainings choose by their number of steps (`ImageModel`).
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

_POLITE = 10
"""Niceness of the thread that compiles: answers come first."""
_SOON_S, _BESIDE_S = 0.05, 1.0
"""Seconds in which replays are timed: before the first answer, and beside answers, where most
replays wait for one."""

_log = logging.getLogger(__name__)


def has_depthwise(network: nn.Module) -> bool:
    """Whether the network has a depthwise convolution of pictures."""
    layers = (each for each in network.modules() if isinstance(each, nn.Conv2d))
    return any(each.groups > 1 and each.groups == each.in_channels for each in layers)


class _Convolution(NamedTuple):
    """The arguments of `torch.conv2d`."""

    input: Tensor
    weight: Tensor
    bias: Tensor | None = None
    stride: int | Sequence[int] = 1
    padding: str | int | Sequence[int] = 0
    dilation: int | Sequence[int] = 1
    groups: int = 1

    @property
    def is_depthwise(self) -> bool:
        """Whether PyTorch's kernel computes it."""
        same = self.input.dtype == self.weight.dtype
        channels = self.input.shape[1] if self.input.ndim == 4 else 0
        return same and not isinstance(self.padding, str) and 1 < self.groups == channels


Kernel = Callable[[_Convolution], Tensor]


def native_kernel(given: _Convolution) -> Tensor:
    """PyTorch's own depthwise convolution; CUDA only, and without gradients."""
    kernel: Any = torch.ops.aten._conv_depthwise2d
    assert not isinstance(given.padding, str)
    pairs = [_pair(each) for each in (given.stride, given.padding, given.dilation)]
    found: Tensor = kernel(
        given.input, given.weight, list(given.weight.shape[2:]), given.bias, *pairs
    )
    return found


def _pair(value: int | Sequence[int]) -> list[int]:
    found = [value] if isinstance(value, int) else list(value)
    return found * 2 if len(found) == 1 else found


class NativeDepthwise(TorchFunctionMode):
    """Within it, the calling thread computes depthwise convolutions with PyTorch's kernel."""

    def __init__(self, kernel: Kernel = native_kernel) -> None:
        super().__init__()
        self._kernel = kernel

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Compute one call of torch."""
        del types
        named = dict(kwargs or {})
        if func is torch.conv2d:
            given = _Convolution(*args, **named)
            if given.is_depthwise:
                return self._kernel(given)
        return func(*args, **named)


class Answers(Protocol):
    """Captured inference (`cuda_graphs.CapturedAnswers`)."""

    def takes(self, inputs: Tensor) -> bool:
        """Whether there is a graph for these inputs."""
        ...

    def answer(self, inputs: Tensor) -> Tensor:
        """Scores of the inputs."""
        ...

    def seconds(self, limit_s: float) -> float:
        """The shortest replay of the largest graph within about `limit_s`."""
        ...


class QuickAnswers:
    """Answers that are there at once, and replaced by faster ones when these are ready.

    Capturing in a thread beside answers is safe: a capture only sees calls of its own thread
    (`thread_local`), memory of a capture is apart, and graphs that answer are not touched.
    """

    def __init__(self, quick: Callable[[], Answers], fast: Callable[[], Answers]) -> None:
        """`quick` and `fast` capture; the second one may take seconds. RuntimeError if the first
        cannot be captured."""
        self._current = quick()
        self._quick_s = self._current.seconds(_SOON_S)
        self.decided = threading.Event()
        """Set once the faster kernels are used or given up."""
        threading.Thread(target=self._compile, args=(fast,), daemon=True).start()

    def takes(self, inputs: Tensor) -> bool:
        """Whether there is a graph for these inputs."""
        return self._current.takes(inputs)

    def answer(self, inputs: Tensor) -> Tensor:
        """Scores of the inputs, which may be on the host."""
        return self._current.answer(inputs)

    def seconds(self, limit_s: float) -> float:
        """The shortest replay of the largest graph within about `limit_s`."""
        return self._current.seconds(limit_s)

    def _compile(self, fast: Callable[[], Answers]) -> None:
        with suppress(OSError, AttributeError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _POLITE)
        is_used = self._switch(fast)
        self.decided.set()
        if is_used:
            # compiled kernels belong to this thread, and the graphs need them
            threading.Event().wait()

    def _switch(self, fast: Callable[[], Answers]) -> bool:
        try:
            found = fast()
            fast_s = found.seconds(_BESIDE_S)
        except Exception as error:  # the quick ones remain, whatever it was
            _log.warning("cuDNN's kernels could not be captured: %s", error)
            return False
        if fast_s < self._quick_s:
            self._current = found
        return self._current is found
