"""Seconds until the first answers, and per batch, of networks with depthwise convolutions on a GPU.

    python -m benchmarks.gpu.depthwise [MODEL:PIXELS:BATCH ...] [--out FILE]

Every way of computing these layers runs in a process of its own, which has imported torch, loaded
cuDNN and built the network on the host, as a worker has when it gets its instance. `first_s` is
the time until batches of 1 and of the largest size are answered, with the weights on the GPU and
CUDA graphs captured. Set `CUDA_MPS_ACTIVE_THREAD_PERCENTAGE` for a share of the GPU.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor, nn

from migrator.learn.cuda_graphs import load_cudnn
from migrator.learn.registry import model_class

CASES = (
    "mobilenet-v2:224:16",
    "efficientnet-lite0:224:16",
    "convnext-b:224:16",
    "benchmarks.gpu.live_models:ManyViewsLite2:260:4",
)
WAYS = ("kernel", "cudnn", "native", "native-contiguous", "contiguous")
"""Our kernel; cuDNN; PyTorch's own kernels in the channels-last layout, with copies into the
contiguous layout, and with the whole network in the contiguous layout."""
REPEATS = 30
Forward = Callable[[Tensor], Tensor]


def compute_layers(network: nn.Module, compute: Callable[[Forward, Tensor], Tensor]) -> None:
    """Let `compute` (the layer's own forward, input) run every depthwise convolution."""
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d) and layer.groups == layer.in_channels > 1:
            setattr(layer, "forward", partial(compute, layer.forward))  # noqa: B010 (mypy takes it for a method)


def native(forward: Forward, inputs: Tensor) -> Tensor:
    """PyTorch's own kernel."""
    with torch.backends.cudnn.flags(enabled=False):
        return forward(inputs)


def native_contiguous(forward: Forward, inputs: Tensor) -> Tensor:
    """PyTorch's own kernel on a contiguous copy."""
    with torch.backends.cudnn.flags(enabled=False):
        return forward(inputs.contiguous()).contiguous(memory_format=torch.channels_last)


def measure(case: str, way: str) -> dict[str, object]:
    """One way in this process."""
    name, pixels, batch = case.rsplit(":", 2)
    torch.set_num_threads(1)
    load_cudnn()
    kind: Any = model_class(name)
    if way == "contiguous":
        kind = type(kind.__name__, (kind,), {"memory_format": torch.contiguous_format})
    model = kind.build(10, 0, pixels=int(pixels))
    if way in ("native", "contiguous"):
        compute_layers(model.network, native)
    elif way == "native-contiguous":
        compute_layers(model.network, native_contiguous)
    context_s = seconds(lambda: torch.zeros(1, device="cuda"))
    model.to("cuda")
    has_kernel = patch("migrator.learn.torch_model.can_compile", return_value=way == "kernel")
    sizes = (1, int(batch))
    with has_kernel:
        first_s = seconds(lambda: first_answers(model, sizes))
    batch_ms = {}
    for size in sizes:
        answer = partial(model.infer, model.example(size))
        times = [seconds(answer) for _ in range(REPEATS)]
        batch_ms[size] = round(1e3 * statistics.median(times), 3)
    return {
        "case": case,
        "way": way,
        "context_s": round(context_s, 2),
        "first_s": round(first_s, 2),
        "batch_ms": batch_ms,
    }


def first_answers(model: Any, sizes: tuple[int, ...]) -> None:
    """What a worker does before it is ready."""
    model.begin_serving(max(sizes))
    for size in sizes:
        assert np.isfinite(model.infer(model.example(size))).all()


def seconds(step: Callable[[], object]) -> float:
    """How long the step takes on the GPU."""
    torch.cuda.synchronize()
    began = time.perf_counter()
    step()
    torch.cuda.synchronize()
    return time.perf_counter() - began


def main() -> None:
    """A line per network and way."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("cases", nargs="*", default=CASES)
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--way", help="measure one way in this process")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    if arguments.way:
        print(json.dumps(measure(arguments.cases[0], arguments.way)), flush=True)
        return
    rows = []
    for case in arguments.cases:
        for way in arguments.ways.split(","):
            command = [sys.executable, "-m", "benchmarks.gpu.depthwise", case, "--way", way]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            rows.append(json.loads(done.stdout.splitlines()[-1]))
            print(rows[-1], flush=True)
    if arguments.out:
        arguments.out.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
