"""Hands whose instructions fail in ways that nobody thought of: every one of them is answered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from support.faults import users
from support.live_learning import ENVIRONMENT, made_job
from support.serving import assignment, run_on_uvloop, started, until

from migrator.control.events import (
    Create,
    Created,
    CreateFailed,
    Destroy,
    Destroyed,
    DestroyFailed,
    Event,
    Train,
    TrainingEnded,
    Warm,
    WorkerLost,
)
from migrator.core.instance import Instance
from migrator.core.share import Holding
from migrator.gpu.drivers.registry import open_driver
from migrator.live.actuator import Actuator
from migrator.live.gpu_thread import GpuThread
from migrator.live.training import JobKind, TrainingLostError, Trainings
from migrator.serve.router.queue import QueueSettings
from migrator.serve.router.router import Router
from migrator.serve.workers.messages import Assignment

TESTS = Path(__file__).parent.parent
PLACE = Instance(0, 1)


@pytest.fixture(autouse=True)
def _own_models(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(TESTS))
    monkeypatch.setenv("MIGRATOR_EMULATED_PACE", "0")


class Duties:
    """A new version comes while a worker warms, and its weights cannot be read; or all fails."""

    def __init__(self, weights: Path, *, broken: bool = False) -> None:
        self._weights, self._broken, self._asked = weights, broken, 0
        self.trainings: Trainings | None = None

    def assignment(
        self, tenant: str, instance: Holding, environment: Mapping[str, str]
    ) -> Assignment:
        if self._broken:
            raise KeyError(f"{tenant} on {instance}")
        self._asked += 1
        if self._asked % 2:
            return assignment(environment=environment)
        return assignment(environment=environment, version=2, weights=self._weights)

    def latency_s(self, tenant: str, instance: Holding) -> Callable[[int], float]:
        del tenant, instance
        return lambda batch: 0.0 * batch

    async def train(self, tenant: str, instance: Holding, environment: Mapping[str, str]) -> str:
        raise ZeroDivisionError(f"{tenant} on {instance} with {len(environment)} variables")

    async def end_estimates(self, environment: Mapping[str, str]) -> None:
        if self.trainings is not None:
            await self.trainings.end_estimates(environment)


@asynccontextmanager
async def made(folder: Path, duties: Duties) -> AsyncIterator[tuple[Actuator, list[Event]]]:
    """Hands on an emulated GPU, and what they tell."""
    heard: list[Event] = []
    lane = GpuThread("emulated", 0, folder, "A100-40GB")
    folder.mkdir(exist_ok=True)
    await lane.open()
    async with started(folder / "run") as workers:
        router = Router({"a": QueueSettings("a", 1.0, 4)})
        hands = Actuator(lane, workers, router, duties, heard.append)
        hands.do(Create(PLACE))
        await until(lambda: heard == [Created(PLACE)])
        yield hands, heard
        await hands.close()
    await lane.close()


def test_a_worker_that_cannot_take_the_newest_model_gives_its_instance_back(
    tmp_path: Path,
) -> None:
    weights = tmp_path / "weights"
    weights.write_text("nothing of the kind", encoding="utf-8")

    async def life() -> None:
        async with made(tmp_path / "state", Duties(weights)) as (hands, heard):
            hands.do(Warm(PLACE, "a"))
            await until(lambda: len(heard) == 2)
            lost = heard[-1]
            assert isinstance(lost, WorkerLost)
            assert "cannot be loaded" in lost.why
            hands.do(Destroy(PLACE))
            await until(lambda: len(heard) == 3)
            assert heard[-1] == Destroyed(PLACE), "nobody holds it any more"

    run_on_uvloop(life())


def test_whatever_is_raised_is_told_as_what_became_of_the_instruction(tmp_path: Path) -> None:
    async def life() -> None:
        async with made(tmp_path / "state", Duties(tmp_path, broken=True)) as (hands, heard):
            hands.do(Warm(PLACE, "a"))
            hands.do(Train(PLACE, "a"))
            hands.do(Create(PLACE))
            await until(lambda: len(heard) == 4)
            await asyncio.sleep(0)
            told = {type(each): getattr(each, "why", "") for each in heard}
            assert "KeyError" in told[WorkerLost]
            assert "ZeroDivisionError" in told[TrainingEnded]
            assert "is there already" in told[CreateFailed]

    run_on_uvloop(life())


def test_an_estimate_is_ended_before_its_instance_is_destroyed_and_a_retraining_is_not(
    tmp_path: Path,
) -> None:
    # at this pace neither ends by itself
    job = replace(made_job(tmp_path / "learning"), pace_s=6000.0)
    state, trainings, duties = tmp_path / "state", Trainings(ENVIRONMENT), Duties(tmp_path)
    duties.trainings = trainings
    other = Instance(1, 1)

    async def life() -> None:
        async with made(state, duties) as (hands, heard):
            hands.do(Create(other))
            await until(lambda: heard[1:] == [Created(other)])
            jobs = {
                kind: replace(job, folder=tmp_path / kind, environment=environment)
                for kind, environment in zip(
                    ("estimate", "retrain"), _environments(state), strict=True
                )
            }
            estimate = asyncio.create_task(trainings.estimate(jobs["estimate"]))
            retraining = asyncio.create_task(trainings.retrain(jobs["retrain"]))
            await until(lambda: len(users(state)) == 2, 60.0)
            hands.do(Destroy(PLACE))
            hands.do(Destroy(other))
            await until(lambda: len(heard) == 4, 60.0)
            assert Destroyed(PLACE) in heard
            (kept,) = (each for each in heard if isinstance(each, DestroyFailed))
            assert kept.instance == other
            with pytest.raises(TrainingLostError, match="instance is destroyed"):
                await estimate
            assert trainings.running == (("vision", JobKind.RETRAIN),)
            await trainings.close()
            await asyncio.gather(retraining, return_exceptions=True)

    run_on_uvloop(life())


def _environments(state: Path) -> list[Mapping[str, str]]:
    with open_driver("emulated", 0, state=state) as driver:
        return [driver.environment(each) for each in driver.instances()]
