"""A process of `drivers.py` in one share of a GPU: the SMs it sees, how fast it multiplies.

It imports torch first and is task its share's environment then, before anything touches CUDA, so
that several can get ready at once. One line of JSON each way: the share, "ready", begin, result.
"""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import suppress
from importlib import import_module
from statistics import median
from typing import Any

import torch


def main() -> None:
    """Be task the share, get ready, be task to begin, tell the result."""
    line = sys.stdin.readline()
    if not line:
        return  # whoever started it has changed their mind
    task = json.loads(line)
    os.environ.update(task["environment"])
    torch.set_grad_enabled(False)
    side = task["side"]
    left, right = (torch.randn(side, side, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    out = torch.empty_like(left)
    once_s = _timed(left, right, out, 4) / 4
    sms = torch.cuda.get_device_properties(0).multi_processor_count
    _say({"pid": os.getpid(), "sms": sms})
    if not sys.stdin.readline():
        return
    result = _rate(left, right, out, once_s, task["for_s"])
    _say({**result, "allocated": [_fits(gib) for gib in task["allocate_gib"]]})


def _rate(
    left: torch.Tensor, right: torch.Tensor, out: torch.Tensor, once_s: float, for_s: float
) -> dict[str, float | None]:
    """TFLOP/s over about `for_s`, and the clock meanwhile."""
    together = max(1, round(0.05 / once_s))
    clock = _Clock()
    products, began_s = 0, time.perf_counter()
    while time.perf_counter() - began_s < for_s:
        for _ in range(together):
            torch.mm(left, right, out=out)
        clock.look()  # the GPU computes while this asks
        torch.cuda.synchronize()
        products += together
    took_s = time.perf_counter() - began_s
    return {"tflops": 2e-12 * left.shape[0] ** 3 * products / took_s, "clock_mhz": clock.mhz}


def _timed(left: torch.Tensor, right: torch.Tensor, out: torch.Tensor, count: int) -> float:
    torch.mm(left, right, out=out)
    torch.cuda.synchronize()
    began_s = time.perf_counter()
    for _ in range(count):
        torch.mm(left, right, out=out)
    torch.cuda.synchronize()
    return time.perf_counter() - began_s


def _fits(gib: float) -> bool:
    try:
        torch.empty(int(gib * 2**30), device="cuda", dtype=torch.uint8)
    except torch.OutOfMemoryError:
        return False
    torch.cuda.empty_cache()
    return True


class _Clock:
    """The clock of the SMs, where NVML tells it."""

    def __init__(self) -> None:
        self._seen_mhz: list[float] = []
        try:
            self._nvml: Any = import_module("pynvml")
            self._nvml.nvmlInit()
            uuid = f"GPU-{torch.cuda.get_device_properties(0).uuid}"
            self._device = self._nvml.nvmlDeviceGetHandleByUUID(uuid)
        except Exception:  # a figure beside the measurement, whatever is wrong with it
            self._nvml = None

    def look(self) -> None:
        """One more reading."""
        if self._nvml is None:
            return
        with suppress(self._nvml.NVMLError):
            mhz = self._nvml.nvmlDeviceGetClockInfo(self._device, self._nvml.NVML_CLOCK_SM)
            self._seen_mhz.append(float(mhz))

    @property
    def mhz(self) -> float | None:
        """The middle one; the first were taken before the GPU was busy."""
        return median(self._seen_mhz) if self._seen_mhz else None


def _say(message: dict[str, Any]) -> None:
    print(json.dumps(message), flush=True)


if __name__ == "__main__":
    main()
