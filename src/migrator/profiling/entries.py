"""The entries of a profile file: derived from measurements, and compared with one another.

A figure that was not measured comes from the packaged profile of the model if there is one, and is
assumed otherwise. The provenance states which. Measurements are written to disk at once, so that an
interrupted run can resume.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

from migrator.core.catalogue import Board
from migrator.core.errors import InputError
from migrator.core.profiles import INTERFERING_PART, Profile, profiles
from migrator.profiling.measurements import TRAINING_BATCH, ImageSizes, Partition, Study, Task

Json = dict[str, Any]

VERSION = 2
CREATE_S = 0.53
"""Seconds to destroy and create a GPU instance with its compute instance, published for an H100."""
ASSUMED = {"training_ratio": 3.0, "interference": 0.25, "contention": 2.0}
"""Figures for models without measurements.

The ratio is the paper's; the others are about the means of the packaged models.
"""
ASSUMED_S = {"start_s": 9.75, "load_s": 1.5}
_PARTS = ("python_s", "import_s", "build_s", "context_s", "copy_s", "first_s", "capture_s")
_STARTING, _LOADING = _PARTS[:3], _PARTS[3:6]


@dataclass(frozen=True)
class Found:
    """All measured jobs of one model."""

    model: str
    board: Board
    rows: tuple[Json, ...]

    def alone(self, task: Task, study: Study) -> Iterator[Json]:
        """Jobs on shares that ran without other jobs."""
        for row in self.rows:
            if row["study"] == study and row["partition"] == Partition.SHARES:
                yield from (each for each in row["jobs"][:1] if each["task"] == task)

    def by_batch(self, figure: str, digits: int = 4) -> dict[int, dict[int, float]]:
        """Batch -> SMs -> a figure of the latencies, as the median over rounds."""
        found: dict[int, dict[int, list[float]]] = {}
        for job in self.alone(Task.INFERENCE, Study.LATENCY):
            by_sms = found.setdefault(job["batch"], {})
            by_sms.setdefault(job["sms"], []).append(job[figure])
        return {
            batch: {sms: round(median(found[batch][sms]), digits) for sms in sorted(found[batch])}
            for batch in sorted(found)
        }

    def by_sms(self, task: Task) -> dict[int, float]:
        """SMs -> milliseconds of a training step."""
        jobs = self.alone(task, Study.TRAINING)
        return dict(sorted((job["sms"], round(job["p50_ms"], 4)) for job in jobs))

    def training_memory_mib(self) -> float | None:
        """The largest memory of a training step; None if it was not measured."""
        known = [
            job["memory_mib"]
            for job in self.alone(Task.TRAINING, Study.TRAINING)
            if job.get("memory_mib")
        ]
        return round(max(known), 1) if known else None


def entry(
    model: str,
    board: Board,
    rows: Iterable[Json],
    where: str,
    reconfigurations: Sequence[Json] = (),
) -> Json | None:
    """The model's profile; None if no latency could be measured."""
    mine = tuple(row for row in rows if row["model"] == model)
    found = Found(model, board, tuple(row for row in mine if "jobs" in row))
    latency_ms = found.by_batch("p50_ms")
    if not latency_ms:
        return None
    measured = {
        "training_ratio": _training_ratio(found, latency_ms),
        "interference": _interference(found, latency_ms),
        "contention": _contention(found),
    }
    known = next((profile for (name, _), profile in profiles().items() if name == model), None)
    figures, words = _filled(known, measured)
    overhead, parts = _overhead(found, known, words)
    created, created_parts = _created(reconfigurations, words)
    return {
        "model": model,
        "board": board.name,
        "latency_ms": _text_keys(latency_ms),
        "latency_p95_ms": _text_keys(found.by_batch("p95_ms")),
        "latency_p99_ms": _text_keys(found.by_batch("p99_ms")),
        **figures,
        "training_ms": {str(sms): each for sms, each in found.by_sms(Task.TRAINING).items()},
        "memory_mib": {
            str(batch): max(by_sms.values())
            for batch, by_sms in found.by_batch("memory_mib", 1).items()
        },
        "training_memory_mib": found.training_memory_mib(),
        "overhead": created | overhead,
        "overhead_parts_s": created_parts | parts,
        "left_out": [row["fault"] for row in mine if "fault" in row],
        "provenance": "; ".join([where, _served(found), *words]),
    }


def _training_ratio(found: Found, latency_ms: Mapping[int, Mapping[int, float]]) -> float | None:
    """Time of a training step over that of an inference of the largest batch.

    Both are per sample. The result is the mean over the sizes.
    """
    steps = found.by_sms(Task.TRAINING)
    batch = max(latency_ms)
    ratios = [
        (ms / TRAINING_BATCH) / (latency_ms[batch][sms] / batch)
        for sms, ms in steps.items()
        if sms in latency_ms[batch]
    ]
    return round(fmean(ratios), 3) if ratios else None


def _interference(found: Found, latency_ms: Mapping[int, Mapping[int, float]]) -> float | None:
    """Relative slowdown, scaled to neighbours that hold `INTERFERING_PART` of the SMs."""
    parts = []
    for row in found.rows:
        if row["study"] != Study.INTERFERENCE or row["partition"] != Partition.SHARES:
            continue
        served = [each for each in row["jobs"] if each["task"] == Task.INFERENCE]
        alone_ms = latency_ms.get(served[0]["batch"], {}).get(served[0]["sms"])
        if alone_ms is not None:
            slowdown = median(each["p50_ms"] for each in served) / alone_ms
            beside = sum(each["sms"] for each in row["jobs"]) - served[0]["sms"]
            parts.append((slowdown - 1) * INTERFERING_PART / (beside / found.board.sms))
    return round(max(0.0, fmean(parts)), 4) if parts else None


def _contention(found: Found) -> float | None:
    """Relative slowdown beside one busy neighbour, without shares."""
    alone: dict[int, float] = {}
    beside: dict[int, float] = {}
    for row in found.rows:
        if row["partition"] == Partition.NONE:
            job = row["jobs"][0]
            (alone if len(row["jobs"]) == 1 else beside)[job["batch"]] = job["p50_ms"]
    parts = [beside[batch] / alone[batch] - 1 for batch in alone.keys() & beside.keys()]
    return round(max(0.0, fmean(parts)), 3) if parts else None


def _filled(known: Profile | None, measured: dict[str, float | None]) -> tuple[Json, list[str]]:
    """The figures, completed from other sources, and text that names these sources."""
    figures: Json = {}
    words = []
    for name, each in measured.items():
        figures[name] = each
        if each is None:
            figures[name] = getattr(known, name) if known else ASSUMED[name]
            words.append(f"{name} {_source(known)}")
    return figures, words


def _source(known: Profile | None) -> str:
    return "of the packaged profile" if known else "assumed"


def _overhead(found: Found, known: Profile | None, words: list[str]) -> tuple[Json, Json]:
    """Process and GPU overheads from cold starts, as the median over sizes."""
    starts = list(found.alone(Task.START, Study.START))
    parts = {
        name: round(median(start[name] for start in starts), 4)
        for name in _PARTS
        if starts and all(name in start for start in starts)
    }
    if parts:
        start_s = round(sum(parts[name] for name in _STARTING), 3)
        load_s = round(sum(parts[name] for name in _LOADING), 3)
        return {"start_s": start_s, "load_s": load_s}, parts
    words.append(f"start_s and load_s {_source(known)}")
    if known is None:
        return dict(ASSUMED_S), {}
    return {"start_s": known.overhead.start_s, "load_s": known.overhead.load_s}, {}


def _created(reconfigurations: Sequence[Json], words: list[str]) -> tuple[Json, Json]:
    """The driver's overhead: destroying an instance and creating another, as medians."""
    if not reconfigurations:
        words.append("create_s published")
        return {"create_s": CREATE_S}, {}
    words.append("create_s measured")
    destroyed_s, created_s = (
        round(median(reconfiguration[name] for reconfiguration in reconfigurations), 4)
        for name in ("destroy_s", "create_s")
    )
    create_s = round(destroyed_s + created_s, 4)
    return {"create_s": create_s}, {"destroyed_s": destroyed_s, "created_s": created_s}


def _served(found: Found) -> str:
    jobs = list(found.alone(Task.INFERENCE, Study.LATENCY))
    graphs = sum(bool(job.get("graph")) for job in jobs)
    kind = "CUDA graphs" if graphs == len(jobs) else "eager" if not graphs else "graphs and eager"
    odd = sorted({job["sms"] for job in jobs if not job.get("finite", True)})
    wrong = f", answers not finite on {', '.join(map(str, odd))} SMs" if odd else ""
    images = ImageSizes(**jobs[0].get("images", {})).words
    return ", ".join(filter(None, (kind, "weights at random", images))) + wrong


def _text_keys(by_batch: Mapping[int, Mapping[int, float]]) -> Json:
    return {
        str(batch): {str(sms): each for sms, each in by_sms.items()}
        for batch, by_sms in by_batch.items()
    }


@dataclass(frozen=True)
class Apart:
    """Differences of the two files in one quantity, relative to the mean of both values."""

    quantity: str
    values: int
    median: float
    largest: float
    where: str
    """Name of the value with the largest difference."""

    def words(self) -> str:
        """The comparison in one line."""
        return (
            f"{self.quantity:<15} {self.values:4d} values, apart by {self.median:6.2%} (median), "
            f"{self.largest:6.2%} (most: {self.where})"
        )


def compare(first: Iterable[Profile], second: Iterable[Profile]) -> list[Apart]:
    """The comparison of each quantity that both contain. InputError if they share no model."""
    others = {(profile.model, profile.board): profile for profile in second}
    found: dict[str, list[tuple[float, str]]] = {}
    for profile in first:
        other = others.get((profile.model, profile.board))
        if other is not None:
            for quantity, where, one, two in _both(profile, other):
                found.setdefault(quantity, []).append((_apart(one, two), where))
    if not found:
        raise InputError("--compare: the files have no model on the same board in common")
    return [
        Apart(quantity, len(parts), median(part for part, _ in parts), *max(parts))
        for quantity, parts in found.items()
    ]


def _both(one: Profile, two: Profile) -> Iterator[tuple[str, str, float, float]]:
    for batch in sorted(one.latency_ms.keys() & two.latency_ms.keys()):
        values = dict(two.latency_ms[batch].points)
        for sms, value in one.latency_ms[batch].points:
            if sms in values:
                where = f"{one.model} x{batch} on {sms:g} SMs"
                yield "latency_ms", where, value, values[sms]
    for name in ("training_ratio", "interference", "contention"):
        yield name, one.model, getattr(one, name), getattr(two, name)
    for name in ("create_s", "start_s", "load_s"):
        yield name, one.model, getattr(one.overhead, name), getattr(two.overhead, name)


def _apart(one: float, two: float) -> float:
    return abs(one - two) / ((one + two) / 2) if one + two else 0.0


MEASUREMENTS_VERSION = 1
_RECONFIGURATION = "reconfiguration"


def beside(out: Path) -> Path:
    """Path of the measurements that belong to a profile file."""
    return out.with_name(f"{out.name}.measurements.jsonl")


class Results:
    """The file of measurements: a line about the environment, then one line per measurement."""

    def __init__(self, path: Path, about: Json, *, fresh: bool = False) -> None:
        self.path = path
        self.rows: dict[str, Json] = {}
        head = {"version": MEASUREMENTS_VERSION, **about}
        if path.exists() and not fresh:
            self._take_over(head)
        else:
            self._write("w", head)

    def has(self, key: str) -> bool:
        """Whether a measurement is complete. One whose worker was lost is not."""
        return key in self.rows and "lost" not in self.rows[key]

    def add(self, row: Json) -> None:
        """Save a row."""
        self.rows[row["key"]] = row
        self._write("a", row)

    def add_reconfiguration(self, took: Json) -> None:
        """Save how long an instance took to create and destroy, in a row of its own."""
        self.add({"key": f"{_RECONFIGURATION} {len(self.rows)}", **took})

    def reconfigurations(self) -> list[Json]:
        """All measured reconfigurations, of this run and earlier ones."""
        return [row for key, row in self.rows.items() if key.startswith(f"{_RECONFIGURATION} ")]

    def _take_over(self, head: Json) -> None:
        try:
            lines = self.path.read_bytes().decode(errors="replace").splitlines()
        except OSError as error:
            raise InputError(f"{self.path}: cannot be read ({error.strerror})") from error
        found = [row for row in map(_row, lines) if row is not None]
        if not found or any(found[0].get(name) != each for name, each in head.items()):
            raise InputError(
                f"{self.path}: holds measurements of another GPU, driver or version; give --fresh "
                "to begin anew, or another --out"
            )
        self.rows = {row["key"]: row for row in found[1:] if "key" in row}
        # Rewrite the file, because its last line may be incomplete.
        self.path.write_text(
            "".join(f"{json.dumps(row)}\n" for row in [found[0], *self.rows.values()]),
            encoding="utf-8",
        )

    def _write(self, mode: str, row: Json) -> None:
        try:
            with self.path.open(mode, encoding="utf-8") as file:
                file.write(json.dumps(row, allow_nan=False) + "\n")
        except OSError as error:
            raise InputError(
                f"--out: {self.path} cannot be written ({error.strerror}); name another place"
            ) from error


def _row(line: str) -> Json | None:
    """The row; None for an incomplete line."""
    try:
        row = json.loads(line)
    except json.JSONDecodeError:
        return None
    return row if isinstance(row, dict) else None
