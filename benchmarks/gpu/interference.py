"""Measure how models slow one another down on one GPU: `python benchmarks/gpu/interference.py`.

Needs an NVIDIA GPU with MIG off, torch, torchvision and transformers; no part of MIGRator.
Shares of the SMs are MPS percentages, of the sizes that MIG instances have on an H200. Unlike
MIG, MPS leaves memory bandwidth and L2 to everybody, so what is measured here is what a policy
on MPS suffers, and more than MIG instances would.

Inference is fp16 in a CUDA graph, one batch after another, each waited for; its time is the
host's, from launch to answer. A training step is fp16 autocast with SGD, launched one ahead
(`training`), or the same step as a CUDA graph (`training-graph`), which shows what the GPU alone
needs. Weights and inputs are random, which does not change times.

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
`--out` gets everything as one JSON file, with slowdowns against the same job alone.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
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
    return {"board": name, "driver": driver, **versions, "read": clocks}


def collected(rows: list[Row]) -> Row:
    """Everything measured, and each job's slowdown against the same job alone."""
    about = [row for row in rows if "board" in row]
    phases = [{name: row[name] for name in row if name != "key"} for row in rows if "runs" in row]
    alone = {
        _job_key(phase, phase["runs"][0]): phase["runs"][0]["median_ms"]
        for phase in phases
        if len(phase["runs"]) == 1
    }
    same = ("board", "driver", "torch", "torchvision", "transformers")
    return {
        "measured": datetime.now(UTC).strftime("%Y-%m-%d"),
        "command": "python benchmarks/gpu/interference.py",
        **{name: about[0][name] for name in same},
        "shares": [
            {name: row[name] for name in row if name not in same and name != "key"} for row in about
        ],
        "alone": [
            {"partition": p["partition"], **p["runs"][0]} for p in phases if len(p["runs"]) == 1
        ],
        "together": [
            {
                "study": phase["study"],
                "partition": phase["partition"],
                "runs": _slowed(phase, alone),
            }
            for phase in phases
            if len(phase["runs"]) > 1
        ],
    }


def _slowed(phase: Row, alone: dict[tuple[Any, ...], float]) -> list[Row]:
    found = [(run, alone.get(_job_key(phase, run))) for run in phase["runs"]]
    return [
        {**run, **({"slowdown": round(run["median_ms"] / by_itself, 4)} if by_itself else {})}
        for run, by_itself in found
    ]


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
    text = json.dumps(collected(lines.rows), indent=1, allow_nan=False)
    options.out.write_text(text + "\n", encoding="utf-8")
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
