"""What a new instance costs where nothing waits ready: for benchmarks/reconfigurations.py.

`python -m benchmarks.cold_start MODEL CLASSES PIXELS BATCH WEIGHTS` is the process: it imports,
builds the model, loads its weights, moves it and answers once, then says so and ends.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.live_daemon import environment
from migrator.core.catalogue import Place, board
from migrator.gpu.drivers.virtual_board import EmulatedDriver
from migrator.learn.registry import build
from migrator.serving.workers.worker import load_weights, warm_up
from migrator.workload.live import LiveTenant


@dataclass(frozen=True)
class Cold:
    """Medians in seconds."""

    create_s: float
    process_s: float
    """Start, imports, model, weights, first answer."""
    destroy_s: float
    """Of what held the slices before, where something did."""
    runs: int

    def total_s(self, *, room: bool) -> float:
        """Until it serves."""
        return self.create_s + self.process_s + (0.0 if room else self.destroy_s)


def measured(folder: Path, gpu: str, tenant: LiveTenant, weights: Path, runs: int) -> Cold:
    """Several times one after the other, on an emulated board of their own."""
    driver = EmulatedDriver(folder, board=board(gpu))
    place = Place(0, board(gpu).plain_profiles[2].name)
    times: list[Mapping[str, float]] = []
    for _ in range(runs):
        began_s = time.monotonic()
        made = driver.create(place)
        created_s = time.monotonic()
        served_s = _answered_s(tenant, weights)
        ending_s = time.monotonic()
        driver.destroy(made)
        times.append(
            {
                "create_s": created_s - began_s,
                "process_s": served_s - created_s,
                "destroy_s": time.monotonic() - ending_s,
            }
        )
    medians = {key: statistics.median(taken[key] for taken in times) for key in times[0]}
    return Cold(**medians, runs=runs)


def _answered_s(tenant: LiveTenant, weights: Path) -> float:
    """When a new process has answered for the first time."""
    arguments = (tenant.model, 10, tenant.pixels or 0, tenant.service.batch, weights)
    command = [sys.executable, "-m", "benchmarks.cold_start", *map(str, arguments)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment())
    with process:
        assert process.stdout is not None
        if process.stdout.readline() != b"answered\n":
            raise SystemExit("the cold process ended without an answer; see what it wrote")
        return time.monotonic()


def main() -> None:
    model, classes, pixels, batch, weights = sys.argv[1:]
    built = build(model, int(classes), 0, int(pixels) or None)
    load_weights(built, Path(weights))
    built.to("cpu")
    warm_up(built, int(batch))
    print("answered", flush=True)


if __name__ == "__main__":
    main()
