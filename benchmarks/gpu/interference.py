"""Measure how models slow one another down on one GPU: `python benchmarks/gpu/interference.py`.

Needs an NVIDIA GPU with MIG off, torch, torchvision and transformers; no part of MIGRator.
Shares of the SMs are MPS percentages, of the sizes that MIG instances have on an H200. Unlike
MIG, MPS leaves memory bandwidth and L2 to everybody, so what is measured here is what a policy
on MPS suffers, and more than MIG instances would.

Inference is fp16 in a CUDA graph, one batch after another, each waited for; its time is the
host's, from launch to answer. A training step is fp16 autocast and SGD on 32 samples, as a CUDA
graph too, launched one ahead so that the GPU never waits; `training-eager` launches it kernel by
kernel, which on a fast GPU measures the host. Weights and inputs are random, which does not
change times. transformers gives BERT an attention mask under capture and none outside, so
its eager steps do less.

`finite` says whether the first answer of an inference was. On an H200 (driver 580, torch 2.11)
some were not, eagerly neither, but only on 48, 60 and 96 SMs: why is not known, and nobody should
serve on such MPS shares without comparing answers.

Studies, in the order they are measured:

unpartitioned  no MPS: the driver's time slices; inference and a training, alone and together
alone          one process on a share, nobody beside it
siblings       n processes of one model at once, each on an n-th of the GPU
beside         inference on 60 SMs, or three on 16 SMs, beside a training on 64 SMs
feeding        a training on 64 SMs beside four ResNet-50 on 16 SMs
unlimited      MPS with 100% for both: inference beside a training
training       steps of 32 on a share, and inference of 32 to hold them against

Processes of a phase start together, warm up, and are measured over the same interval, after
which all go on a little so that nobody is measured alone. Every phase is written to `--lines` at
once; phases already there are not measured again, so a run that was cut off is simply repeated.
`--out` gets everything as one JSON file, with slowdowns against the same job alone; `start` says
which start of the processes a figure comes from, as two starts may be two boards.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from phases import ALL_SMS, MODELS, PROCESSES, Job, Phase, partitioned, unpartitioned
from worker import Row, serve

ANSWER_S = 120.0
"""A process that has not answered by then is taken for lost."""


class Pool:
    """Processes by their SMs, started together and ended together."""

    def __init__(self, processes: dict[int, int], environment: dict[str, str], whole: bool) -> None:
        context = get_context("spawn")
        self._all: list[tuple[int, Any, Connection]] = []
        for sms in (sms for sms, number in processes.items() for _ in range(number)):
            # Rounded up: MPS rounds the SMs down.
            percent = {
                "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": f"{math.ceil(1000 * sms / ALL_SMS) / 10:g}"
            }
            ours, theirs = context.Pipe()
            given = environment if whole else environment | percent
            process = context.Process(target=serve, args=(theirs, given), daemon=True)
            process.start()
            theirs.close()
            self._all.append((sms, process, ours))

    def ready(self) -> list[list[int]]:
        """Per process the SMs asked for and the SMs it sees."""
        return [[sms, int(_received(pipe))] for sms, _, pipe in self._all]

    def pipes(self, phase: Phase) -> list[tuple[Connection, Job]]:
        """A process for each of the phase's jobs."""
        free = {sms: [pipe for at, _, pipe in self._all if at == sms] for sms in PROCESSES}
        return [(free[sms].pop(0), job) for sms, job in phase.jobs]

    def prepare(self, phases: list[Phase]) -> None:
        """Let every process prepare, all at once, its inferences and its first training."""
        wanted: dict[Connection, list[Job]] = {}
        for pipe, job in (pair for phase in phases for pair in self.pipes(phase)):
            jobs = wanted.setdefault(pipe, [])
            if job not in jobs:
                jobs.append(job)
        for pipe, jobs in wanted.items():
            pipe.send((jobs, 0.0, None))
        _raise_errors([_received(pipe) for pipe in wanted])

    def run(self, phase: Phase) -> list[Row]:
        """The phase's jobs together; one row per job."""
        pipes = self.pipes(phase)
        for pipe, job in pipes:
            pipe.send(([job], 0.0, None))
        _raise_errors([_received(pipe) for pipe, _ in pipes])
        start_s = time.monotonic() + 0.02
        for pipe, job in pipes:
            pipe.send(([job], start_s, phase.pace))
        answers = [_received(pipe) for pipe, _ in pipes]
        _raise_errors(answers)
        return [
            {"sms": sms, **asdict(job), **answer}
            for (sms, job), answer in zip(phase.jobs, answers, strict=True)
        ]

    def end(self) -> None:
        """End every process; one that does not go is killed."""
        for _, process, pipe in self._all:
            if process.is_alive():
                pipe.send(None)
        for _, process, _ in self._all:
            process.join(10)
            if process.is_alive():
                process.kill()
                process.join()


def _received(pipe: Connection) -> Any:
    if not pipe.poll(ANSWER_S):
        raise TimeoutError(f"a process did not answer within {ANSWER_S:g} s")
    return pipe.recv()


def _raise_errors(answers: list[Any]) -> None:
    for error in (answer for answer in answers if isinstance(answer, str)):
        raise RuntimeError(error)


@contextmanager
def mps() -> Iterator[dict[str, str]]:
    """An MPS daemon of our own, told to quit whatever happens; what its clients need to find it."""
    with tempfile.TemporaryDirectory(prefix="mps", ignore_cleanup_errors=True) as folder:
        ours = {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
        control = ["nvidia-cuda-mps-control"]
        environment = os.environ | ours
        subprocess.run([*control, "-d"], env=environment, check=True, timeout=60)
        try:
            yield ours
        finally:
            subprocess.run(
                control, input="quit -t 5\n", text=True, env=environment, check=False, timeout=60
            )


@contextmanager
def pool(phases_under: str) -> Iterator[Pool]:
    """The processes for phases under MPS, or under the driver's time slices."""
    with ExitStack() as stack:
        sliced = phases_under == "time-slices"
        environment = {} if sliced else stack.enter_context(mps())
        processes = Pool({ALL_SMS: 2} if sliced else PROCESSES, environment, whole=sliced)
        stack.callback(processes.end)
        yield processes


class Lines:
    """The file of phases already measured, one JSON object per line."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self.rows: list[Row] = []
        if path.exists():
            self.rows = [json.loads(line) for line in path.read_text().splitlines()]

    def has(self, phase: Phase) -> bool:
        """Whether this phase has been measured."""
        return any(row.get("key") == phase.key for row in self.rows)

    def add(self, row: Row) -> None:
        """Keep the row, on disk at once."""
        self.rows.append(row)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


def measure(groups: Iterator[list[Phase]], under: str, lines: Lines, until_s: float) -> None:
    """Measure what is not yet in the file, group by group, until the time is up."""
    todo = [[phase for phase in group if not lines.has(phase)] for group in groups]
    if not any(todo) or time.monotonic() > until_s:
        return
    with pool(under) as processes:
        lines.add({"partition": under, "sms_asked_and_seen": processes.ready(), **board()})
        for group in filter(None, todo):
            try:
                _measure_group(group, processes, lines, until_s)
            except RuntimeError as error:
                print(f"left out, {group[0].jobs[0]}: {error}", file=sys.stderr, flush=True)
        lines.add({"partition": under, **board()})


def _measure_group(group: list[Phase], processes: Pool, lines: Lines, until_s: float) -> None:
    if time.monotonic() > until_s:
        return
    processes.prepare(group)
    for phase in group:
        if time.monotonic() > until_s:
            return
        if lines.has(phase):
            continue
        rows = processes.run(phase)
        head = {"key": phase.key, "study": phase.study, "partition": phase.partition}
        lines.add({**head, "runs": rows})
        shown = [
            f"{r['task'][:5]} {r['model']} {r['batch']}@{r['sms']} {r['median_ms']}" for r in rows
        ]
        print(f"{phase.study}: {'; '.join(dict.fromkeys(shown))}", flush=True)


def board() -> Row:
    """The GPU, its driver, the versions that matter, and the clocks of this moment."""
    query = "name,driver_version,clocks.sm,clocks.mem,temperature.gpu,power.draw"
    command = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader,nounits", "-i", "0"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    name, driver, *read = (field.strip() for field in shown.stdout.split(","))
    versions = {each: version(each) for each in ("torch", "torchvision", "transformers")}
    clocks = dict(zip(("sm_mhz", "memory_mhz", "celsius", "watts"), map(float, read), strict=True))
    today = datetime.now(UTC).strftime("%Y-%m-%d")
    return {"measured": today, "board": name, "driver": driver, **versions, "read": clocks}


def collected(rows: list[Row]) -> Row:
    """Everything measured; jobs of a phase with their slowdown against the same job alone."""
    about = [row for row in rows if "board" in row]
    phases = [row for row in _numbered(rows) if "runs" in row]
    alone = {
        _job_key(phase, phase["runs"][0]): float(phase["runs"][0]["median_ms"])
        for phase in phases
        if len(phase["runs"]) == 1
    }
    same = ("measured", "board", "driver", "torch", "torchvision", "transformers")
    return {
        "command": "python benchmarks/gpu/interference.py",
        **{name: about[0][name] for name in same},
        "starts": [{name: row[name] for name in row if name not in same} for row in about],
        "alone": [{**_head(p), **p["runs"][0]} for p in phases if len(p["runs"]) == 1],
        "together": [
            {**_head(phase), "jobs": _summed(phase, alone)}
            for phase in phases
            if len(phase["runs"]) > 1
        ],
    }


def _numbered(rows: list[Row]) -> Iterator[Row]:
    """The rows with the number of the start of processes they belong to, from 0."""
    start = -1
    for row in rows:
        start += "sms_asked_and_seen" in row
        yield {**row, "start": start}


def _head(phase: Row) -> Row:
    return {name: phase[name] for name in ("study", "partition", "start")}


def _summed(phase: Row, alone: dict[tuple[Any, ...], float]) -> list[Row]:
    """One row per job of the phase: the median process, and the slowest."""
    found: dict[tuple[Any, ...], list[Row]] = {}
    for run in phase["runs"]:
        found.setdefault(_job_key(phase, run), []).append(run)
    return [_summary(runs, alone.get(key)) for key, runs in found.items()]


def _summary(runs: list[Row], alone_ms: float | None) -> Row:
    median_ms = statistics.median(run["median_ms"] for run in runs)
    return {
        "processes": len(runs),
        **{name: runs[0][name] for name in ("sms", "task", "model", "batch")},
        "median_ms": round(median_ms, 4),
        "slowest_ms": max(run["median_ms"] for run in runs),
        "mean_ms": round(statistics.fmean(run["mean_ms"] for run in runs), 4),
        "p99_ms": max(run["p99_ms"] for run in runs),
        "steps": sum(run["steps"] for run in runs),
        **({"alone_ms": alone_ms, "slowdown": round(median_ms / alone_ms, 3)} if alone_ms else {}),
    }


def as_text(result: Row) -> str:
    """The result as JSON, a line per measurement: short enough to read, and to compare by eye."""
    parts = [
        f" {json.dumps(name)}: "
        + (_listed(value) if isinstance(value, list) else json.dumps(value))
        for name, value in result.items()
    ]
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _listed(rows: list[Row]) -> str:
    return "[\n" + ",\n".join(f"  {json.dumps(row, allow_nan=False)}" for row in rows) + "\n ]"


def _job_key(phase: Row, run: Row) -> tuple[Any, ...]:
    return (phase["partition"], run["task"], run["model"], run["batch"], run["sms"])


def main() -> int:
    """Measure, then write what there is."""
    options = _options()
    # So that a termination also ends the processes and the daemon.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    until_s = time.monotonic() + options.limit_s
    lines = Lines(options.lines)
    if not options.collect:
        measure(unpartitioned(), "time-slices", lines, until_s)
        measure(partitioned(options.models), "mps", lines, until_s)
    options.out.write_text(as_text(collected(lines.rows)), encoding="utf-8")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure slowdowns between models on one GPU.")
    add = parser.add_argument
    add("--lines", type=Path, default=Path("out/interference.jsonl"), help="phases as measured")
    add("--out", type=Path, default=Path("out/h200-interference.json"), help="the result")
    add("--models", nargs="+", choices=MODELS, default=MODELS, metavar="NAME", help="these only")
    add("--limit-s", type=float, default=540.0, help="start no phase after so many seconds")
    add("--collect", action="store_true", help="measure nothing, only write the result")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
