"""How fast tenants are placed on many GPUs, and how far below the bound.

    python -m benchmarks.placement [--gpus 10 30 ...] [--distinct] [--jobs 2] [--out FOLDER]

Two tenants per GPU, of twelve kinds (six models under two kinds of arrivals, each with 0.2 to
0.45 of what a whole H200 could answer for it) that all retrain. With --distinct every tenant has
a rate of its own instead, so none is like another. Seconds are of `place` alone, the planner's
kernels loaded, worker processes started; --out writes placement.json and placement.png.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.machine import describe_machine
from migrator.cluster.file import parse_cluster
from migrator.cluster.placement.place import place
from migrator.cluster.scenario import ClusterScenario
from migrator.core.catalogue import board
from migrator.core.problem import Charge
from migrator.core.profiles import Service, profile
from migrator.io.task_pool import open_workers
from migrator.planning.planners import ready
from migrator.report.page import Axis, Picture
from migrator.report.png import write
from migrator.reproduce.experiment import bars
from migrator.workload.capacity import highest_rps

SIZES = (10, 30, 100, 300, 1000)
GPU = "H200-141GB"
MODELS = ("bert-base", "vit-b-16", "convnext-b", "inception-v3", "resnet-50", "mobilenet-v2")
LOADS = (0.3, 0.25, 0.2, 0.4, 0.35, 0.45)
ARRIVALS = ("alibaba", "azure")
SECONDS = 60.0
MOST_GAP = 0.02
"""The goal for the gap."""


@dataclass(frozen=True)
class Row:
    """One cluster placed."""

    gpus: int
    tenants: int
    distinct: bool
    place_s: float
    goodput_rps_per_gpu: float
    gap: float
    planned_sets: int
    load_average: float


def entry(number: int, spread: float = 1.0) -> dict[str, Any]:
    """A kind of tenant; `spread` is a factor on its rate."""
    model, kind = MODELS[number % 6], ARRIVALS[(number // 6 + number) % 2]
    most_rps = highest_rps(Service(model, profile(model, GPU), 0.1, 1), board(GPU))
    dataset = "nc-20-newsgroups" if model == "bert-base" else "nc-cifar-10"
    return {
        "name": f"kind-{number}",
        "model": model,
        "slo_ms": 100,
        "arrivals": {"generator": kind, "mean_rps": LOADS[number * 5 % 6] * spread * most_rps},
        "retraining": {"dataset": dataset},
    }


def scenario(gpus: int, *, distinct: bool = False, seed: int = 0) -> ClusterScenario:
    """Two tenants per GPU."""
    total = 2 * gpus
    if distinct:
        tenants = [
            {**entry(number, 0.7 + 0.6 * number / total), "name": f"tenant-{number}"}
            for number in range(total)
        ]
    else:
        kinds = min(12, total)
        counts = [total // kinds + (number < total % kinds) for number in range(kinds)]
        tenants = [{**entry(number), "count": count} for number, count in enumerate(counts)]
    data = {
        "version": 1,
        "windows": 1,
        "seed": seed,
        "cluster": {"gpus": [{"board": GPU, "name": "gpu", "count": gpus}]},
        "tenants": tenants,
    }
    return parse_cluster(data, folder=Path(), name=f"{gpus} GPUs")


def measure(sizes: Sequence[int], jobs: int, *, distinct: bool) -> list[Row]:
    """Every size once, in the order given."""
    rows = []
    with open_workers(jobs) as workers:
        list(workers.map(ready, [Charge.PAPER] * 4 * jobs))
        for gpus in sizes:
            calls: list[None] = []
            this = scenario(gpus, distinct=distinct)
            plan = place(this, workers, seconds=SECONDS, on_planned=partial(calls.append, None))
            row = Row(
                gpus,
                len(this.tenants),
                distinct,
                plan.place_s,
                plan.goodput_rps / gpus,
                plan.gap,
                len(calls),
                os.getloadavg()[0],
            )
            print(
                f"{row.gpus:>5} GPUs {row.tenants:>5} tenants {row.place_s:7.1f} s  "
                f"gap {row.gap:.2%}  {row.planned_sets} sets planned",
                flush=True,
            )
            rows.append(row)
    return rows


def draw(rows: Sequence[Row], path: Path) -> None:
    """Seconds and gap by the number of GPUs, with their limits."""
    sizes = [f"{row.gpus:,}" for row in rows]
    gpus = Axis("GPUs")
    seconds = bars(
        "Time to place", sizes, {"s": [row.place_s for row in rows]}, gpus, Axis("time", "s")
    )
    gap = bars(
        "Below the bound", sizes, {"gap": [row.gap for row in rows]}, gpus, Axis("gap", share=True)
    )
    charts = (replace(seconds, mark=SECONDS), replace(gap, mark=MOST_GAP))
    write(Picture("", "", charts), path)


def main() -> None:
    """Measure, print, and write where asked."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--gpus", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--distinct", action="store_true")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    rows = measure(asked.gpus, asked.jobs, distinct=asked.distinct)
    if asked.out is not None:
        record = {"machine": describe_machine(), "rows": [asdict(row) for row in rows]}
        (asked.out / "placement.json").write_text(json.dumps(record, indent=1) + "\n")
        draw(rows, asked.out / "placement.png")


if __name__ == "__main__":
    main()
