"""What MPS gives a policy on a real GPU: `python -m benchmarks.gpu.mps_limits --out FILE`.

capacity   inferences per second of 7, 8 and 10 equal processes that share the whole GPU, and the
           SMs that each of them gets
resizing   a training that moves to a share of another size: MPS fixes a share when a process
           creates its CUDA context, so the training is saved, a second process, which has imported
           torch and built the model before, loads it and makes the next step. Seconds from the
           last step before to the first step after, and what they are spent on; what the parts
           leave is the first process's exit, which frees its SMs

Needs a GPU with MIG off, torch and the zoo's libraries; `PYTHONPATH=src` where MIGRator is not
installed.
`--driver cpu --board H200-141GB` tries the script without a GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from migrator.core import catalogue
from migrator.gpu.drivers.mps import PERCENTAGE
from migrator.learn.registry import build
from migrator.profiling.drivers import DRIVERS, Driver, driver

PROCESSES = (7, 8, 10)
BATCH, TRAINING_BATCH = 4, 32
SIZES = (16, 32, 64, 16, 64, 32)
"""SMs of the shares that a training moves through."""
STEPS = 20
"""Steps on each share."""

Json = dict[str, Any]


class Process:
    """A process of this script with `--process`: one line of JSON each way."""

    def __init__(self, model: str, task: str) -> None:
        self._child = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.gpu.mps_limits", "--process", model, task],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def tell(self, **message: object) -> None:
        """Send a message."""
        assert self._child.stdin is not None
        print(json.dumps(message), file=self._child.stdin, flush=True)

    def answer(self) -> Json:
        """The next line that it prints; RuntimeError if it has ended."""
        assert self._child.stdout is not None
        line = self._child.stdout.readline()
        if not line:
            raise RuntimeError(f"a process ended with {self._child.wait()}")
        answer: Json = json.loads(line)
        return answer

    def end(self) -> None:
        """Wait until it has ended; kill it if it does not."""
        assert self._child.stdin is not None
        self._child.stdin.close()
        try:
            self._child.wait(20)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()


@contextmanager
def processes(model: str, task: str, number: int) -> Iterator[list[Process]]:
    """Processes that have imported torch and built the model and have not touched CUDA."""
    with ExitStack() as stack:
        started = []
        for _ in range(number):
            started.append(Process(model, task))
            stack.callback(started[-1].end)
        for process in started:
            process.answer()
        yield started


def capacity(mps: Driver, model: str, number: int, for_s: float) -> Json:
    """Inferences of a number of equal processes at the same time."""
    with mps.share(mps.board.sms) as whole, processes(model, "infer", number) as workers:
        environment = dict(whole.environment)
        if PERCENTAGE in environment:
            environment[PERCENTAGE] = f"{100 / number:.4f}"
        for worker in workers:
            worker.tell(environment=environment, device=mps.device)
        sms = [worker.answer()["sms"] for worker in workers]
        start_s = time.monotonic() + 0.2
        for worker in workers:
            worker.tell(start_s=start_s, for_s=for_s)
        done = [worker.answer() for worker in workers]
    return {
        "model": model,
        "processes": number,
        "percentage": round(100 / number, 2),
        "sms": sorted(set(sms)),
        "inferences_per_s": sum(row["inferences"] / row["seconds"] for row in done),
        "batch_ms": median(row["batch_ms"] for row in done),
    }


def resizing(mps: Driver, model: str, sizes: Sequence[int]) -> Iterator[Json]:
    """The training's moves from share to share."""
    with (
        tempfile.TemporaryDirectory() as folder,
        processes(model, "train", len(sizes)) as workers,
        ExitStack() as shares,
    ):
        before: Json | None = None
        for number, (sms, worker) in enumerate(zip(sizes, workers, strict=True)):
            share = shares.enter_context(mps.share(sms))
            path = Path(folder) / f"{number}.safetensors"
            last = None if number == 0 else str(Path(folder) / f"{number - 1}.safetensors")
            worker.tell(environment=dict(share.environment), device=mps.device, load=last)
            first = worker.answer()
            if before is not None:
                yield {
                    "model": model,
                    "from_sms": sizes[number - 1],
                    "to_sms": sms,
                    "without_step_s": first["stepped_s"] - before["stepped_s"],
                    "saving_s": before["saving_s"],
                    **{part: first[part] for part in ("context_s", "loading_s", "first_step_s")},
                    "second_step_s": first["second_step_s"],
                    "third_step_s": first["third_step_s"],
                    "step_ms": before["step_ms"],
                }
            worker.tell(steps=STEPS, save=str(path))
            before = worker.answer()
            worker.end()


def measured(mps: Driver, models: Sequence[str], for_s: float) -> Iterator[tuple[str, Json]]:
    """Rows of both studies of every model, with the study's name."""
    with mps.open():
        for model in models:
            for number in PROCESSES:
                yield "capacity", capacity(mps, model, number, for_s)
            for row in resizing(mps, model, SIZES):
                yield "resizing", row


def process(model_name: str, task: str) -> None:
    """The other side: get ready, be message the share, work, tell the result."""
    torch.set_num_threads(1)
    model: Any = build(model_name, 10, 0, pretrained=False)
    say({"ready": True})
    message = json.loads(sys.stdin.readline())
    os.environ.update(message["environment"])
    device = message["device"]
    began = time.monotonic()
    sms = 0
    if device == "cuda":
        torch.cuda.synchronize()
        sms = torch.cuda.get_device_properties(0).multi_processor_count
    context_s = time.monotonic() - began
    if task == "infer":
        serve(model, device, sms)
        return
    began = time.monotonic()
    model.to(device)
    if message["load"]:
        model.load(Path(message["load"]))
    loading_s = time.monotonic() - began
    inputs = model.example(TRAINING_BATCH)
    labels = (np.arange(TRAINING_BATCH) % 10).astype(np.int64)

    def step() -> float:
        began = time.monotonic()
        model.train_step(inputs, labels, 1e-4)
        return time.monotonic() - began

    first_step_s = step()
    stepped_s = time.monotonic()
    say(
        {
            "sms": sms,
            "context_s": context_s,
            "loading_s": loading_s,
            "first_step_s": first_step_s,
            "stepped_s": stepped_s,
            "second_step_s": step(),
            "third_step_s": step(),
        }
    )
    message = json.loads(sys.stdin.readline())
    took = [step() for _ in range(message["steps"])]
    stepped_s = time.monotonic()
    model.save(Path(message["save"]), training=True)
    saving_s = time.monotonic() - stepped_s
    say({"stepped_s": stepped_s, "saving_s": saving_s, "step_ms": 1e3 * median(took)})


def serve(model: Any, device: str, sms: int) -> None:
    """Answer batches one after the other for the time asked for."""
    model.to(device)
    inputs = model.example(BATCH)
    model.begin_serving(BATCH)
    for _ in range(5):
        model.infer(inputs)
    say({"sms": sms})
    message = json.loads(sys.stdin.readline())
    time.sleep(max(0.0, message["start_s"] - time.monotonic()))
    took: list[float] = []
    began = time.monotonic()
    while time.monotonic() - began < message["for_s"]:
        once = time.monotonic()
        model.infer(inputs)
        took.append(time.monotonic() - once)
    seconds = time.monotonic() - began
    say({"inferences": BATCH * len(took), "seconds": seconds, "batch_ms": 1e3 * median(took)})
    select.select([sys.stdin], [], [], 20.0)  # the others must not be measured without this one


def say(message: Mapping[str, object]) -> None:
    """Answer with one line."""
    print(json.dumps(message), flush=True)


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    add("--out", type=Path, help="JSON to write")
    add("--models", nargs="+", default=["resnet-50", "bert-base", "convnext-b"])
    add("--for-s", type=float, default=2.0, help="seconds of each measurement of capacity")
    add(
        "--driver",
        choices=[e.name for e in DRIVERS.values() if e.coexist],
        default="mps",
    )
    add("--board", help="the board expected; needed for --driver cpu")
    add("--process", nargs=2, metavar=("MODEL", "TASK"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.process:
        process(*arguments.process)
        return
    gpu_driver = driver(
        arguments.driver, 0, catalogue.board(arguments.board) if arguments.board else None
    )
    result: Json = {
        "command": f"python -m benchmarks.gpu.mps_limits --models {' '.join(arguments.models)}",
        "measured": datetime.now(UTC).date().isoformat(),
        **gpu_driver.about,
        "torch": torch.__version__,
        "capacity": [],
        "resizing": [],
    }
    for study, row in measured(gpu_driver, arguments.models, arguments.for_s):
        result[study].append(row)
        print(json.dumps(row), flush=True)
        if arguments.out:  # after every row, so that an interruption loses none
            arguments.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
