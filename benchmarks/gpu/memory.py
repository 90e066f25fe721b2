"""GPU memory of the processes of a daemon: `python -m benchmarks.gpu.memory SCENARIO`.

For every model of a scenario: what a worker of each batch, a retraining and an estimate hold by
nvidia-smi (the GPU's used memory before and after, under MPS), beside what torch says and what the
model's profile says. Then what a context alone takes, for one to four processes, and whether
captured graphs, which share memory, answer the same in any order of batch sizes.
"""

from __future__ import annotations

import argparse
import copy
import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from migrator.core.profiles import Profile
from migrator.gpu.drivers import nvidia_smi
from migrator.learn.registry import build
from migrator.profiling.drivers import Driver, driver
from migrator.profiling.measurements import ImageSizes, Study, WorkKind, measurements
from migrator.profiling.workers import ProfileWorkerProcess
from migrator.workload.live import read_live

Json = dict[str, Any]
_SETTLES_S = 1.0
"""Before the GPU's memory is read: the driver frees that of an ended process after a moment."""
_CONTEXTS = 4


def main() -> None:
    """Measure, print a table, and write a JSON file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("scenario", type=Path)
    parser.add_argument("--driver", default="mps", choices=("mps", "cpu"))
    parser.add_argument("--gpu", type=int, default=0)
    parser.add_argument("--out", type=Path, help="a JSON file of all figures")
    given = parser.parse_args()
    live = read_live(given.scenario)
    board = live.scenario.board if given.driver == "cpu" else None
    rows: list[Json] = []
    opened = driver(given.driver, given.gpu, board)
    with opened.open():
        for tenant in live.tenants:
            profile, images = tenant.service.profile, ImageSizes(tenant.pixels, tenant.input_pixels)
            for row in _rows(opened, profile, sorted({1, tenant.service.batch}), images, given.gpu):
                rows.append({"tenant": tenant.name, **row})
                print(_line(rows[-1]), flush=True)
        rows += _contexts(opened, given.gpu)
        print(json.dumps(rows[-1]))
    if given.driver != "cpu":
        for tenant in live.tenants:
            rows.append(_difference(tenant.service.profile.model, tenant.service.batch))
            print(json.dumps(rows[-1]))
    if given.out is not None:
        given.out.write_text(json.dumps(rows, indent=1), encoding="utf-8")


def _rows(
    opened: Driver, profile: Profile, batches: list[int], images: ImageSizes, gpu: int
) -> Iterator[Json]:
    """Every kind of process of one model, each alone and new."""
    listed = measurements(opened.board, [profile.model], batches, images={profile.model: images})
    for measurement in listed:
        if measurement.study is not Study.MEMORY:
            continue
        sms, job = measurement.jobs[0]
        before = _used(gpu)
        with ExitStack() as stack:
            share = stack.enter_context(opened.share(sms))
            worker = ProfileWorkerProcess(share, opened.device)
            stack.callback(worker.end)
            worker.ready()
            context = _used(gpu)
            worker.ask("prepare", job)
            answer = worker.answer()
            # it has freed what it held by then, except the context with its loaded kernels
            after = _used(gpu)
        yield {
            "task": job.task,
            "batch": job.batch,
            **answer,
            "smi_context_mib": context - before,
            "smi_context_after_mib": after - before,
            "profile_mib": profile.serving_mib(job.batch)
            if job.task is WorkKind.WORKER
            else profile.training_mib,
        }


def _contexts(opened: Driver, gpu: int) -> Iterator[Json]:
    """The GPU's used memory with no, one, two... processes that have only a context."""
    used = [_used(gpu)]
    with ExitStack() as stack:
        for _ in range(_CONTEXTS):
            share = stack.enter_context(opened.share(opened.board.sms))
            worker = ProfileWorkerProcess(share, opened.device)
            stack.callback(worker.end)
            worker.ready()
            used.append(_used(gpu))
    yield {"used_with_contexts_mib": used}


def _difference(name: str, batch: int) -> Json:
    """The largest differences of scores: in another order of sizes, and to those without graphs."""
    model: Any = build(name, 10, 0, pretrained=False)
    plain = copy.deepcopy(model)
    for network in (model, plain):
        network.to("cuda")
        network.seen[:] = True
    model.begin_serving(batch)
    draw = np.random.default_rng(0)
    example = model.example(batch)
    given = [
        draw.integers(0, 256, example[:size].shape).astype(example.dtype)
        for size in (*range(1, batch + 1), *range(batch, 0, -1), *draw.integers(1, batch + 1, 50))
    ]
    first = [model.infer(inputs) for inputs in given]
    order = draw.permutation(len(given))
    again = max(float(np.abs(model.infer(given[at]) - first[at]).max()) for at in order)
    without = [plain.infer(inputs) for inputs in given]
    differ = max(float(np.abs(a - b).max()) for a, b in zip(first, without, strict=True))
    largest = max(float(np.abs(scores).max()) for scores in without)
    return {"model": name, "repeated": again, "without_graphs": differ, "largest_score": largest}


def _used(gpu: int) -> float:
    time.sleep(_SETTLES_S)
    return nvidia_smi.used_mib(gpu) or 0.0


def _line(row: Json) -> str:
    if "fault" in row:
        return f"{row['tenant']}: {row['task']} x{row['batch']}: {row['said']}"
    figures = {name: row.get(name) for name in ("held_mib", "memory_mib", "context_mib")}
    smi = [row["smi_context_mib"], row["smi_context_after_mib"]]
    said = ", ".join(f"{name} {figure}" for name, figure in figures.items())
    return (
        f"{row['tenant']}: {row['task']} x{row['batch']}: {said}, by nvidia-smi context {smi[0]}, "
        f"after the work {smi[1]}, by the profile {row['profile_mib']:.0f}"
    )


if __name__ == "__main__":
    main()
