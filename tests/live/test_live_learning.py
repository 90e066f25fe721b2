"""First versions, estimates and retrainings of a tenant, with trainings that only pretend."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from dataclasses import replace
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray
from support import PYTHONPATH
from support.live_context import LabelTable, NoRollout, idle_context, idle_forkserver, tenant_in

from migrator.control.events import RetrainingPlanned
from migrator.control.retraining import Phase, TenantRetraining
from migrator.control.tenant_state import TenantState, TrainingRoom
from migrator.core.catalogue import board
from migrator.core.errors import InputError, MigratorError
from migrator.core.problem import Instance
from migrator.core.profiles import Curve
from migrator.core.training import Layers, TrainingConfiguration
from migrator.learn.estimation import AccuracyEstimate
from migrator.live.labels import Labels, lot_of
from migrator.live.learning import Learning
from migrator.live.options import DaemonOptions, model_spec
from migrator.live.recorder import LiveRecorder
from migrator.live.training import (
    PREPARE,
    EstimateResult,
    Failed,
    JobKind,
    Progress,
    TrainingJob,
    TrainingLostError,
    TrainingResult,
    Trainings,
)
from migrator.serving.workers.forkserver import Forkserver
from migrator.workload.live import read_live

BOARD = board("A100-40GB")
WINDOW_S, HELD_OUT = 20, 0.25


@pytest.fixture
def tenant(tmp_path: Path) -> TenantState:
    return tenant_in(tmp_path, WINDOW_S)


class _Ending(Trainings):
    """Ends with an error instead of training."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(Path("unused"), idle_forkserver())
        self.error, self.jobs = error, list[TrainingJob]()

    async def train(self, job: TrainingJob, progress: Progress | None = None) -> TrainingResult:
        del progress
        self.jobs.append(job)
        raise self.error


def learning(
    tmp_path: Path,
    tenant: TenantState,
    trainings: Trainings,
    driver: str = "emulated",
    weights: Path | None = None,
    **replaced: Any,
) -> Learning:
    serving = DaemonOptions(read_live(tmp_path / "small.yaml"), tmp_path, driver)
    table = LabelTable(tmp_path / "labels.db")
    context = idle_context(serving, trainings=trainings, labels=table, **replaced)
    context.tenants[tenant.name] = tenant
    live = context.live_tenants[tenant.name]
    context.live_tenants[tenant.name] = replace(live, weights=weights)
    return Learning(context, NoRollout(), LiveRecorder(context))


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (TrainingLostError("lost"), TrainingLostError),
        (KeyError("unexpected"), TrainingLostError),
        (asyncio.CancelledError(), asyncio.CancelledError),
    ],
)
def test_a_job_that_ends_in_any_way_does_not_stay_running(
    tmp_path: Path, tenant: TenantState, error: BaseException, raised: type[BaseException]
) -> None:
    plan(tenant, most_samples=70)
    trainings = _Ending(error)
    with pytest.raises(raised):
        asyncio.run(learning(tmp_path, tenant, trainings).train("photos", Instance(0, 4), {}))
    assert tenant.retraining is not None
    assert tenant.retraining.phase is Phase.WAITING
    assert trainings.jobs[0].most_samples == 70


@pytest.mark.parametrize("classes", [(), (0, 1)])
def test_weights_that_know_no_class_are_where_pre_training_begins(
    tmp_path: Path, tenant: TenantState, classes: tuple[int, ...]
) -> None:
    weights, note = tmp_path / "given.safetensors", json.dumps({"seen": classes})
    header = json.dumps({"__metadata__": {"migrator": note}}).encode()
    weights.write_bytes(len(header).to_bytes(8, "little") + header)
    trainings = _Ending(InputError("asked to pre-train"))
    models = learning(tmp_path, tenant, trainings, weights=weights)
    if classes:
        asyncio.run(models.prepare(tenant))
        assert tenant.version is not None
        return
    with pytest.raises(InputError, match="asked to pre-train"):
        asyncio.run(models.prepare(tenant))
    assert trainings.jobs[0].kind is JobKind.PRETRAIN
    assert trainings.jobs[0].weights == weights


class _Pretended(Trainings):
    """Trainings that end at once: 4 s before the first step and after the last, 2 s per step.

    Pre-trainings are adopted, retrainings with `adopts` set. `changed`: what is other in results.
    """

    def __init__(self, folder: Path, **changed: Any) -> None:
        super().__init__(folder / "log", idle_forkserver())
        self.jobs, self.changed, self.adopts = list[TrainingJob](), changed, False
        self.during: Callable[[], Awaitable[None]] | None = None
        """What happens while a retraining runs."""

    async def train(self, job: TrainingJob, progress: Progress | None = None) -> TrainingResult:
        del progress
        self.jobs.append(job)
        if self.during is not None:
            await self.during()
        result = TrainingResult(
            *(False, "it is no better", None, 0.5, 0.4),
            new_classes=(7, 8),
            samples=100,
            trained=100,
            curve=(0.4,) * job.settings.epochs,
            epochs_resumed=0,
            seconds=25.0,
            start_s=1.0,
            parts_s={"start_s": 1.0, "data_s": 1.0, "first_s": 7.0, "epochs_s": 14.0},
            steps=10,
        )
        if self.adopts or job.kind is JobKind.PRETRAIN:
            weights = job.folder.parent / "made.safetensors"
            weights.parent.mkdir(parents=True, exist_ok=True)
            weights.write_bytes(b"weights")
            estimate = AccuracyEstimate(0.9, 0.8, 0.1, 1.0, (0.1, 0.8), 1.0, samples=600)
            result = msgspec.structs.replace(
                result, adopted=True, weights=weights, accuracy_after=0.95, estimate=estimate
            )
        return msgspec.structs.replace(result, **self.changed)

    async def estimate(self, job: TrainingJob) -> EstimateResult:
        """Another accuracy before for every window, and less for every further configuration."""
        self.jobs.append(job)
        before, fractions = job.window / 10, (1.0, 0.6, 0.5)
        return EstimateResult(
            tuple(
                AccuracyEstimate(0.2 + 0.6 * part, 0.7, before, 0.5, (0.2, 0.6), 1.0, one, part)
                for one, part in zip(job.configurations, fractions, strict=False)
            ),
            0,
        )


def plan(tenant: TenantState, window: int = 3, slower: float = 1.0, **options: Any) -> None:
    """Plan a retraining on a hundred samples."""
    job = TenantRetraining(window, tenant.training_s(100), slower, 0.9, **options)
    tenant.on(RetrainingPlanned(job))


async def test_what_was_learned_before_a_restart_is_no_part_of_its_duration(
    tmp_path: Path, tenant: TenantState
) -> None:
    tenant.on(RetrainingPlanned(TenantRetraining(3, Curve(((14.0, 60.0),)), 1.0, 0.9)))
    half = tenant.training.configurations[0].epochs // 2
    trainings = _Pretended(tmp_path, epochs_resumed=half, seconds=31.0, parts_s={})
    await learning(tmp_path, tenant, trainings).train("photos", Instance(0, 1), {})
    assert tenant.duration.slower == pytest.approx(1.0)  # 30 s for half of what takes 60


async def test_an_estimate_is_compared_with_the_retraining_it_was_made_for(
    tmp_path: Path, tenant: TenantState
) -> None:
    plan(tenant)
    trainings = _Pretended(tmp_path)
    models = learning(tmp_path, tenant, trainings)
    await models.estimate("photos", 2, None, 100)
    trainings.during = lambda: models.estimate("photos", 3, None, 100)
    await models.train("photos", Instance(0, 1), {})
    assert [estimate.before for estimate in models.past_estimates["photos"]] == [0.2]


async def test_only_estimates_of_retrainings_to_come_are_kept(
    tmp_path: Path, tenant: TenantState
) -> None:
    models = learning(tmp_path, tenant, _Pretended(tmp_path))
    for window in range(5):
        await models.estimate("photos", window, None, 100)
    tenant.model.learn_labels(6)
    await models.estimate("photos", 5, None, 100)  # ends after the retraining it was made for
    plan(tenant, 7)
    await models.train("photos", Instance(0, 1), {})
    assert [estimate.before for estimate in models.past_estimates["photos"]] == [0.4]


async def test_an_estimate_that_fails_says_why(tmp_path: Path, tenant: TenantState) -> None:
    trainings = Trainings(tmp_path / "gone" / "log", idle_forkserver())
    await learning(tmp_path, tenant, trainings).estimate("photos", 2, None, 100)
    assert "was moved or deleted" in tenant.model.no_estimate


WAYS = (
    TrainingConfiguration("all", 8),
    TrainingConfiguration("half", 4, part=0.5),
    TrainingConfiguration("head", 2, layers=Layers.HEAD),
)


async def test_all_configurations_are_estimated_at_once_and_the_chosen_one_is_carried_out(
    tmp_path: Path, tenant: TenantState
) -> None:
    tenant.training = replace(tenant.training, configurations=WAYS)
    trainings = _Pretended(tmp_path)
    models = learning(tmp_path, tenant, trainings)
    await models.estimate("photos", 2, None, 100)
    tenant.begin_window(3, 100, 0.2, TrainingRoom(98.0, 1e6))
    assert tenant.retraining is not None
    assert tenant.retraining.expected == pytest.approx(0.8)
    expected = {other.configuration: other.accuracy_post for other in tenant.retraining.others}
    assert expected == pytest.approx({"half": 0.56, "head": 0.5})
    tenant.choose("half")
    await models.train("photos", Instance(0, 1), {})
    estimated, trained = trainings.jobs
    assert [(one.epochs, one.part, one.layers) for one in estimated.configurations] == [
        (8, 1.0, "all"),
        (4, 0.5, "all"),
        (2, 1.0, "head"),
    ]
    assert trained.settings == estimated.configurations[1]
    (past,) = models.past_estimates["photos"]
    assert (past.settings, past.fraction) == (trained.settings, 0.6)
    assert past.estimated == pytest.approx(0.56)
    assert len(past.curve) == 4


async def test_before_any_estimate_a_short_configuration_is_expected_to_gain_less(
    tmp_path: Path, tenant: TenantState
) -> None:
    tenant.training = replace(tenant.training, configurations=WAYS)
    await learning(tmp_path, tenant, _Pretended(tmp_path)).prepare(tenant)
    tenant.begin_window(3, 100, 0.2, TrainingRoom(98.0, 1e6))
    assert tenant.retraining is not None
    half, head = (other.accuracy_post for other in tenant.retraining.others)
    assert 0.2 < head < half < tenant.retraining.expected


class _Losing(_Pretended):
    """Loses its first process, the second one fails on the GPU, and later ones are as `last`."""

    last: MigratorError | None = None

    async def train(self, job: TrainingJob, progress: Progress | None = None) -> TrainingResult:
        errors = TrainingLostError("lost"), Failed("CUDA error", again=True).error("photos")
        error = (*errors, self.last)[len(self.jobs)]
        if error is None:
            return await super().train(job, progress)
        self.jobs.append(job)
        raise error


async def test_a_lost_pre_training_is_started_again_twice(
    tmp_path: Path, tenant: TenantState
) -> None:
    trainings = _Losing(tmp_path)
    await learning(tmp_path, tenant, trainings).prepare(tenant)
    assert tenant.version is not None
    assert trainings.jobs == 3 * trainings.jobs[:1]


async def test_a_pre_training_that_is_lost_three_times_is_an_error(
    tmp_path: Path, tenant: TenantState
) -> None:
    trainings = _Losing(tmp_path)
    trainings.last = TrainingLostError("lost for good")
    with pytest.raises(TrainingLostError, match="lost for good"):
        await learning(tmp_path, tenant, trainings).prepare(tenant)
    assert tenant.version is None


@pytest.mark.parametrize("adopts", [True, False])
async def test_a_restarted_daemon_expects_what_trainings_took_and_gained(
    tmp_path: Path, tenant: TenantState, adopts: bool
) -> None:
    trainings = _Pretended(tmp_path)
    models = learning(tmp_path, tenant, trainings, "mps")
    await models.prepare(tenant)
    (past,) = models.past_estimates["photos"]
    assert (past.limit, past.came, past.samples) == (0.8, 0.95, 600)
    _set_profile(tenant, 10.0)
    at_first, trainings.adopts = tenant.duration.facts, adopts
    await models.estimate("photos", 2, None, 100)
    plan(tenant)
    await models.train("photos", Instance(0, 1), {})
    assert tenant.duration.facts != at_first
    assert tenant.model.gains.completions == 1
    again = tenant_in(tmp_path, WINDOW_S)
    restarted = learning(tmp_path, again, trainings, "mps")
    await restarted.prepare(again)
    assert again.duration.facts == tenant.duration.facts
    assert again.model.gains.facts == tenant.model.gains.facts
    assert restarted.past_estimates == models.past_estimates
    assert again.version is not None
    assert again.version.number == (2 if adopts else 1)


async def test_what_a_pre_training_tries_is_no_part_of_later_retrainings(
    tmp_path: Path, tenant: TenantState
) -> None:
    parts_s = {"start_s": 1.0, "trial_s": 10.0, "first_s": 3.0, "epochs_s": 14.0}
    trainings = _Pretended(tmp_path, seconds=35.0, parts_s=parts_s)
    gpu_thread = SimpleNamespace(whole=lambda: nullcontext({}))
    await learning(tmp_path, tenant, trainings, "mps", gpu_thread=gpu_thread).prepare_all(print)
    # a half counts of what was measured: 34 s less 10 of the trial and 2 of each of 10 steps
    assert tenant.duration.fixed_s == pytest.approx(2.0)


async def test_a_retraining_of_what_was_rolled_back_is_not_adopted(
    tmp_path: Path, tenant: TenantState
) -> None:
    trainings = _Pretended(tmp_path)
    models, trainings.adopts = learning(tmp_path, tenant, trainings), True
    await models.prepare(tenant)
    plan(tenant)
    assert "it is no better" in await models.train("photos", Instance(0, 1), {})
    plan(tenant, 4)

    async def roll_back() -> None:
        assert await models.roll_back("photos")

    trainings.during = roll_back
    why = await models.train("photos", Instance(0, 1), {})
    assert "version 2, which was rolled back" in why
    assert tenant.version is not None
    assert tenant.version.number == 1


@pytest.mark.parametrize(("driver", "weight"), [("mps", 1.0), ("emulated", 0.5)])
async def test_the_first_retraining_on_a_gpu_replaces_the_profile(
    tmp_path: Path, tenant: TenantState, driver: str, weight: float
) -> None:
    _set_profile(tenant, 10.0)
    plan(tenant)
    models = learning(tmp_path, tenant, _Pretended(tmp_path), driver)
    await models.train("photos", Instance(0, 1), {})
    # 20 s of steps where the profile says 10, and 4 s that samples do not change
    assert tenant.duration.slower == pytest.approx(1 + weight)
    assert tenant.duration.fixed_s == pytest.approx(4.0 * weight)
    plan(tenant, 4, tenant.duration.slower)
    await models.train("photos", Instance(0, 1), {})
    assert tenant.duration.slower == pytest.approx(2.0 if weight == 1.0 else 1.75)


def _set_profile(tenant: TenantState, seconds: float) -> None:
    """Of a retraining with 100 samples on the smallest instance."""
    now_s = tenant.training_s(100).at(14.0)
    profile = tenant.service.profile
    profile = replace(profile, training_ratio=profile.training_ratio * seconds / now_s)
    tenant.service = replace(tenant.service, profile=profile)


@pytest.mark.parametrize(
    ("samples", "epochs", "slower"), [(50, None, 4.0), (200, None, 1.0), (100, 1, 2.0), (100, 0, 1)]
)
async def test_a_retraining_is_timed_by_what_it_learned(
    tmp_path: Path, tenant: TenantState, samples: int, epochs: int | None, slower: float
) -> None:
    """Other samples than planned, or fewer epochs, say nothing about the speed of the GPU."""
    _set_profile(tenant, 10.0)
    if epochs is not None:
        slower *= tenant.training.configurations[0].epochs if epochs else 1
    plan(tenant, labelled=40)
    trainings = _Pretended(tmp_path, samples=samples, trained=samples)
    if epochs is not None:
        trainings.changed["curve"] = (0.4,) * epochs
    await learning(tmp_path, tenant, trainings, "mps").train("photos", Instance(0, 1), {})
    assert tenant.duration.slower == pytest.approx(slower)
    # the next one replays its two new classes as well
    new = round(40 * (1 - tenant.training.held_out))
    assert tenant.samples(0) == samples - new + 2 * tenant.training.replay


async def test_a_retraining_without_samples_ends_and_waits_for_more_labels(
    tmp_path: Path, tenant: TenantState, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the real process: all labels are of inputs that are held out."""
    monkeypatch.setenv("PYTHONPATH", PYTHONPATH)
    held_out = (n for n in range(2000) if lot_of(picture(n).tobytes()) < HELD_OUT)
    labels = Labels(tmp_path / "labels.db", learned_before=lambda _: tenant.model.since)
    for number in islice(held_out, 30):
        await labels.add("photos", 0, picture(number), 1, 0, f"r{number}")
    room = TrainingRoom.of(BOARD, [tenant], WINDOW_S)
    tenant.begin_window(1, labels.kept("photos", 0, 1), 0.1, room)
    assert tenant.retraining is not None
    models = {"photos": model_spec(read_live(tmp_path / "small.yaml").tenants[0])}
    forkserver = Forkserver(tmp_path / "workers.log", models, answer_s=20.0, prepare=PREPARE)
    await forkserver.start()
    trainings = Trainings(tmp_path / "log", forkserver)
    try:
        why = await learning(tmp_path, tenant, trainings).train("photos", Instance(0, 7), {})
    finally:
        await trainings.close()
        await forkserver.close()
    assert "no samples" in why
    assert tenant.retraining.phase is Phase.DONE
    tenant.begin_window(2, 30, 0.1, room)
    assert tenant.retraining is None, "the same labels would end alike"
    tenant.begin_window(3, 31, 0.1, room)
    assert tenant.retraining is not None
    assert labels.kept("photos", 0, 1) == 30
    await labels.close()


def picture(number: int) -> NDArray[np.uint8]:
    return np.full((3, 16, 16), [[[number % 256]], [[number // 256]], [[0]]], np.uint8)
