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
    """`inference`, `training` or `training-graph`."""
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
    yield from (_beside_training(chosen, trained) for trained in TRAINED)
    yield from (_training(model, "training") for model in chosen)
    yield _unlimited()
    yield from (_training(model, "training-graph") for model in chosen)


def _alone_and_siblings(model: str) -> list[Phase]:
    alone = [Phase("alone", ((s, inference(model, b)),)) for b in (1, 4, 16) for s in SHARES]
    together = [
        Phase("siblings", ((sms, inference(model, batch)),) * number)
        for batch in (1, 4)
        for number, sms in SIBLINGS
    ]
    return alone + together


def _beside_training(models: tuple[str, ...], trained: str) -> list[Phase]:
    neighbour = (64, training(trained))
    shares = ((60,), (16, 16, 16))
    beside = [
        Phase("beside", (*((sms, inference(model, batch)) for sms in share), neighbour))
        for share in shares
        for batch in (1, 4)
        for model in models
    ]
    feeding = Phase("feeding", (*(((16, inference("resnet-50", 1)),) * 4), neighbour))
    return [Phase("training", (neighbour,)), feeding, *beside]


def _training(model: str, task: str) -> list[Phase]:
    steps = [Phase("training", ((sms, training(model, task)),)) for sms in TRAINING_SHARES]
    answers = [
        Phase("training", ((sms, inference(model, TRAINING_BATCH)),)) for sms in TRAINING_SHARES
    ]
    return steps + (answers if task == "training" else [])


def _unlimited() -> list[Phase]:
    neighbour = (ALL_SMS, training("convnext-b"))
    served = [inference(m, b) for m in ("resnet-50", "convnext-b", "mobilenet-v2") for b in (1, 4)]
    return [
        Phase("training", (neighbour,)),
        *(Phase("unlimited", ((ALL_SMS, job), neighbour)) for job in served),
    ]
