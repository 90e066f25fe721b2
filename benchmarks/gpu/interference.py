"""What a training suffers from its neighbours: `python -m benchmarks.gpu.interference`.

`migrator profile --interference` measures how a model is slowed down while it serves; what the
simulator assumes of trainings (`simulation/interference.py`) rests on the studies here, measured
with the same processes:

alone      a training on 64 SMs, and on the whole GPU
feeding    a training on 64 SMs beside four ResNet-50 that serve on 16 SMs each
unlimited  MPS with 100% for both: a model that serves beside a training
slices     the same without MPS: the driver lets them take turns

Needs a GPU with MIG off, torch and the zoo's libraries; `PYTHONPATH=src` where MIGRator is not
installed.
Repeated after an interruption it goes on. `docs/results/h200-interference.json` was measured
before there was a profiler, with the predecessor of this script and torchvision's networks.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path

from migrator.core import catalogue
from migrator.core.catalogue import Board
from migrator.profiling.__main__ import print_measurement
from migrator.profiling.drivers import DRIVERS, driver
from migrator.profiling.measurements import (
    TRAINING_BATCH,
    Measurement,
    Partition,
    ProcessJob,
    Study,
    WorkKind,
)
from migrator.profiling.results import Results
from migrator.profiling.run import Measuring

FEEDING, FEEDERS = "resnet-50", 4


def studies(board: Board, trained: str, models: list[str]) -> Iterator[Measurement]:
    """Every study, trainings alone first."""
    sms = sorted(board.sms_of(gpcs) for gpcs in board.sizes)
    training = ProcessJob(WorkKind.TRAINING, trained, TRAINING_BATCH)
    half, whole = (sms[-2], training), (sms[-1], training)
    yield Measurement(Study.TRAINING, (half,))
    yield Measurement(Study.TRAINING, (whole,))
    fed = (sms[0], ProcessJob(WorkKind.INFERENCE, FEEDING, 1))
    yield Measurement(Study.INTERFERENCE, (*((fed,) * FEEDERS), half))
    served = [
        (sms[-1], ProcessJob(WorkKind.INFERENCE, model, batch))
        for model in models
        for batch in (1, 4)
    ]
    yield from (Measurement(Study.INTERFERENCE, (tenant, whole)) for tenant in served)
    yield Measurement(Study.TRAINING, (whole,), Partition.NONE)
    for tenant in served:
        yield Measurement(Study.INTERFERENCE, (tenant,), Partition.NONE)
        yield Measurement(Study.INTERFERENCE, (tenant, whole), Partition.NONE)


def summary(todo: list[Measurement], results: Results) -> Iterator[str]:
    """How much longer a training step takes than alone."""
    alone: dict[tuple[str, int], float] = {}
    for measurement in todo:
        row = results.rows.get(measurement.key, {})
        if "jobs" not in row:
            continue
        last = row["jobs"][-1]
        if last["task"] == WorkKind.TRAINING:
            key = (row["partition"], last["sms"])
            by_itself = alone.setdefault(key, last["p50_ms"])
            part = f"{last['p50_ms'] / by_itself:.3f}"
            yield f"{measurement.description}: training {part} of its own time"


def main() -> None:
    """Measure what is missing and say how trainings were slowed down."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    add("--out", type=Path, default=Path("interference.jsonl"), help="measurements, a line each")
    add("--trained", default="convnext-b", help="the model that trains")
    add("--models", nargs="+", default=["resnet-50", "convnext-b", "mobilenet-v2"])
    divided = [entry.name for entry in DRIVERS.values() if entry.coexist]
    add("--driver", choices=divided, default="mps")
    add("--board", help="the board expected; needed for --driver cpu")
    add("--budget-s", type=float, default=1e9, help="begin nothing that ends after it")
    arguments = parser.parse_args()
    board = catalogue.board(arguments.board) if arguments.board else None
    gpu_driver = driver(arguments.driver, 0, board)
    results = Results(arguments.out, {"driver": gpu_driver.name, **gpu_driver.about})
    todo = list(studies(gpu_driver.board, arguments.trained, arguments.models))
    missing = [measurement for measurement in todo if not results.has(measurement.key)]
    if missing:
        with gpu_driver.open():
            Measuring(
                gpu_driver, results, print_measurement, time.monotonic() + arguments.budget_s
            ).measure(missing)
    print("\n".join(summary(todo, results)))


if __name__ == "__main__":
    main()
