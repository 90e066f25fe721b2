"""A tenant that missed retrainings is retrained again, whatever kept it from them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from support import PYTHONPATH
from support.faults import labels_of, settled, teach
from support.live_context import LabelTable, idle_context, idle_forkserver
from support.live_daemon import Served, scenario_file, served

from migrator.control.events import RetrainingPlanned, TrainingCompleted
from migrator.control.retraining import Phase, Retraining
from migrator.control.tenant_state import TenantState, TrainingRoom, tenant_state_of
from migrator.core.catalogue import board
from migrator.core.errors import InputError, MigratorError
from migrator.core.problem import Charge, Instance
from migrator.core.profiles import Curve
from migrator.learn.estimation import AccuracyEstimate
from migrator.live.context import DaemonOptions, model_spec
from migrator.live.labels import Labels, lot_of
from migrator.live.learning import Learning
from migrator.live.recorder import LiveRecorder
from migrator.live.rollout import Rollout
from migrator.live.training import (
    PREPARE,
    EstimateResult,
    JobKind,
    Progress,
    TrainingJob,
    TrainingLostError,
    TrainingResult,
    Trainings,
)
from migrator.live.versions import Version
from migrator.policies.planning import problem_of
from migrator.policies.policy import Observation
from migrator.serving.workers.forkserver import Forkserver
from migrator.workload.live import read_live

BOARD = board("A100-40GB")
WINDOW_S, PER_WINDOW, HELD_OUT = 20, 6000, 0.25


@pytest.fixture
def tenant(tmp_path: Path) -> TenantState:
    live = read_live(scenario_file(tmp_path, "photos", window_s=WINDOW_S))
    (served_,), (own,) = live.scenario.tenants, live.tenants
    return tenant_state_of(served_, own, live.scenario.slot_s, 1.0)


def plans_retraining(tenant: TenantState, late: int = 0) -> bool:
    """Whether a planner that answers `late` slots late finds a size that ends in the window."""
    view = replace(tenant.view(), ahead=np.full((1, WINDOW_S - late), 5.0))
    seen = Observation(BOARD, 1.0, WINDOW_S, late, (view,), ())
    return problem_of(seen, Charge.SURVIVORS).tenants[0].retraining_slots is not None


def run_windows(
    tenant: TenantState,
    windows: range,
    can_run: Callable[[int], bool] = lambda _: True,
    late: int = 0,
    paused: bool = False,
) -> list[int]:
    """Virtual windows with labels in each; those in which the tenant was retrained."""
    room, done = TrainingRoom.of(BOARD, [tenant], WINDOW_S), []
    for window in windows:
        tenant.begin_window(window, PER_WINDOW * (window - tenant.since), 0.1, room)
        job = tenant.retraining
        if job is not None and can_run(window) and plans_retraining(tenant, late):
            planned_s = job.seconds.at(98)
            tenant.start_retraining(Instance(0, 7))
            tenant.measure_training(planned_s, planned_s)
            tenant.learn_labels(window)
            tenant.on(TrainingCompleted())
            done.append(window)
        if not paused:
            tenant.end_window()
    return done


def test_a_retraining_takes_as_long_as_what_fits_not_as_all_that_came(tenant: TenantState) -> None:
    room = TrainingRoom.of(BOARD, [tenant], WINDOW_S)
    tenant.begin_window(60, 60 * PER_WINDOW, 0.1, room)
    job = tenant.retraining
    assert job is not None
    assert job.most_samples is not None
    assert job.seconds.at(room.sms) <= room.seconds
    # and few labels are all learned
    tenant.begin_window(61, 100, 0.1, room)
    assert tenant.retraining is not None
    few = tenant.training_s(round(100 * (1 - HELD_OUT)))
    assert tenant.retraining.seconds.at(98) == few.at(98)


def test_sixty_windows_with_pauses_failures_and_a_duration_measured_far_too_long(
    tenant: TenantState,
) -> None:
    assert len(run_windows(tenant, range(1, 10))) >= 8
    run_windows(tenant, range(10, 15), lambda _: False, paused=True)
    assert run_windows(tenant, range(15, 18)), "after a pause"
    run_windows(tenant, range(18, 25), lambda _: False)
    assert run_windows(tenant, range(25, 28)), "after failures"
    for _ in range(5):
        tenant.measure_training(1.0, 10.0)
    assert tenant.duration.slower > 9
    assert run_windows(tenant, range(28, 32)), "after durations measured too long"
    assert run_windows(tenant, range(40, 43)), "after windows without anything"
    tenant.measure_overhead(WINDOW_S / 2)
    assert run_windows(tenant, range(43, 46)), "with an overhead as long as is believed"
    tenant.measure_overhead(1.0)
    last = run_windows(tenant, range(46, 60))
    assert len(last) == 14
    assert tenant.duration.slower < 1.1


def test_a_planner_that_is_always_late_finds_time_for_a_smaller_one(tenant: TenantState) -> None:
    done = run_windows(tenant, range(1, 30), late=15)
    assert len(done) >= 5
    assert max(np.diff(done)) <= 10


def test_an_estimate_without_gain_is_doubted_after_some_windows(tenant: TenantState) -> None:
    room, expected = TrainingRoom.of(BOARD, [tenant], WINDOW_S), []
    tenant.compare(before=0.1, after=0.2, estimated=0.2)  # estimates have been right
    for window in range(1, 7):
        tenant.set_estimate(0.1, window)
        tenant.begin_window(window, 100, 0.1, room)
        assert tenant.retraining is not None
        expected.append(tenant.retraining.expected)
        tenant.end_window()
    assert expected[:3] == [0.1] * 3
    assert min(expected[3:]) > 0.3


def test_a_share_of_the_window_is_left_for_every_tenant(tmp_path: Path) -> None:
    live = read_live(scenario_file(tmp_path, "photos", "cameras", "news", window_s=WINDOW_S))
    both = zip(live.scenario.tenants, live.tenants, strict=True)
    tenants = [tenant_state_of(one, own, 1.0, 1.0) for one, own in both]
    room = TrainingRoom.of(BOARD, tenants, WINDOW_S)
    assert room.sms == BOARD.sms_of(4)
    assert room.seconds * 3 < WINDOW_S


class _Ending(Trainings):
    """Ends with an error instead of training."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(Path("unused"), idle_forkserver())
        self.error, self.jobs = error, list[TrainingJob]()

    async def train(self, job: TrainingJob, progress: Progress | None = None) -> TrainingResult:
        del progress
        self.jobs.append(job)
        raise self.error


class _NoRollout(Rollout):
    def __init__(self) -> None:
        pass

    async def roll_out(self, version: Version) -> None:
        raise AssertionError(f"version {version.number} was adopted")


def learning(
    tmp_path: Path,
    tenant: TenantState,
    trainings: Trainings,
    driver: str = "emulated",
    weights: Path | None = None,
) -> Learning:
    serving = DaemonOptions(read_live(tmp_path / "small.yaml"), tmp_path, driver)
    table = LabelTable(tmp_path / "labels.db")
    context = idle_context(serving, trainings=trainings, labels=table)
    context.tenants[tenant.name] = tenant
    live = context.live_tenants[tenant.name]
    context.live_tenants[tenant.name] = replace(live, weights=weights)
    return Learning(context, _NoRollout(), LiveRecorder(context))


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
    tenant.on(RetrainingPlanned(Retraining(3, tenant.training_s(100), 1.0, 0.9, most_samples=70)))
    trainings = _Ending(error)
    with pytest.raises(raised):
        asyncio.run(learning(tmp_path, tenant, trainings).train("photos", Instance(0, 4), {}))
    assert tenant.retraining is not None
    assert tenant.retraining.phase is Phase.WAITING
    assert trainings.jobs[0].most_samples == 70


def test_a_job_that_cannot_even_be_begun_does_not_stay_running(
    tmp_path: Path, tenant: TenantState
) -> None:
    tenant.on(RetrainingPlanned(Retraining(3, tenant.training_s(100), 1.0, 0.9)))
    made = learning(tmp_path, tenant, Trainings(tmp_path / "log", idle_forkserver()))
    with pytest.raises(MigratorError):
        asyncio.run(made.train("photos", Instance(0, 5), {}))  # no size of this board
    assert tenant.retraining is not None
    assert tenant.retraining.phase is Phase.WAITING


@pytest.mark.parametrize("classes", [(), (0, 1)])
def test_weights_that_know_no_class_are_where_pre_training_begins(
    tmp_path: Path, tenant: TenantState, classes: tuple[int, ...]
) -> None:
    weights, note = tmp_path / "given.safetensors", json.dumps({"seen": classes})
    header = json.dumps({"__metadata__": {"migrator": note}}).encode()
    weights.write_bytes(len(header).to_bytes(8, "little") + header)
    trainings = _Ending(InputError("asked to pre-train"))
    made = learning(tmp_path, tenant, trainings, weights=weights)
    if classes:
        asyncio.run(made.prepare(tenant))
        assert tenant.version is not None
        return
    with pytest.raises(InputError, match="asked to pre-train"):
        asyncio.run(made.prepare(tenant))
    assert trainings.jobs[0].kind is JobKind.PRETRAIN
    assert trainings.jobs[0].weights == weights


SECONDS = 30.0


class _Resumed(Trainings):
    """Has half of the epochs from checkpoints, and takes half of the time for the others."""

    async def train(self, job: TrainingJob, progress: Progress | None = None) -> TrainingResult:
        del progress
        half = job.settings.epochs // 2
        return TrainingResult(
            *(False, "it is no better", None, 0.5, 0.4, 0.5, 0.4),
            new_classes=(),
            samples=100,
            curve=(0.4,) * job.settings.epochs,
            epochs_resumed=half,
            seconds=SECONDS + 1.0,
            start_s=1.0,
        )


async def test_what_was_learned_before_a_restart_is_no_part_of_its_duration(
    tmp_path: Path, tenant: TenantState
) -> None:
    tenant.on(RetrainingPlanned(Retraining(3, Curve(((14.0, 2 * SECONDS),)), 1.0, 0.9)))
    made = learning(tmp_path, tenant, _Resumed(tmp_path / "log", idle_forkserver()))
    await made.train("photos", Instance(0, 1), {})
    assert tenant.duration.slower == pytest.approx(1.0)  # 30 s for half of what takes 60


class _Estimating(_Resumed):
    """Estimates another accuracy before for every window."""

    during: Callable[[], Awaitable[None]] | None = None
    """What happens while a retraining runs."""

    async def train(self, job: TrainingJob, progress: Progress | None = None) -> TrainingResult:
        if self.during is not None:
            await self.during()
        return await super().train(job, progress)

    async def estimate(self, job: TrainingJob) -> EstimateResult:
        return EstimateResult(AccuracyEstimate(0.9, 0.9, job.window / 10, 0.5, (0.9,), 1.0), 0)


async def test_an_estimate_is_compared_with_the_retraining_it_was_made_for(
    tmp_path: Path, tenant: TenantState
) -> None:
    tenant.on(RetrainingPlanned(Retraining(3, Curve(((14.0, 2 * SECONDS),)), 1.0, 0.9)))
    trainings = _Estimating(tmp_path / "log", idle_forkserver())
    made = learning(tmp_path, tenant, trainings)
    await made.estimate("photos", 2, None, 100)
    trainings.during = lambda: made.estimate("photos", 3, None, 100)
    await made.train("photos", Instance(0, 1), {})
    assert [estimate.before for estimate in made.past_estimates["photos"]] == [0.2]


async def test_only_estimates_of_retrainings_to_come_are_kept(
    tmp_path: Path, tenant: TenantState
) -> None:
    made = learning(tmp_path, tenant, _Estimating(tmp_path / "log", idle_forkserver()))
    for window in range(5):
        await made.estimate("photos", window, None, 100)
    tenant.learn_labels(6)
    await made.estimate("photos", 5, None, 100)  # ends after the retraining it was made for
    tenant.on(RetrainingPlanned(Retraining(7, Curve(((14.0, 2 * SECONDS),)), 1.0, 0.9)))
    await made.train("photos", Instance(0, 1), {})
    assert [estimate.before for estimate in made.past_estimates["photos"]] == [0.4]


class _Timed(Trainings):
    """4 s before the first step and after the last, 2 s for each of 10 steps."""

    samples = 100
    epochs: int | None = None

    async def train(self, job: TrainingJob, progress: Progress | None = None) -> TrainingResult:
        del progress
        return TrainingResult(
            *(False, "it is no better", None, 0.5, 0.4, 0.5, 0.4),
            new_classes=(7, 8),
            samples=self.samples,
            curve=(0.4,) * (job.settings.epochs if self.epochs is None else self.epochs),
            epochs_resumed=0,
            seconds=25.0,
            start_s=1.0,
            parts_s={"start_s": 1.0, "data_s": 1.0, "first_s": 7.0, "epochs_s": 14.0},
            steps=10,
        )


@pytest.mark.parametrize(("driver", "weight"), [("mps", 1.0), ("emulated", 0.5)])
async def test_the_first_retraining_on_a_gpu_replaces_the_profile(
    tmp_path: Path, tenant: TenantState, driver: str, weight: float
) -> None:
    _set_profile(tenant, 10.0)
    tenant.on(RetrainingPlanned(Retraining(3, tenant.training_s(100), 1.0, 0.9)))
    made = learning(tmp_path, tenant, _Timed(tmp_path / "log", idle_forkserver()), driver)
    await made.train("photos", Instance(0, 1), {})
    # 20 s of steps where the profile says 10, and 4 s that samples do not change
    assert tenant.duration.slower == pytest.approx(1 + weight)
    assert tenant.duration.fixed_s == pytest.approx(4.0 * weight)
    tenant.on(RetrainingPlanned(Retraining(4, tenant.training_s(100), tenant.duration.slower, 0.9)))
    await made.train("photos", Instance(0, 1), {})
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
        slower *= tenant.training.epochs if epochs else 1
    tenant.on(RetrainingPlanned(Retraining(3, tenant.training_s(100), 1.0, 0.9, labelled=40)))
    trainings = _Timed(tmp_path / "log", idle_forkserver())
    trainings.samples, trainings.epochs = samples, epochs
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
    held_out = [each for each in range(2000) if lot_of(picture(each).tobytes()) < HELD_OUT][:30]
    labels = Labels(tmp_path / "labels.db", learned_before=lambda _: tenant.since)
    for number in held_out:
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


def next_window(daemon: Served) -> None:
    window = daemon.status()["window"]
    daemon.wait_for(lambda now: now["window"] > window, "the next window")


def act(daemon: Served, action: str) -> None:
    answer = daemon.client.post(f"{daemon.url}/admin/actions", json={"action": action})
    assert answer.status_code == 200, answer.text


def test_a_real_daemon_retrains_after_paused_windows_and_after_it_lost_its_records(
    tmp_path: Path,
) -> None:
    """Sixty labels are learned within a window; three hundred would take two."""
    path = scenario_file(tmp_path, "photos", window_s=4, policy="migrator", training_ratio=10.0)
    state = tmp_path / "state"
    with served(path, state) as daemon:
        settled(daemon)
        act(daemon, "pause")
        for each in range(3):
            teach(daemon, "photos", 1, 100, str(each))
            next_window(daemon)
        assert daemon.status()["tenants"]["photos"]["version"] == 1
        act(daemon, "resume")
        found = daemon.wait_for(
            lambda now: now["tenants"]["photos"]["version"] >= 2, "it is retrained"
        )
        teach(daemon, "photos", 1, 1, "8")
        assert len(labels_of(state)) >= 301
        assert daemon.stop() == 0, daemon.said()
    for file in (state / "live" / "small").glob("records.db*"):
        file.unlink()
    with served(path, state) as again:
        now = again.status()
        assert now["window"] > found["window"]
        teach(again, "photos", 2, 60, "9")  # classes that are new to it
        version = now["tenants"]["photos"]["version"]
        again.wait_for(
            lambda now: now["tenants"]["photos"]["version"] > version, "it is retrained again"
        )
        assert {f"9-{number}" for number in range(60)} <= set(labels_of(state))
        assert again.stop() == 0, again.said()
