"""A tenant whose removal failed is served again when it is added again."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.live_context import NoRollout, idle_context, operator_actions
from support.live_daemon import scenario_file, section
from support.stand_in_worker import StandInWorker, infer
from support.waiting import until_async

from migrator.cluster.shared_store import SharedStore
from migrator.control.events import Created, Ready
from migrator.core.action import ActionKind
from migrator.core.errors import HttpError, MigratorError, NotWrittenError
from migrator.core.problem import Instance, Kind, Task
from migrator.live import admission
from migrator.live.admission import Admission
from migrator.live.context import Context
from migrator.live.daemon import new_controller
from migrator.live.labels import Labels, NotKeptError, sample_row
from migrator.live.learning import Learning
from migrator.live.operator_actions import REFUSAL, DrainedTenants
from migrator.live.options import DaemonOptions, stored_tenants
from migrator.live.recorder import LiveRecorder
from migrator.live.repository import Repository
from migrator.live.stored_tenants import StoredTenants
from migrator.serving.workers.messages import ModelSpec
from migrator.serving.workers.pool import Workers
from migrator.workload.live import LiveScenario, read_live

pytest.importorskip("fsspec", reason="pip install 'migrator-gpu[cluster]'")


class Prepared(Workers):
    """Workers without processes, which can fail."""

    def __init__(self, folder: Path) -> None:
        self.log, self.wanted = folder / "workers.log", dict[str, int]()
        self.failing = False

    async def prepare(self, tenant: str, count: int) -> None:
        self.wanted[tenant] = count
        if self.failing:
            raise MigratorError("the forkserver is gone")

    async def add(self, tenant: str, model: ModelSpec) -> None:
        del model
        await self.prepare(tenant, 0)

    async def remove(self, tenant: str) -> None:
        await self.prepare(tenant, 0)


class Bench:
    """The services of a daemon around its admission."""

    def __init__(self, folder: Path) -> None:
        live = read_live(scenario_file(folder, "photos"))
        (folder / "both").mkdir()
        both = read_live(scenario_file(folder / "both", "photos", "cameras"))
        self.store = SharedStore(str(folder / "store"), "g1")
        serving = self.serving = DaemonOptions(
            both, folder / "state", reader=lambda _: live, shared=self.store
        )
        self.workers, self.labels = Prepared(folder), Labels(folder / "labels.db")
        context: Context = idle_context(serving, workers=self.workers, labels=self.labels)
        self.tenants, self.router = context.tenants, context.router
        self.executor = context.executor
        self.records: Any = context.records
        recorder, self.rollout = LiveRecorder(context), NoRollout()
        self.controller = new_controller(context, recorder, lambda _: None)
        self.controller.started = True
        recorder.plans_followed = 1
        learning = Learning(context, self.rollout, recorder)
        self.actions, actuation = operator_actions(context, self.controller, learning, recorder)
        self.admission = Admission(
            context, self.controller, actuation, learning, self.rollout, recorder
        )
        stored = stored_tenants(serving.state, both)
        self.repository = Repository(context, self.admission, self.actions, stored)
        self.worker = StandInWorker()
        self.router.attach("photos", self.worker, lambda _: 0.0)

    async def fails_to_go(self) -> None:
        self.workers.failing = True
        with pytest.raises(MigratorError, match="forkserver"):
            await self.admission.remove("photos")
        assert self.router.refuses("photos")
        self.workers.failing = False

    async def close(self) -> None:
        await self.labels.close()
        self.store.close()
        self.controller.planning.close()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    asyncio.run(bench.close())


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "READY_S", 0.1)


async def test_a_tenant_whose_removal_failed_is_served_again(
    bench: Bench,
) -> None:
    await bench.fails_to_go()
    await bench.fails_to_go()
    assert await bench.admission.admit({}) == "photos was here already"
    assert not bench.router.refuses("photos")
    assert not bench.tenants["photos"].drained
    assert (bench.workers.wanted["photos"], bench.rollout.claimed) == (2, ["photos"])
    assert bench.controller.planning.ask((), {}) == "photos was added"


async def test_a_removal_fails_if_reconfiguration_is_paused_meanwhile(bench: Bench) -> None:
    instance = Instance(0, 3, Task("photos", Kind.INFERENCE))
    bench.executor.follow(0.0, [(instance,)], 1.0)
    bench.executor.on(0.0, Created(instance), Ready(instance, 1.0))
    going = asyncio.create_task(bench.admission.remove("photos"))
    await until_async(lambda: bench.router.refuses("photos"))
    bench.executor.pause(0.0)
    with pytest.raises(HttpError, match="photos keeps its instances"):
        await going
    bench.executor.resume(0.0)
    assert await bench.admission.admit({}) == "photos was here already"
    assert not bench.router.refuses("photos")


async def test_a_drained_tenant_stays_drained_when_its_removal_fails(bench: Bench) -> None:
    bench.tenants["photos"].drain()
    await bench.fails_to_go()
    await bench.fails_to_go()
    await bench.admission.admit({})
    assert bench.tenants["photos"].drained
    with pytest.raises(HttpError, match=REFUSAL.split(",")[0]):
        await infer(bench.router, "photos", np.zeros((1, 2), np.uint8))


async def test_a_drained_tenant_whose_removal_failed_is_drained_after_a_restart(
    bench: Bench,
) -> None:
    serving = bench.serving
    await bench.actions.act(ActionKind.DRAIN, "photos", "cli")
    bench.workers.failing = True
    with pytest.raises(MigratorError, match="forkserver"):
        await bench.repository.remove("photos")
    assert "photos" in DrainedTenants(serving.folder / "drained.json")
    assert stored_tenants(serving.state, serving.live).removed == []


async def test_a_tenant_that_was_drained_and_removed_is_not_drained_when_it_comes_back(
    bench: Bench,
) -> None:
    path = bench.serving.folder / "drained.json"
    await bench.repository.remove("photos")
    # a drain that was asked for at once with the removal writes this last
    bench.actions.drained.set("photos", drained=True)
    bench.workers.failing = True
    with pytest.raises(MigratorError, match="forkserver"):
        await bench.repository.load("photos", None)
    assert "photos" not in DrainedTenants(path)


def full(*_: object) -> None:
    raise NotWrittenError("tenants.json cannot be written")


async def test_no_change_is_begun_that_cannot_be_stored(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[object] = []

    async def begin(change: object) -> str:
        begun.append(change)
        return ""

    monkeypatch.setattr(bench.admission, "remove", begin)
    monkeypatch.setattr(bench.admission, "add", begin)
    monkeypatch.setattr(StoredTenants, "_write", full)
    with pytest.raises(NotWrittenError):
        await bench.repository.remove("photos")
    folder = bench.serving.state.parent
    with pytest.raises(NotWrittenError):
        await bench.repository.add(section(folder, "letters"), str(folder))
    assert not begun


async def test_a_change_that_cannot_be_stored_at_its_end_is_undone(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    added: list[str] = []

    async def add(scenario: LiveScenario) -> str:
        added.append(scenario.tenants[0].name)
        return ""

    monkeypatch.setattr(StoredTenants, "remove", full)
    monkeypatch.setattr(bench.admission, "add", add)
    with pytest.raises(NotWrittenError):
        await bench.repository.remove("cameras")
    assert (added, bench.repository.removed) == (["cameras"], [])


async def test_another_tenant_does_not_take_the_name_of_one_whose_removal_failed(
    bench: Bench,
) -> None:
    await bench.fails_to_go()
    folder = bench.serving.state.parent
    with pytest.raises(HttpError, match="the removal of photos failed"):
        await bench.repository.add(section(folder, "photos"), str(folder))
    assert await bench.repository.load("photos", None) == "photos was here already"


async def test_a_tenant_without_an_instance_is_removed_after_all(bench: Bench) -> None:
    await bench.fails_to_go()
    bench.router.detach(bench.worker)
    with pytest.raises(MigratorError, match="had no instance"):
        await bench.admission.admit({})
    assert "photos" not in bench.tenants
    assert await bench.admission.remove("photos") == "photos was not here"


async def test_labels_of_others_that_could_not_be_kept_here_are_brought_later(
    bench: Bench,
) -> None:
    other = SharedStore(bench.store.url, "g2")
    row = sample_row("photos", 2, np.arange(6, dtype=np.uint8), 3, 4, "a")
    other.labels.keep([row])
    other.close()
    with pytest.MonkeyPatch.context() as full:
        full.setattr(bench.labels, "bring", _full)
        with pytest.raises(NotKeptError):
            await bench.admission.admit({})
    await bench.admission.admit({})
    assert bench.labels.counts("photos", 2).labelled == 1


async def _full(_: object) -> int:
    raise NotKeptError("labels.db: the disk is full")
