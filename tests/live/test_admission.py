"""A tenant that was to go, and could not, is served again when it is taken back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path

import numpy as np
import pytest
from support.live_daemon import scenario_file
from support.stand_in_worker import StandInWorker

from migrator.core.errors import MigratorError
from migrator.live import admission
from migrator.live.actions import REFUSAL
from migrator.live.admission import Admission
from migrator.live.daemon import Daemon
from migrator.live.label_rows import sample_row
from migrator.live.labels import Labels, NotKeptError
from migrator.live.learning import Learning, Where
from migrator.live.recorder import Recorder
from migrator.live.serving import Serving
from migrator.live.shared_store import SharedStore
from migrator.live.trainings import Trainings
from migrator.serve.links import Workers
from migrator.serve.refusals import DrainedError
from migrator.workload.live import read_live

pytest.importorskip("fsspec", reason="pip install 'migrator[cluster]'")


class Prepared(Workers):
    """Workers without processes, which can fail."""

    def __init__(self, folder: Path) -> None:
        self.log, self.wanted = folder / "workers.log", dict[str, int]()
        self.failing = False

    async def prepare(self, tenant: str, count: int) -> None:
        self.wanted[tenant] = count
        if self.failing:
            raise MigratorError("the nursery is gone")


class Told(Recorder):
    """What is written down is looked at by nobody."""

    def __init__(self) -> None:
        pass

    def event(self, kind: str, words: str, **fields: object) -> None:
        del kind, words, fields


class Bench:
    """A daemon's parts around its admission; made in an event loop."""

    def __init__(self, folder: Path) -> None:
        live = read_live(scenario_file(folder, "photos"))
        (folder / "both").mkdir()
        both = read_live(scenario_file(folder / "both", "photos", "cameras"))
        self.store = SharedStore(str(folder / "store"), "g1")
        serving = Serving(both, folder / "state", reader=lambda _: live, shared=self.store)
        self.daemon = daemon = Daemon(serving)
        self.workers, self.labels = Prepared(folder), Labels(folder / "labels.db")
        self.claimed: list[str] = []
        self.tenants, self.router = daemon.tenants, daemon.router
        where = Where(serving.folder, self.labels.path, live.scenario.board, "cpu", True)
        learning = Learning(
            where, self.tenants, serving.models, Trainings(), self._none, lambda *_: None
        )
        self.admission = Admission(
            serving=serving,
            tenants=self.tenants,
            models=serving.models,
            offered={},
            overheads_s={},
            router=self.router,
            executor=daemon.executor,
            thinking=daemon.thinking,
            learning=learning,
            workers=self.workers,
            trainings=Trainings(),
            labels=self.labels,
            recorder=Told(),
            clock=daemon.clock,
            do=lambda _: None,
            split=lambda: None,
            planning=lambda: True,
            claim=self._claim,
            followed=lambda: 1,
        )
        self.worker = StandInWorker()
        self.router.attach("photos", self.worker, lambda _: 0.0)

    async def _none(self, *_: object) -> None:
        pass

    async def _claim(self, tenant: str) -> bool:
        self.claimed.append(tenant)
        return True

    async def fails_to_go(self) -> None:
        self.workers.failing = True
        with pytest.raises(MigratorError, match="nursery"):
            await self.admission.dismiss("photos")
        assert self.router.refuses("photos")
        self.workers.failing = False

    async def close(self) -> None:
        await self.labels.close()
        self.store.close()
        self.daemon.thinking.close()


def scene(doing: Callable[[Bench], Coroutine[None, None, None]]) -> Callable[[Path], None]:
    """The test in an event loop of its own."""

    async def run(folder: Path) -> None:
        bench = Bench(folder)
        try:
            await doing(bench)
        finally:
            await bench.close()

    def test(tmp_path: Path) -> None:
        asyncio.run(run(tmp_path))

    test.__name__ = doing.__name__
    return test


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "READY_S", 0.1)


@scene
async def test_a_tenant_that_could_not_go_is_served_again_when_it_is_taken_back(
    bench: Bench,
) -> None:
    await bench.fails_to_go()
    await bench.fails_to_go()
    assert await bench.admission.admit({}) == "photos was here already"
    assert not bench.router.refuses("photos")
    assert not bench.tenants["photos"].drained
    assert (bench.workers.wanted["photos"], bench.claimed) == (2, ["photos"])
    assert bench.daemon.thinking.ask((), {}) == "photos came"


@scene
async def test_a_release_that_is_ended_while_it_waits_can_be_taken_back(bench: Bench) -> None:
    bench.router.counts["photos"].total.received += 1
    going = asyncio.create_task(bench.admission.dismiss("photos"))
    await asyncio.sleep(0.05)
    going.cancel()
    await asyncio.gather(going, return_exceptions=True)
    assert bench.router.refuses("photos")
    await bench.admission.admit({})
    assert not bench.router.refuses("photos")


@scene
async def test_whom_an_operator_drained_stays_drained_when_it_could_not_go(bench: Bench) -> None:
    bench.tenants["photos"].drained = True
    await bench.fails_to_go()
    await bench.fails_to_go()
    await bench.admission.admit({})
    assert bench.tenants["photos"].drained
    with pytest.raises(DrainedError, match=REFUSAL.split(",")[0]):
        await bench.router.infer("photos", np.zeros((1, 2), np.uint8))


@scene
async def test_who_is_drained_by_an_operator_is_so_still_when_it_is_taken_again(
    bench: Bench,
) -> None:
    bench.tenants["photos"].drained = True
    bench.router.refuse("photos", REFUSAL)
    await bench.admission.admit({})
    assert bench.router.refuses("photos")
    assert bench.tenants["photos"].drained


@scene
async def test_who_has_no_instance_when_it_is_taken_back_goes_after_all(bench: Bench) -> None:
    await bench.fails_to_go()
    bench.router.detach(bench.worker)
    with pytest.raises(MigratorError, match="had no instance"):
        await bench.admission.admit({})
    assert "photos" not in bench.tenants
    assert await bench.admission.dismiss("photos") == "photos was not here"


@scene
async def test_labels_of_others_that_could_not_be_kept_here_are_brought_later(
    bench: Bench,
) -> None:
    other = SharedStore(bench.store.url, "g2")
    row = sample_row("photos", 2, np.arange(6, dtype=np.uint8), 3, 4, "a")
    other.keep_labels([row])
    other.close()
    with pytest.MonkeyPatch.context() as full:
        full.setattr(bench.labels, "bring", _full)
        with pytest.raises(NotKeptError):
            await bench.admission.admit({})
    await bench.admission.admit({})
    assert bench.labels.counts("photos", 2).labelled == 1


async def _full(_: object) -> int:
    raise NotKeptError("labels.db: the disk is full")
