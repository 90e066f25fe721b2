"""Answers as CUDA graphs: a model that only serves is launched at once, not kernel by kernel.

For every size of batch there is a graph of its own, or of the next larger one, whose spare rows
are not looked at. Weights that are written into the same memory are answered with from then on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from migrator.learn.captured import Graph, graph_of

Forward = Callable[[Tensor], Tensor]
_WARMING = 3
"""So many runs before a capture: they choose and load kernels."""
_CUDA: Any = torch.cuda


def sizes(batch: int) -> tuple[int, ...]:
    """The sizes worth a graph: doubling, so that at most half of the rows are spare."""
    doubled = [2**each for each in range(batch.bit_length()) if 2**each < batch]
    return (*doubled, batch)


class CapturedAnswers:
    """What a network says to batches of up to `batch` inputs like the example."""

    def __init__(
        self,
        forward: Forward,
        example: Tensor,
        batch: int,
        capture: Callable[[Forward, Tensor], Graph | None] | None = None,
    ) -> None:
        """`example`: one row of inputs on the device; RuntimeError: it cannot be captured."""
        self._like = example
        captured = capture or _captured
        self._graphs: dict[int, Graph] = {}
        for size in sizes(batch):
            graph = captured(forward, example.repeat(size, *(1,) * (example.ndim - 1)))
            if graph is None:
                raise RuntimeError("its answers do not capture as a graph")
            self._graphs[size] = graph

    def takes(self, inputs: Tensor) -> bool:
        """Whether there is a graph for such inputs."""
        like = self._like
        alike = inputs.shape[1:] == like.shape[1:] and inputs.dtype == like.dtype
        return alike and 0 < len(inputs) <= max(self._graphs)

    def answer(self, inputs: Tensor) -> Tensor:
        """Scores of the inputs, which may still be on the host."""
        rows = len(inputs)
        graph = self._graphs[min(size for size in self._graphs if size >= rows)]
        graph.inputs[:rows].copy_(inputs)
        graph.replay()
        return graph.said[:rows]


def _captured(forward: Forward, inputs: Tensor) -> Graph | None:
    side = _CUDA.Stream()
    side.wait_stream(_CUDA.current_stream())
    with _CUDA.stream(side):
        for _ in range(_WARMING):
            forward(inputs)
    _CUDA.current_stream().wait_stream(side)
    nothing = torch.empty(0, device=inputs.device)
    return graph_of(lambda given, _: forward(given), inputs, nothing)


def halve(network: nn.Module) -> None:
    """Weights and what comes in as bf16; numbers of tokens stay whole."""

    def halved(each: Any) -> Any:
        floating = isinstance(each, Tensor) and each.is_floating_point()
        return each.to(torch.bfloat16) if floating else each

    def hook(_network: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
        return tuple(map(halved, given)), {name: halved(each) for name, each in named.items()}

    network.to(torch.bfloat16)
    network.register_forward_pre_hook(hook, with_kwargs=True)
