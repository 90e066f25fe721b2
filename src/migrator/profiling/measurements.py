"""The list of measurements as plain data, most important first. `--dry-run` prints it.

latency       one process alone on a share of each size, with each batch
training      a training step on a share of each size, as in a retraining
memory        what processes of a daemon hold, on the largest size
bandwidth     a copy of device memory on a share of each size
start         a cold process from its first line to its first answer, on the smallest size
interference  the same inferences beside siblings and a training, with and without shares
isolation     inferences and trainings on instances beside busy ones
changes       an inference beside a share that comes and goes, with a process that starts and stops

A model's profile needs no bandwidth, isolation and changes; `whole_gpu` lists them for `migrator
gpu measure`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import product

from migrator.core.catalogue import Board
from migrator.core.errors import InputError
from migrator.core.profiles import INTERFERING_PART
from migrator.learn.retraining import BATCH

TRAINING_BATCH = 32
COPIED, COPY_MIB = "device memory", 256
"""In place of the model and its batch, where a process copies device memory."""
_MOST_BESIDE = 3
_STARTED_S = 12.0
"""Seconds of a process from its start to its end."""
_NEIGHBOURS = ("resnet-50", "convnext-b")
"""Models to train beside the others, if they are measured: a light and a heavy one."""


class Study(StrEnum):
    """Purpose of a measurement."""

    LATENCY = "latency"
    TRAINING = "training"
    MEMORY = "memory"
    START = "start"
    INTERFERENCE = "interference"
    BANDWIDTH = "bandwidth"
    ISOLATION = "isolation"
    CHANGES = "changes"


class WorkKind(StrEnum):
    """Work that a process repeats."""

    INFERENCE = "inference"
    TRAINING = "training"
    """The model's own `train_step`."""
    COPY = "copy"
    """Reads and writes device memory, as much as the batch says in MiB."""
    START = "start"
    """Not repeated: build, copy, first answer."""
    WORKER = "worker"
    """Not repeated: what a worker of a daemon does before it answers, and a change of its weights.
    """
    RETRAINING = "retraining"
    """Not repeated: a short retraining with its evaluations."""
    ESTIMATE = "estimate"
    """Not repeated: an estimate of a retraining."""


class Partition(StrEnum):
    """Division of the GPU among the processes of a measurement."""

    SHARES = "shares"
    NONE = "none"
    """The GPU switches between the processes."""


@dataclass(frozen=True)
class Repetition:
    """Seconds that a step is repeated before, during and after its measurement."""

    warm_s: float
    measured_s: float
    after_s: float = 0.0
    """Continues so that neighbours are not measured alone."""

    def scaled(self, factor: float) -> Repetition:
        """The durations multiplied by a factor."""
        return Repetition(self.warm_s * factor, self.measured_s * factor, self.after_s * factor)

    @property
    def total_s(self) -> float:
        """Sum of the three durations in seconds."""
        return self.warm_s + self.measured_s + self.after_s


@dataclass(frozen=True)
class ImageSizes:
    """Sides of the images of a model, as the scenario has them."""

    pixels: int | None = None
    """Of the network; None: the model's own."""
    input_pixels: int | None = None
    """Of those that clients send; None: that of the network."""

    @property
    def description(self) -> str:
        """Both in words; empty if the scenario has none."""
        network = "" if self.pixels is None else f"images of {self.pixels} pixels"
        sent = "" if self.input_pixels is None else f"sent with {self.input_pixels} pixels"
        return ", ".join(filter(None, (network, sent)))


@dataclass(frozen=True)
class ProcessJob:
    """Work of one process."""

    task: WorkKind
    model: str
    batch: int
    images: ImageSizes = ImageSizes()


_COPY = ProcessJob(WorkKind.COPY, COPIED, COPY_MIB)


@dataclass(frozen=True)
class Measurement:
    """Jobs that run at the same time, each in a process of its own."""

    study: Study
    jobs: tuple[tuple[int, ProcessJob], ...]
    """SMs of each process, and its job."""
    partition: Partition = Partition.SHARES
    round: int = 0
    """Number of the round. Each round is measured in new processes."""
    stretch: float = 1.0
    """Factor on the duration of the repetition."""

    @property
    def model(self) -> str:
        """The measured model. Other models in the measurement are neighbours."""
        return self.jobs[0][1].model

    @property
    def shares(self) -> tuple[int, ...]:
        """SMs of the shares that are open at once."""
        sizes = tuple(sms for sms, _ in self.jobs)
        return sizes * 2 if self.study is Study.CHANGES else sizes

    @property
    def key(self) -> str:
        """Identifier of the measurement, the same in every run."""
        jobs = " + ".join(
            f"{job.task} {job.model} x{job.batch} @{sms}{_bracketed(job)}" for sms, job in self.jobs
        )
        return f"{self.study} {self.partition} {self.round}: {jobs}"

    @property
    def description(self) -> str:
        """Description of what runs where, with identical processes counted."""
        counted = Counter(self.jobs)
        parts = [
            f"{f'{number} times ' if number > 1 else ''}{job.task} of {job.model}, "
            f"batch {job.batch}, on {sms} SMs{_bracketed(job)}"
            for (sms, job), number in counted.items()
        ]
        parts += ["a share that comes and goes"] if self.study is Study.CHANGES else []
        whole = " without shares" if self.partition is Partition.NONE else ""
        return f"{' beside '.join(parts)}{whole}"

    @property
    def pace(self) -> Repetition:
        """Duration of the repetition. Training steps take long and get more time."""
        pace = Repetition(0.3, 1.0, 0.15) if len(self.jobs) > 1 else Repetition(0.2, 0.6)
        if any(job.task is not WorkKind.INFERENCE for _, job in self.jobs):
            pace = Repetition(0.3, 1.2, 0.2)
        if self.study is Study.CHANGES:
            pace = Repetition(0.3, 2.0, 15.0)
        return pace.scaled(self.stretch)

    @property
    def estimate_s(self) -> float:
        """Approximate duration on a GPU in seconds, including preparation."""
        if self.study is Study.START:
            return _STARTED_S
        if self.study is Study.MEMORY:
            return 3.0 if self.jobs[0][1].task is WorkKind.WORKER else 8.0
        if self.study is Study.CHANGES:
            return self.pace.total_s + _STARTED_S  # a process may start at its end
        return self.pace.total_s + (1.5 if len(self.jobs) > 1 else 0.8)


def measurements(
    board: Board,
    models: Sequence[str],
    batches: Sequence[int],
    *,
    images: Mapping[str, ImageSizes] | None = None,
    interference: bool = False,
    rounds: int = 1,
    pace: float = 1.0,
) -> list[Measurement]:
    """All measurements of the models on the board's instance sizes, in order.

    `images`: by model, for those that do not have images of their own size. `pace` is a factor on
    the duration of each repetition.
    """
    sizes = [board.sms_of(gpcs) for gpcs in board.sizes]
    listed = _latency(sizes, models, batches, 0)
    listed += [
        _alone(Study.TRAINING, sms, ProcessJob(WorkKind.TRAINING, model, TRAINING_BATCH))
        for model in models
        for sms in sizes
    ]
    listed += _memory(max(sizes), models, batches)
    # On the smallest size only, because a start depends little on the size.
    listed += [
        _alone(Study.START, min(sizes), ProcessJob(WorkKind.START, model, 1)) for model in models
    ]
    for number in range(1, rounds):
        listed += _latency(sizes, models, batches, number)
    if interference:
        listed += _interference(board, models, sorted(batches)[:2])
    return [
        replace(measurement, jobs=_sized(measurement.jobs, images or {}), stretch=pace)
        for measurement in listed
    ]


def whole_gpu(
    board: Board,
    models: Sequence[str],
    batches: Sequence[int],
    *,
    on_instances: bool,
    pace: float = 1.0,
) -> list[Measurement]:
    """All that `migrator gpu measure` measures of a GPU, grouped by the shares that are open.

    `on_instances`: of MIG, whose isolation is no figure of a profile; otherwise what shares of MPS
    do to one another is the profile's interference.
    """
    sizes = [board.sms_of(gpcs) for gpcs in board.sizes]
    few = sorted(batches)[:2]
    beside = [*_siblings(board, models, few)]
    for trained in _trained(models):
        beside += _beside_training(board, trained, models, few)
    if on_instances:
        beside = [replace(measurement, study=Study.ISOLATION) for measurement in beside]
    beside += _beside_copies(board, models, few)
    beside.sort(key=lambda measurement: [-sms for sms, _ in measurement.jobs])
    alone = measurements(board, models, batches)
    alone += [_alone(Study.BANDWIDTH, sms, _COPY) for sms in sizes]
    if on_instances:
        alone.sort(key=lambda job: (job.study is Study.START, -job.jobs[0][0]))
    changes = _changes(board, models)
    return [replace(measurement, stretch=pace) for measurement in (*alone, *changes, *beside)]


def _changes(board: Board, models: Sequence[str]) -> Iterator[Measurement]:
    """Inferences on the smallest size, beside another share of that size."""
    for model in models if board.compute_slices > board.sizes[0] else ():
        job = ProcessJob(WorkKind.INFERENCE, model, 1)
        yield _alone(Study.CHANGES, board.sms_of(board.sizes[0]), job)


def _sized(
    jobs: Sequence[tuple[int, ProcessJob]], images: Mapping[str, ImageSizes]
) -> tuple[tuple[int, ProcessJob], ...]:
    return tuple((sms, replace(job, images=images.get(job.model, job.images))) for sms, job in jobs)


def _bracketed(job: ProcessJob) -> str:
    return f" ({job.images.description})" if job.images.description else ""


def on_instances(todo: Sequence[Measurement]) -> list[Measurement]:
    """The measurements in an order for MIG instances: grouped by size within a study.

    Instances are created and destroyed between sizes. The largest size is first, so that anything
    that blocks an instance is found before the first measurement.
    """
    if any(job.study is Study.INTERFERENCE for job in todo):
        # Interference between MIG instances must not be recorded as interference between MPS
        # shares.
        raise InputError(
            "--interference: it is what models do to one another under MPS, not on MIG instances; "
            "leave it out, or use --driver mps"
        )
    parts = list(dict.fromkeys((job.study, job.round) for job in todo))
    return sorted(
        todo,
        key=lambda job: (parts.index((job.study, job.round)), [-sms for sms, _ in job.jobs]),
    )


def estimate_s(todo: Sequence[Measurement]) -> float:
    """Approximate duration of all measurements on a GPU in seconds, including process starts."""
    starting_s = 15.0 * len({job.partition for job in todo if job.study is not Study.START})
    return starting_s + sum(job.estimate_s for job in todo)


def listed(todo: Sequence[Measurement]) -> str:
    """A line per measurement, and how long all take."""
    lines = [f"{job.study:<13}{job.description}" for job in todo]
    return "\n".join([*lines, f"{len(todo)} measurements, about {estimate_s(todo):.0f} s on a GPU"])


def _alone(study: Study, sms: int, job: ProcessJob, number: int = 0) -> Measurement:
    return Measurement(study, ((sms, job),), round=number)


def _latency(
    sizes: Sequence[int], models: Sequence[str], batches: Sequence[int], number: int
) -> list[Measurement]:
    return [
        _alone(Study.LATENCY, sms, ProcessJob(WorkKind.INFERENCE, model, batch), number)
        for model in models
        for batch in sorted(batches)
        for sms in sizes
    ]


def _memory(sms: int, models: Sequence[str], batches: Sequence[int]) -> Iterator[Measurement]:
    """On the largest size, where nothing but the work itself limits the memory."""
    for model in models:
        for size in sorted(batches):
            yield _alone(Study.MEMORY, sms, ProcessJob(WorkKind.WORKER, model, size))
        for task in (WorkKind.RETRAINING, WorkKind.ESTIMATE):
            yield _alone(Study.MEMORY, sms, ProcessJob(task, model, BATCH))


def _interference(
    board: Board, models: Sequence[str], batches: Sequence[int]
) -> Iterator[Measurement]:
    yield from _siblings(board, models, batches)
    for trained in _trained(models):
        yield from _beside_training(board, trained, models, batches)
    for model in models:
        yield from _unpartitioned(board, _trained(models)[-1], model, batches)


def _trained(models: Sequence[str]) -> Sequence[str]:
    """The models that train beside the others."""
    return [neighbour for neighbour in _NEIGHBOURS if neighbour in models] or models[:1]


def _siblings(board: Board, models: Sequence[str], batches: Sequence[int]) -> Iterator[Measurement]:
    for model, batch, gpcs in product(models, batches, board.sizes):
        # As many processes of one size as instances can exist.
        number = board.compute_slices // gpcs
        if number > 1:
            share = (board.sms_of(gpcs), ProcessJob(WorkKind.INFERENCE, model, batch))
            yield Measurement(Study.INTERFERENCE, (share,) * number)


def _beside_copies(
    board: Board, models: Sequence[str], batches: Sequence[int]
) -> Iterator[Measurement]:
    """An inference on the smallest size, and a training on about half of the GPU, beside copies of
    device memory on as many of the smallest size as fit, at most those beside a training.
    """
    smallest, held = board.sizes[0], _held(board)
    copying = (board.sms_of(smallest), _COPY)
    number = board.compute_slices // smallest - 1
    for model, batch in product(models, batches if number else ()):
        served = (board.sms_of(smallest), ProcessJob(WorkKind.INFERENCE, model, batch))
        yield Measurement(Study.ISOLATION, (served, *(copying,) * number))
    number = min(_MOST_BESIDE, (board.compute_slices - held) // smallest)
    for model in _trained(models) if number else ():
        training = (board.sms_of(held), ProcessJob(WorkKind.TRAINING, model, TRAINING_BATCH))
        yield Measurement(Study.ISOLATION, (training, *(copying,) * number))


def _beside_training(
    board: Board, trained: str, models: Sequence[str], batches: Sequence[int]
) -> Iterator[Measurement]:
    """One large or a few small processes beside a training on about half of the GPU."""
    sizes, held = board.sizes, _held(board)
    neighbour = (board.sms_of(held), ProcessJob(WorkKind.TRAINING, trained, TRAINING_BATCH))
    left = board.compute_slices - held
    large = [(board.sms_of(gpcs),) for gpcs in sizes[::-1] if gpcs <= left][:1]
    small = (board.sms_of(sizes[0]),) * min(_MOST_BESIDE, left // sizes[0])
    for beside in dict.fromkeys([*large, small]):
        for model in models:
            for batch in batches if beside else ():
                job = ProcessJob(WorkKind.INFERENCE, model, batch)
                yield Measurement(Study.INTERFERENCE, (*((sms, job) for sms in beside), neighbour))


def _held(board: Board) -> int:
    """The size of a training beside others: about half of the GPU."""
    return min(board.sizes, key=lambda gpcs: abs(board.sms_of(gpcs) / board.sms - INTERFERING_PART))


def _unpartitioned(
    board: Board, trained: str, model: str, batches: Sequence[int]
) -> Iterator[Measurement]:
    """Processes on the whole GPU without shares: alone, then beside a training."""
    neighbour = (board.sms, ProcessJob(WorkKind.TRAINING, trained, TRAINING_BATCH))
    for batch in batches:
        own = (board.sms, ProcessJob(WorkKind.INFERENCE, model, batch))
        for jobs in ((own,), (own, neighbour)):
            yield Measurement(Study.INTERFERENCE, jobs, Partition.NONE)
