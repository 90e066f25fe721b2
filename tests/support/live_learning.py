"""What tests of live retraining share: labels on disk, a model that knows the first classes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from migrator.learn.benchmarks.benchmark import Origin, limit_samples, window_data
from migrator.learn.registry import benchmark, build
from migrator.learn.retraining import RetrainingSettings, retrain
from migrator.learn.samples import Samples, WindowData
from migrator.live import labels as kept
from migrator.live.training import PREPARE, JobKind, TrainingJob, Trainings
from migrator.live.training_data import remember
from migrator.serving.workers.forkserver import Forkserver
from migrator.serving.workers.messages import ModelSpec
from support import PYTHONPATH
from support.means_model import Means

MODEL = ModelSpec("support.tiny_model:Tiny", 10)
SETTINGS = RetrainingSettings(epochs=4, batch=32)
ENVIRONMENT = {"PYTHONPATH": PYTHONPATH, "MIGRATOR_TOKEN": "secret"}
"""Variables of a daemon: retrainers find the tests' model, and must not see the token."""

MEANS = replace(MODEL, model="support.means_model:Means")
"""Without torch, whose import takes seconds."""
UNBOUNDED = replace(MODEL, model="support.live_learning:Unbounded")
MASKED = replace(MODEL, model="support.live_learning:Masked")

_KNOWN = benchmark("nc-synthetic")


class Unbounded(Means):
    """Its weights of a class that it never saw become infinite, which no answer shows."""

    def train_step(self, inputs: NDArray[Any], labels: NDArray[np.int64], lr: float) -> float:
        self.sums[-1] = np.inf
        return super().train_step(inputs, labels, lr)


class Masked(Means):
    """It has infinite weights from the start."""

    def __init__(self, classes: int) -> None:
        super().__init__(classes)
        self.sums[-1] = -np.inf


def scenario(number: int) -> WindowData:
    """Of nc-synthetic, made small."""
    material = limit_samples(_KNOWN.load(Origin()), 60, 0)
    return window_data(_KNOWN, material, number, 0, 0)


async def add_all(labels: kept.Labels, tenant: str, window: int, samples: Samples) -> None:
    """Every sample as one label, all at once."""
    await asyncio.gather(
        *(
            labels.add(tenant, window, inputs, int(label), 0, f"{window}-{number}")
            for number, (inputs, label) in enumerate(
                zip(samples.inputs, samples.labels, strict=True)
            )
        )
    )


def made_job(folder: Path, spec: ModelSpec = MODEL) -> TrainingJob:
    """A model pre-trained on the first classes, and a window of labels with two new ones."""
    first, tenant = scenario(0), "vision"
    model, _ = retrain(build(spec.model, spec.classes, 0), first, 0.0, SETTINGS)
    folder.mkdir(parents=True, exist_ok=True)
    model.save(folder / "serving.safetensors")
    asyncio.run(_labelled(folder / "labels.db", tenant, first))
    return TrainingJob(
        JobKind.RETRAIN,
        tenant,
        spec,
        folder / "training",
        weights=folder / "serving.safetensors",
        labels=folder / "labels.db",
        window=0,
        settings=SETTINGS,
        replay=40,
    )


def forkserver_for(job: TrainingJob) -> Forkserver:
    """With the model of the job, for its tenant."""
    log = job.folder.parent / "workers.log"
    return Forkserver(log, {job.tenant: job.model}, answer_s=20.0, prepare=PREPARE)


@asynccontextmanager
async def trainings_for(job: TrainingJob) -> AsyncIterator[tuple[Trainings, Forkserver]]:
    """Trainings of the job's tenant, which write to `log` beside its folder."""
    forkserver = forkserver_for(job)
    trainings = Trainings(job.folder.parent / "log", forkserver)
    try:
        await forkserver.start()
        yield trainings, forkserver
    finally:
        await trainings.close()
        await forkserver.close()


async def _labelled(path: Path, tenant: str, first: WindowData) -> None:
    labels = kept.Labels(path)
    remember(path, tenant, first, 40, 0)
    await add_all(labels, tenant, 0, scenario(1).new)
    await labels.close()
