"""A version reaches the workers and the store, whatever fails or is shared meanwhile."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from threading import Lock

import pytest
from support.live_context import idle_context
from support.live_daemon import scenario_file
from support.serving import assignment
from support.waiting import until_async

from migrator.cluster.shared_files import SharedFiles
from migrator.cluster.shared_store import SharedStore
from migrator.core.problem import Instance
from migrator.live.context import Context
from migrator.live.options import DaemonOptions
from migrator.live.recorder import LiveRecorder
from migrator.live.rollout import Rollout
from migrator.live.versions import Version, Versions
from migrator.serving.workers.pool import ServingWorker
from migrator.workload.live import read_live

pytest.importorskip("fsspec", reason="pip install 'migrator-gpu[cluster]'")


class EventList(LiveRecorder):
    """Keeps what is recorded."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.events: list[str] = []
        self.begun: list[int] = []

    def event(self, kind: str, words: str, **fields: object) -> None:
        del kind, fields
        self.events.append(words)

    def begin_version(self, tenant: str, version: Version, words: str = "") -> None:
        del tenant, words
        self.begun.append(version.number)


class Worker(ServingWorker):
    """A worker without a process."""

    name = "w1"

    def __init__(self, served: Callable[[], int]) -> None:
        self.assignment = assignment(tenant="photos")
        self.swapped: list[tuple[int, int]] = []
        """The number that was taken, and what the store said serves."""
        self._served = served

    async def swap(self, weights: Path, version: int) -> float:
        assert weights.is_file()
        self.swapped.append((version, self._served()))
        return 0.0


class Home:
    """A daemon that serves one tenant."""

    def __init__(self, folder: Path, name: str) -> None:
        (folder / name).mkdir()
        live = read_live(scenario_file(folder / name, "photos"))
        self.store = SharedStore(str(folder / "store"), name)
        serving = DaemonOptions(live, folder / name / "state", shared=self.store)
        self.context = idle_context(serving)
        self.run = self.context.tenants["photos"]
        self.versions = self.context.versions_of("photos")
        self.recorder, self.worker = EventList(self.context), Worker(self.shared)
        self.context.serving_workers[Instance(0, 4)] = self.worker
        self.rollout = Rollout(self.context, self.recorder)

    def trains(self, content: bytes) -> Version:
        """A new version, which serves here from now on."""
        weights = self.versions.folder.parent / "given"
        weights.parent.mkdir(parents=True, exist_ok=True)
        weights.write_bytes(content)
        version = self.versions.add(weights, 0.5)
        self.run.switch_version(version)
        return version

    def brings(self) -> None:
        version = self.store.versions.bring(self.versions)
        assert version is not None
        self.run.switch_version(version)

    def share(self, *, claim: bool = False) -> None:
        asyncio.run(self.rollout.share("photos", claim=claim))

    def shared(self) -> int:
        """The version that serves by the store."""
        serving = self.store.files.read("versions/photos/serving.json")
        return -1 if serving is None else int(json.loads(serving)["number"])

    @property
    def number(self) -> int:
        """The version that serves here."""
        return self.run.version.number if self.run.version else 0


@pytest.fixture
def homes(tmp_path: Path) -> tuple[Home, Home]:
    return Home(tmp_path, "g1"), Home(tmp_path, "g2")


@pytest.fixture
def moved(homes: tuple[Home, Home]) -> tuple[Home, Home]:
    """The new home has brought the old one's version, and not claimed the tenant yet."""
    old, new = homes
    old.trains(b"one")
    old.share(claim=True)
    new.brings()
    return homes


def test_what_the_old_home_learned_during_a_move_serves_at_the_new_one(
    moved: tuple[Home, Home],
) -> None:
    old, new = moved
    old.trains(b"two")
    old.share()
    new.share(claim=True)
    assert (new.number, new.shared()) == (2, 2)
    assert new.worker.swapped == [(2, 2)]
    assert new.recorder.begun == [2]
    new.trains(b"three")
    new.share()
    assert (new.number, new.shared(), new.recorder.events[1:]) == (3, 3, [])


def test_what_was_learned_here_while_the_store_was_asked_is_not_taken_back(
    moved: tuple[Home, Home], monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = moved
    old.trains(b"two")
    old.share()
    keep = new.store.versions.keep

    def slowly(version: Version, versions: Versions, *, claim: bool) -> Version | None:
        newer = keep(version, versions, claim=claim)
        if version.number == 1:
            new.trains(b"three")
        return newer

    monkeypatch.setattr(new.store.versions, "keep", slowly)
    new.share(claim=True)
    assert (new.number, new.shared(), new.worker.swapped) == (3, 3, [])


def test_a_claim_that_failed_is_made_again_with_the_next_version(
    moved: tuple[Home, Home], monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = moved
    with monkeypatch.context() as away:
        away.setattr(SharedFiles, "write", _away)
        new.share(claim=True)
    assert [event for event in new.recorder.events if "the store is away" in event]
    new.trains(b"two")
    new.share()
    assert new.shared() == 2
    old.trains(b"other")
    old.share()
    assert "served by g2" in old.recorder.events[-1]
    assert new.shared() == 2


def _away(*_: object) -> None:
    raise OSError("the store is away")


def test_a_claim_that_another_overtook_is_not_made_again(
    homes: tuple[Home, Home], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, new = homes
    new.trains(b"one")
    put = SharedFiles.put

    def meanwhile(files: SharedFiles, name: str, source: Path) -> None:
        put(files, name, source)
        files.write("versions/photos/owner", b"g3-1")

    with monkeypatch.context() as overtaken:
        overtaken.setattr(SharedFiles, "put", meanwhile)
        new.share(claim=True)
    assert "served by g3-1" in new.recorder.events[-1]
    new.trains(b"two")
    new.share()
    assert "served by g3-1" in new.recorder.events[-1]
    assert new.shared() == -1


def test_one_version_of_a_tenant_is_shared_at_a_time_and_the_last_is_the_one_that_serves(
    homes: tuple[Home, Home], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, _ = homes
    here.trains(b"one")
    alone, met, keep = Lock(), [], here.store.versions.keep

    def slowly(version: Version, versions: Versions, *, claim: bool) -> Version | None:
        met.append(not alone.acquire(blocking=False))
        time.sleep(0.05)
        newer = keep(version, versions, claim=claim)
        alone.release()
        return newer

    async def both() -> None:
        claiming = asyncio.create_task(here.rollout.share("photos", claim=True))
        await until_async(lambda: met)
        second = asyncio.create_task(here.rollout.share("photos"))
        await asyncio.sleep(0)
        here.trains(b"two")
        await asyncio.gather(claiming, second)

    monkeypatch.setattr(here.store.versions, "keep", slowly)
    asyncio.run(both())
    assert (met, here.shared(), here.recorder.events) == ([False, False], 2, [])
