"""What `interference.py` measures: phases, what matters most first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

ALL_SMS = 132
SHARES = (16, 32, 48, 60, 64, 96, ALL_SMS)
TRAINING_SHARES = (16, 32, 60, 64, ALL_SMS)
SIBLINGS = ((7, 16), (4, 32), (2, 64))
PROCESSES = {16: 7, 32: 4, 48: 1, 60: 1, 64: 2, 96: 1, ALL_SMS: 2}
MODELS = ("mobilenet-v2", "resnet-50", "inception-v3", "convnext-b", "vit-b-16", "bert-base")
TRAINED = ("resnet-50", "convnext-b")
TRAINING_BATCH = 32


@dataclass(frozen=True)
class Pace:
    """How long a phase warms up, is measured and goes on, in seconds."""

    warm_s: float
    measured_s: float
    after_s: float


ALONE = Pace(0.15, 0.5, 0.0)
TOGETHER = Pace(0.3, 1.0, 0.15)
TRAINING = Pace(0.3, 1.2, 0.2)


@dataclass(frozen=True)
class Job:
    """What one process repeats during a phase."""

    task: str
    """`inference`, `training` or `training-eager`."""
    model: str
    batch: int


@dataclass(frozen=True)
class Phase:
    """Jobs that run at the same time, each in a process of its own."""

    study: str
    jobs: tuple[tuple[int, Job], ...]
    """SMs of the process and what it repeats."""
    partition: str = "mps"

    @property
    def key(self) -> str:
        """The same for the same phase in another run."""
        return f"{self.study} {self.partition} {self.jobs}"

    @property
    def pace(self) -> Pace:
        """Training steps are long: they get more time."""
        if any(job.task != "inference" for _, job in self.jobs):
            return TRAINING
        return TOGETHER if len(self.jobs) > 1 else ALONE


def inference(model: str, batch: int) -> Job:
    return Job("inference", model, batch)


def training(model: str, task: str = "training") -> Job:
    return Job(task, model, TRAINING_BATCH)


def unpartitioned() -> Iterator[list[Phase]]:
    """Inference and a training on the whole GPU, alone and together, without MPS."""
    neighbour = training("convnext-b")
    served = [inference(m, b) for m in ("resnet-50", "convnext-b", "mobilenet-v2") for b in (1, 4)]
    both = [*((job,) for job in (neighbour, *served)), *((job, neighbour) for job in served)]
    yield [
        Phase("unpartitioned", tuple((ALL_SMS, job) for job in jobs), "time-slices")
        for jobs in both
    ]


def partitioned(models: Iterable[str]) -> Iterator[list[Phase]]:
    """Everything under MPS, what matters most first; a group is prepared together."""
    chosen = tuple(models)
    yield from (_alone_and_siblings(model) for model in chosen)
    yield from (_beside_training(chosen, training(trained)) for trained in TRAINED)
    yield from (_training(model) for model in chosen)
    yield _unlimited()
    yield from (_training_eagerly(model) for model in chosen)
    yield _beside(chosen, (60,), training("convnext-b", "training-eager"))


def _alone_and_siblings(model: str) -> list[Phase]:
    alone = [Phase("alone", ((s, inference(model, b)),)) for b in (1, 4, 16) for s in SHARES]
    together = [
        Phase("siblings", ((sms, inference(model, batch)),) * number)
        for batch in (1, 4)
        for number, sms in SIBLINGS
    ]
    return alone + together


def _beside_training(models: tuple[str, ...], neighbour: Job) -> list[Phase]:
    fed = Phase("feeding", (*(((16, inference("resnet-50", 1)),) * 4), (64, neighbour)))
    by_itself = Phase("training", ((64, neighbour),))
    beside = _beside(models, (60,), neighbour) + _beside(models, (16, 16, 16), neighbour)
    return [by_itself, fed, *beside]


def _beside(models: tuple[str, ...], shares: tuple[int, ...], neighbour: Job) -> list[Phase]:
    return [
        Phase("beside", (*((sms, inference(model, batch)) for sms in shares), (64, neighbour)))
        for batch in (1, 4)
        for model in models
    ]


def _training(model: str) -> list[Phase]:
    jobs = (training(model), inference(model, TRAINING_BATCH))
    return [Phase("training", ((sms, job),)) for job in jobs for sms in TRAINING_SHARES]


def _training_eagerly(model: str) -> list[Phase]:
    job = training(model, "training-eager")
    return [Phase("training", ((sms, job),)) for sms in TRAINING_SHARES]


def _unlimited() -> list[Phase]:
    neighbour = (ALL_SMS, training("convnext-b"))
    served = [inference(m, b) for m in ("resnet-50", "convnext-b", "mobilenet-v2") for b in (1, 4)]
    return [
        Phase("training", (neighbour,)),
        *(Phase("unlimited", ((ALL_SMS, job), neighbour)) for job in served),
    ]
