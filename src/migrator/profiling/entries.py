"""The entries of a profile file: derived from measurements, and compared with one another.

A figure that was not measured comes from the packaged profile of the model if there is one, and is
assumed otherwise. The provenance states which. Measurements are written to disk at once, so that an
interrupted run can resume.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

from migrator.core.catalogue import Board
from migrator.core.profiles import INTERFERING_PART, Profile, profiles
from migrator.profiling.measurements import TRAINING_BATCH, ImageSizes, Partition, Study, WorkKind

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
class ModelRows:
    """All measured jobs of one model."""

    model: str
    board: Board
    rows: tuple[Json, ...]

    def alone(self, task: WorkKind, study: Study) -> Iterator[Json]:
        """Jobs on shares that ran without other jobs."""
        for row in self.rows:
            if row["study"] == study and row["partition"] == Partition.SHARES:
                yield from (job for job in row["jobs"][:1] if job["task"] == task)

    def by_batch(self, figure: str, digits: int = 4) -> dict[int, dict[int, float]]:
        """Batch -> SMs -> a figure of the latencies, as the median over rounds."""
        figures: dict[int, dict[int, list[float]]] = {}
        for job in self.alone(WorkKind.INFERENCE, Study.LATENCY):
            by_sms = figures.setdefault(job["batch"], {})
            by_sms.setdefault(job["sms"], []).append(job[figure])
        return {
            batch: {
                sms: round(median(figures[batch][sms]), digits) for sms in sorted(figures[batch])
            }
            for batch in sorted(figures)
        }

    def by_sms(self, task: WorkKind) -> dict[int, float]:
        """SMs -> milliseconds of a training step."""
        jobs = self.alone(task, Study.TRAINING)
        return dict(sorted((job["sms"], round(job["p50_ms"], 4)) for job in jobs))

    def training_memory_mib(self) -> float | None:
        """The largest memory of a training; None if it was not measured."""
        jobs = (
            *self.alone(WorkKind.TRAINING, Study.TRAINING),
            *self.alone(WorkKind.RETRAINING, Study.MEMORY),
        )
        memory_mib = [job["memory_mib"] for job in jobs if job.get("memory_mib")]
        return round(max(memory_mib), 1) if memory_mib else None

    def held_mib(self, task: WorkKind) -> dict[int, float]:
        """Batch -> memory of a process that does this."""
        return {job["batch"]: job["held_mib"] for job in self.alone(task, Study.MEMORY)}


def entry(
    model: str,
    board: Board,
    rows: Iterable[Json],
    where: str,
    reconfigurations: Sequence[Json] = (),
) -> Json | None:
    """The model's profile; None if no latency could be measured."""
    mine = tuple(row for row in rows if row["model"] == model)
    measured_rows = ModelRows(model, board, tuple(row for row in mine if "jobs" in row))
    latency_ms = measured_rows.by_batch("p50_ms")
    if not latency_ms:
        return None
    measured = {
        "training_ratio": _training_ratio(measured_rows, latency_ms),
        "interference": _interference(measured_rows, latency_ms),
        "contention": _contention(measured_rows),
    }
    packaged = next((profile for (name, _), profile in profiles().items() if name == model), None)
    figures, sources = _filled(packaged, measured)
    overhead, parts = _overhead(measured_rows, packaged, sources)
    created, created_parts = _created(reconfigurations, sources)
    return {
        "model": model,
        "board": board.name,
        "latency_ms": _text_keys(latency_ms),
        "latency_p95_ms": _text_keys(measured_rows.by_batch("p95_ms")),
        "latency_p99_ms": _text_keys(measured_rows.by_batch("p99_ms")),
        **figures,
        "training_ms": {
            str(sms): ms for sms, ms in measured_rows.by_sms(WorkKind.TRAINING).items()
        },
        "memory_mib": {
            str(batch): max(by_sms.values())
            for batch, by_sms in measured_rows.by_batch("memory_mib", 1).items()
        },
        "training_memory_mib": measured_rows.training_memory_mib(),
        **_held(measured_rows),
        "overhead": created | overhead,
        "overhead_parts_s": created_parts | parts,
        "left_out": [row["fault"] for row in mine if "fault" in row],
        "provenance": "; ".join([where, _served(measured_rows), *sources]),
    }


def _held(rows: ModelRows) -> Json:
    """What processes of a daemon hold, as far as it was measured."""
    worker = {str(batch): mib for batch, mib in sorted(rows.held_mib(WorkKind.WORKER).items())}
    held: Json = {"worker_held_mib": worker} if worker else {}
    for task in (WorkKind.RETRAINING, WorkKind.ESTIMATE):
        measured = rows.held_mib(task)
        if measured:
            held[f"{task}_held_mib"] = max(measured.values())
    return held


def _training_ratio(rows: ModelRows, latency_ms: Mapping[int, Mapping[int, float]]) -> float | None:
    """Time of a training step over that of an inference of the largest batch.

    Both are per sample. The result is the mean over the sizes.
    """
    steps = rows.by_sms(WorkKind.TRAINING)
    batch = max(latency_ms)
    ratios = [
        (ms / TRAINING_BATCH) / (latency_ms[batch][sms] / batch)
        for sms, ms in steps.items()
        if sms in latency_ms[batch]
    ]
    return round(fmean(ratios), 3) if ratios else None


def _interference(rows: ModelRows, latency_ms: Mapping[int, Mapping[int, float]]) -> float | None:
    """Relative slowdown, scaled to neighbours that hold `INTERFERING_PART` of the SMs."""
    parts = []
    for row in rows.rows:
        if row["study"] != Study.INTERFERENCE or row["partition"] != Partition.SHARES:
            continue
        served = [
            served_job for served_job in row["jobs"] if served_job["task"] == WorkKind.INFERENCE
        ]
        alone_ms = latency_ms.get(served[0]["batch"], {}).get(served[0]["sms"])
        if alone_ms is not None:
            slowdown = median(served_job["p50_ms"] for served_job in served) / alone_ms
            beside = sum(any_job["sms"] for any_job in row["jobs"]) - served[0]["sms"]
            parts.append((slowdown - 1) * INTERFERING_PART / (beside / rows.board.sms))
    return round(max(0.0, fmean(parts)), 4) if parts else None


def _contention(rows: ModelRows) -> float | None:
    """Relative slowdown beside one busy neighbour, without shares."""
    alone: dict[int, float] = {}
    beside: dict[int, float] = {}
    for row in rows.rows:
        if row["partition"] == Partition.NONE:
            job = row["jobs"][0]
            (alone if len(row["jobs"]) == 1 else beside)[job["batch"]] = job["p50_ms"]
    parts = [beside[batch] / alone[batch] - 1 for batch in alone.keys() & beside.keys()]
    return round(max(0.0, fmean(parts)), 3) if parts else None


def _filled(packaged: Profile | None, measured: dict[str, float | None]) -> tuple[Json, list[str]]:
    """The figures, completed from other sources, and text that names these sources."""
    figures: Json = {}
    sources = []
    for name, figure in measured.items():
        figures[name] = figure
        if figure is None:
            figures[name] = getattr(packaged, name) if packaged else ASSUMED[name]
            sources.append(f"{name} {_source(packaged)}")
    return figures, sources


def _source(packaged: Profile | None) -> str:
    return "of the packaged profile" if packaged else "assumed"


def _overhead(rows: ModelRows, packaged: Profile | None, sources: list[str]) -> tuple[Json, Json]:
    """Process and GPU overheads from cold starts, as the median over sizes."""
    starts = list(rows.alone(WorkKind.START, Study.START))
    parts = {
        name: round(median(start[name] for start in starts), 4)
        for name in _PARTS
        if starts and all(name in start for start in starts)
    }
    if parts:
        start_s = round(sum(parts[name] for name in _STARTING), 3)
        load_s = round(sum(parts[name] for name in _LOADING), 3)
        return {"start_s": start_s, "load_s": load_s}, parts
    sources.append(f"start_s and load_s {_source(packaged)}")
    if packaged is None:
        return dict(ASSUMED_S), {}
    return {"start_s": packaged.overhead.start_s, "load_s": packaged.overhead.load_s}, {}


def _created(reconfigurations: Sequence[Json], sources: list[str]) -> tuple[Json, Json]:
    """The driver's overhead: destroying an instance and creating another, as medians."""
    if not reconfigurations:
        sources.append("create_s published")
        return {"create_s": CREATE_S}, {}
    sources.append("create_s measured")
    destroyed_s, created_s = (
        round(median(reconfiguration[name] for reconfiguration in reconfigurations), 4)
        for name in ("destroy_s", "create_s")
    )
    create_s = round(destroyed_s + created_s, 4)
    return {"create_s": create_s}, {"destroyed_s": destroyed_s, "created_s": created_s}


def _served(rows: ModelRows) -> str:
    jobs = list(rows.alone(WorkKind.INFERENCE, Study.LATENCY))
    graphs = sum(bool(job.get("graph")) for job in jobs)
    kind = "CUDA graphs" if graphs == len(jobs) else "eager" if not graphs else "graphs and eager"
    odd = sorted({job["sms"] for job in jobs if not job.get("finite", True)})
    wrong = f", answers not finite on {', '.join(map(str, odd))} SMs" if odd else ""
    images = ImageSizes(**jobs[0].get("images", {})).description
    return ", ".join(filter(None, (kind, "weights at random", images))) + wrong


def _text_keys(by_batch: Mapping[int, Mapping[int, float]]) -> Json:
    return {
        str(batch): {str(sms): figure for sms, figure in by_sms.items()}
        for batch, by_sms in by_batch.items()
    }
