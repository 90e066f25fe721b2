"""Whether goodput grows with the GPUs: python -m benchmarks.cluster_goodput [--gpus 1 2 ...]

Two tenants per GPU, one of each of two kinds that retrain, from 1 to 64 GPUs; placed and then
simulated request by request. Small clusters are run with several seeds, as a few arrivals by
chance are no average; --out writes cluster_goodput.json.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter

from benchmarks.machine import describe_machine
from benchmarks.placement import GPU, entry
from migrator.cluster.file import parse_cluster
from migrator.cluster.placement.place import place
from migrator.cluster.scenario import ClusterScenario
from migrator.cluster.simulate import simulate_placed
from migrator.io.task_pool import open_workers

SIZES = (1, 2, 4, 8, 16, 32, 64)
KINDS = (0, 4)
RUNS = 16
"""GPUs that every size is the mean of, at least."""


@dataclass(frozen=True)
class Row:
    """One size: means over its seeds."""

    gpus: int
    seeds: int
    goodput_rps_per_gpu: float
    expected_rps_per_gpu: float
    goodput_share: float
    seconds: float
    load_average: float


def scenario(gpus: int, seed: int) -> ClusterScenario:
    """Two tenants per GPU."""
    data = {
        "version": 1,
        "windows": 1,
        "seed": seed,
        "cluster": {"gpus": [{"board": GPU, "name": "gpu", "count": gpus}]},
        "tenants": [{**entry(number), "count": gpus} for number in KINDS],
    }
    return parse_cluster(data, folder=Path(), name=f"{gpus} GPUs")


def measure(sizes: Sequence[int], jobs: int, policy: str) -> list[Row]:
    """Every size with as many seeds as make its mean steady."""
    rows = []
    with open_workers(jobs) as workers:
        for gpus in sizes:
            began, seeds = perf_counter(), max(1, RUNS // gpus)
            goodput = expected = share = 0.0
            for seed in range(seeds):
                this = scenario(gpus, seed)
                plan = place(this, workers)
                tally = simulate_placed(this, plan, workers, policy=policy).tally
                goodput += tally.goodput / this.window_s / gpus / seeds
                expected += plan.goodput_rps / gpus / seeds
                share += tally.goodput_share / seeds
            took_s = perf_counter() - began
            rows.append(Row(gpus, seeds, goodput, expected, share, took_s, os.getloadavg()[0]))
            print(
                f"{gpus:>3} GPUs x {seeds:>2} seeds  {goodput:8.1f} requests/s per GPU "
                f"({goodput / rows[0].goodput_rps_per_gpu - 1:+.2%})  {took_s:.0f} s",
                flush=True,
            )
    return rows


def main() -> None:
    """Measure, print, and write where asked."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--gpus", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--policy", default="migrator")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    rows = measure(asked.gpus, asked.jobs, asked.policy)
    spread = [row.goodput_rps_per_gpu for row in rows]
    print(f"goodput per GPU differs by {max(spread) / min(spread) - 1:.2%} from least to most")
    if asked.out is not None:
        record = {
            "machine": describe_machine(),
            "policy": asked.policy,
            "rows": [asdict(row) for row in rows],
        }
        (asked.out / "cluster_goodput.json").write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
