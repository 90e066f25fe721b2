"""What a captured training step saves: `python -m benchmarks.gpu.training_steps [MODEL ...]`.

Every model takes the same steps twice, kernel by kernel and as a CUDA graph; milliseconds a step
and how far the losses lie apart. Needs a GPU, torch and transformers (torchvision for
Inception-v3); on a CPU both ways are the same.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np
import torch

from migrator.learn.cuda_graphs import CapturedSteps, Graph
from migrator.learn.registry import model_class

MODELS = ("mobilenet-v2", "resnet-50", "inception-v3", "convnext-b", "vit-b-16", "bert-base")
BATCH, PIXELS, CLASSES = 64, 64, 10
FIRST, MEASURED = 8, 12


def refused(*_: object) -> Graph | None:
    """Nothing is captured: every step is launched kernel by kernel."""
    return None


def measured(name: str, device: str, *, captured: bool) -> tuple[float, list[float]]:
    """Milliseconds a step after the first ones, and the losses of all of them."""
    kind: Any = model_class(name)
    sized = {"pixels": max(PIXELS, kind.least_pixels)} if hasattr(kind, "least_pixels") else {}
    model = kind.build(CLASSES, 0, **sized)
    model.to(device)
    inputs, labels = model.example(BATCH), (np.arange(BATCH) % CLASSES).astype(np.int64)
    losses = [model.train_step(inputs, labels, 1e-4)]
    if not captured and device == "cuda":
        model._captured = CapturedSteps(refused)
    losses += [model.train_step(inputs, labels, 1e-4) for _ in range(FIRST - 1)]
    began = time.monotonic()
    losses += [model.train_step(inputs, labels, 1e-4) for _ in range(MEASURED)]
    return 1e3 * (time.monotonic() - began) / MEASURED, losses


def main() -> None:
    """A line per model."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    print(f"{'model':<14}{'launched ms':>12}{'captured ms':>13}{'losses apart':>14}")
    for name in sys.argv[1:] or MODELS:
        launched_ms, before = measured(name, device, captured=False)
        captured_ms, after = measured(name, device, captured=True)
        apart = max(abs(one - other) for one, other in zip(before, after, strict=True))
        print(f"{name:<14}{launched_ms:>12.1f}{captured_ms:>13.1f}{apart:>14.2g}", flush=True)


if __name__ == "__main__":
    main()
