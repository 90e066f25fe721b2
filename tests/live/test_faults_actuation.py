"""Instructions that fail with unexpected errors: every one of them is answered by an event."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from support.faults import users
from support.live_context import idle_context
from support.live_daemon import scenario_file
from support.live_learning import ENVIRONMENT, MEANS, made_job, trainings_for
from support.serving import assignment, run_on_uvloop, started
from support.waiting import until_async

from migrator.control import events
from migrator.control.retraining_plans import Estimate
from migrator.core.problem import Holding, Instance
from migrator.gpu.drivers.registry import open_driver
from migrator.live.actuation import Actuation
from migrator.live.context import Context
from migrator.live.gpu_thread import GpuThread
from migrator.live.learning import Learning
from migrator.live.options import DaemonOptions
from migrator.live.recorder import LiveRecorder
from migrator.live.training import JobKind, TrainingLostError
from migrator.serving.workers.messages import Assignment
from migrator.workload.live import read_live

PLACE = Instance(0, 1)


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**ENVIRONMENT, "MIGRATOR_EMULATED_PACE": "0"}.items():
        monkeypatch.setenv(name, value)


class FailingLearning:
    """Cannot train, and its estimates never end."""

    def __init__(self) -> None:
        self.estimated_on: list[tuple[Mapping[str, str] | None, float | None]] = []

    async def estimate(
        self,
        _tenant: str,
        _window: int,
        environment: Mapping[str, str] | None,
        _most: int,
        limit_s: float | None = None,
    ) -> None:
        self.estimated_on.append((environment, limit_s))

    async def train(self, tenant: str, instance: Holding, environment: Mapping[str, str]) -> str:
        raise ZeroDivisionError(f"{tenant} on {instance} with {len(environment)} variables")


class Faulty(Actuation):
    """A new version is adopted while a worker warms, and its weights cannot be read.

    Without weights there is no assignment at all.
    """

    def __init__(self, context: Context, weights: Path | None) -> None:
        controller: Any = None
        self.learning = FailingLearning()
        super().__init__(context, controller, cast(Learning, self.learning), LiveRecorder(context))
        self.outcomes: list[events.Event] = []
        self.next: list[events.Instruction] = []
        """Instructions that follow from the next event."""
        self.removed = False
        """The tenant is removed while a worker warms."""
        self._weights, self._asked = weights, 0

    def on_event(self, event: events.Event) -> None:
        self.outcomes.append(event)
        following, self.next = self.next, []
        self.do(following)

    def assignment(
        self, tenant: str, instance: Holding, environment: Mapping[str, str]
    ) -> Assignment:
        self._asked += 1
        if self._weights is None or (self.removed and self._asked == 2):
            raise KeyError(f"{tenant} on {instance}")
        if self._asked % 2:
            return assignment(environment=environment)
        return assignment(environment=environment, version=2, weights=self._weights)


@asynccontextmanager
async def actuation_on(
    folder: Path, weights: Path | None = None, **replaced: Any
) -> AsyncIterator[Faulty]:
    """An emulated GPU with one instance."""
    state = folder / "state"
    state.mkdir(exist_ok=True)
    thread = GpuThread("emulated", 0, state, "A100-40GB")
    await thread.open()
    serving = DaemonOptions(read_live(scenario_file(folder, "a")), folder)
    async with started(state / "run") as workers:
        context = idle_context(serving, gpu_thread=thread, workers=workers, **replaced)
        actuation = Faulty(context, weights)
        actuation.do([events.Create(PLACE)])
        await until_async(lambda: actuation.outcomes == [events.Created(PLACE)])
        yield actuation
        await actuation.close()
    await thread.close()


def test_a_worker_that_cannot_take_the_newest_model_gives_its_instance_back(
    tmp_path: Path,
) -> None:
    weights = tmp_path / "weights"
    weights.write_text("nothing of the kind", encoding="utf-8")

    async def scene() -> None:
        async with actuation_on(tmp_path, weights) as actuation:
            outcomes = actuation.outcomes
            actuation.do([events.Warm(PLACE, "a")])
            await until_async(lambda: len(outcomes) == 2)
            lost = outcomes[-1]
            assert isinstance(lost, events.WorkerLost)
            assert "cannot be loaded" in lost.why
            actuation.do([events.Destroy(PLACE)])
            await until_async(lambda: len(outcomes) == 3)
            assert outcomes[-1] == events.Destroyed(PLACE), "no process holds it"

    run_on_uvloop(scene())


def test_a_start_that_follows_one_whose_tenant_was_removed_can_be_stopped(tmp_path: Path) -> None:
    async def scene() -> None:
        async with actuation_on(tmp_path, tmp_path / "weights") as actuation:
            outcomes, actuation.removed = actuation.outcomes, True
            actuation.next = [events.Warm(PLACE, "a")]
            actuation.do([events.Warm(PLACE, "a")])
            await until_async(lambda: len(outcomes) == 2)
            actuation.do([events.StopWorker(PLACE)])
            await until_async(lambda: len(outcomes) == 3)
            assert events.Stopped(PLACE) in outcomes
            actuation.do([events.Destroy(PLACE)])
            await until_async(lambda: len(outcomes) == 4)
            assert outcomes[-1] == events.Destroyed(PLACE), "no process of either start holds it"

    run_on_uvloop(scene())


def test_every_exception_is_reported_as_the_outcome_of_its_instruction(tmp_path: Path) -> None:
    async def scene() -> None:
        async with actuation_on(tmp_path) as actuation:
            actuation.do([events.Warm(PLACE, "a"), events.Train(PLACE, "a"), events.Create(PLACE)])
            await until_async(lambda: len(actuation.outcomes) == 4)
            reasons = {type(outcome): getattr(outcome, "why", "") for outcome in actuation.outcomes}
            assert "KeyError" in reasons[events.WorkerLost]
            assert "ZeroDivisionError" in reasons[events.TrainingEnded]
            assert "is there already" in reasons[events.CreateFailed]

    run_on_uvloop(scene())


def test_an_estimate_is_ended_before_its_instance_is_destroyed_and_a_retraining_is_not(
    tmp_path: Path,
) -> None:
    # at this pace neither ends by itself
    job = replace(made_job(tmp_path / "learning", MEANS), pace_s=6000.0)
    state, other = tmp_path / "state", Instance(1, 1)

    async def scene() -> None:
        async with (
            trainings_for(job) as (trainings, _),
            actuation_on(tmp_path, trainings=trainings) as actuation,
        ):
            outcomes = actuation.outcomes
            actuation.do([events.Create(other)])
            await until_async(lambda: outcomes[1:] == [events.Created(other)])
            with open_driver("emulated", 0, state=state) as driver:
                first, second = (driver.environment(instance) for instance in driver.instances())
            estimated = replace(
                job, kind=JobKind.ESTIMATE, folder=tmp_path / "estimate", environment=first
            )
            estimate = asyncio.create_task(trainings.estimate(estimated))
            retraining = asyncio.create_task(trainings.train(replace(job, environment=second)))
            await until_async(lambda: len(users(state)) == 2)
            actuation.do([events.Destroy(PLACE), events.Destroy(other)])
            await until_async(lambda: len(outcomes) == 4)
            assert events.Destroyed(PLACE) in outcomes
            (kept,) = (outcome for outcome in outcomes if isinstance(outcome, events.DestroyFailed))
            assert kept.instance == other
            with pytest.raises(TrainingLostError, match="instance is destroyed"):
                await estimate
            assert trainings.running == (("vision", JobKind.RETRAIN),)
            await trainings.close()
            await asyncio.gather(retraining, return_exceptions=True)

    run_on_uvloop(scene())


async def test_plans_wait_only_for_tenants_without_a_forkserver(tmp_path: Path) -> None:
    context = idle_context(DaemonOptions(read_live(scenario_file(tmp_path, "a", "b")), tmp_path))
    Faulty(context, None)
    context.workers.forkserver.changed(frozenset({"b"}))
    assert [context.executor.may_retrain(tenant) for tenant in "ab"] == [True, False]
    context.workers.forkserver.changed(frozenset())
    assert context.executor.may_retrain("b")


async def test_an_estimate_on_an_instance_has_its_limit(tmp_path: Path) -> None:
    context = idle_context(DaemonOptions(read_live(scenario_file(tmp_path, "a")), tmp_path))
    environment = {"CUDA_VISIBLE_DEVICES": "MIG-1"}
    worker: Any = SimpleNamespace(assignment=assignment(environment=environment))
    context.serving_workers[PLACE] = worker
    actuation = Faulty(context, None)
    actuation.estimate(Estimate("a", 0, 100, PLACE, 0.05))
    actuation.estimate(Estimate("a", 0, 100))  # on the host, without a limit
    asked = [(environment, 0.05), (None, None)]
    await until_async(lambda: actuation.learning.estimated_on == asked)
    await actuation.close()
