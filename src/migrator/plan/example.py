"""An example window to start from: two tenants whose bursts take turns on one A100."""

from __future__ import annotations

import math
import random

SLOTS = 200


def example_problem() -> dict[str, object]:
    """A problem file, version 1, as a value; the same on every machine."""
    return {
        "version": 1,
        "gpu": "A100-40GB",
        "slot_s": 1.0,
        "slots": SLOTS,
        "charge": "paper",
        "tenants": [
            {
                "name": "bert",
                "received": _arrivals(seed=1, mean=140, swing=0.6, period_s=110, phase=0.0),
                # no "1": on one GPC it misses its deadline, so it is never served there
                "capability": {"2": 110, "3": 168, "4": 216, "7": 340},
                "accuracy_pre": 0.61,
                "accuracy_post": 0.85,
                "retraining_slots": {"1": 150, "2": 80, "3": 56, "4": 45},
                "overhead_s": 2.0,
                "min_gpcs": 2,
            },
            {
                "name": "resnet50",
                "received": _arrivals(seed=2, mean=210, swing=0.65, period_s=110, phase=math.pi),
                "capability": {"1": 95, "2": 180, "3": 250, "4": 320, "7": 500},
                "accuracy_pre": 0.70,
                "accuracy_post": 0.82,
                "retraining_slots": {"1": 120, "2": 64, "3": 45, "4": 36},
                "overhead_s": 1.5,
                "min_gpcs": 1,
            },
        ],
        "initial": None,
    }


def _arrivals(seed: int, mean: float, swing: float, period_s: float, phase: float) -> list[int]:
    """A slow wave with noise and two bursts."""
    noise = random.Random(seed)  # its sequence is fixed by the language, so the example is too
    bursts = {round(noise.uniform(0.1, 0.9) * SLOTS): noise.uniform(0.3, 0.6) for _ in range(2)}
    arrivals = []
    for t in range(SLOTS):
        rate = 1 + swing * math.sin(2 * math.pi * t / period_s + phase)
        rate += sum(height for at, height in bursts.items() if at <= t < at + 12)
        arrivals.append(max(0, round(mean * rate * noise.gauss(1, 0.08))))
    return arrivals
