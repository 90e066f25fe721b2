"""The daemon's lane to the GPU, over the emulated driver."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from migrator.core.errors import GpuError, MigratorError
from migrator.core.instance import Instance
from migrator.gpu.drivers.registry import open_driver
from migrator.live.gpu_thread import GpuThread


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIGRATOR_EMULATED_PACE", "0")


def _there(state: Path) -> list[tuple[int, str]]:
    with open_driver("emulated", 0, state=state) as driver:
        return [(each.place.start, each.place.profile) for each in driver.instances()]


def test_what_it_makes_is_there_and_gone_when_it_closes(tmp_path: Path) -> None:
    async def life() -> list[tuple[int, str]]:
        lane = GpuThread("emulated", 0, tmp_path, "A100-40GB")
        gpu = await lane.open()
        assert gpu.board.name == "A100-40GB"
        await lane.create(Instance(0, 4))
        await lane.create(Instance(4, 3))
        environment = await lane.environment(Instance(4, 3))
        assert environment["CUDA_VISIBLE_DEVICES"] == ""
        await lane.destroy(Instance(0, 4))
        made = _there(tmp_path)
        await lane.close()
        return made

    assert asyncio.run(life()) == [(4, "3g.20gb")]
    assert _there(tmp_path) == []


def test_nobody_else_takes_the_gpu_meanwhile(tmp_path: Path) -> None:
    async def life() -> None:
        first, second = (GpuThread("emulated", 0, tmp_path, "A100-40GB") for _ in range(2))
        await first.open()
        with pytest.raises(GpuError, match="process"):
            await second.open()
        await first.close()

    asyncio.run(life())


def test_what_an_earlier_life_left_is_removed(tmp_path: Path) -> None:
    async def killed() -> None:
        lane = GpuThread("emulated", 0, tmp_path, "A100-40GB")
        await lane.open()
        await lane.create(Instance(0, 2))
        await lane._run(lane._open.close)  # the lock is gone, as after kill -9

    async def again() -> None:
        lane = GpuThread("emulated", 0, tmp_path)
        await lane.open()
        await lane.cleared()
        assert _there(tmp_path) == []
        await lane.close()

    asyncio.run(killed())
    assert _there(tmp_path) == [(0, "2g.10gb")]
    asyncio.run(again())


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    async def life() -> None:
        lane = GpuThread("emulated", 0, tmp_path, "A100-40GB")
        await lane.open()
        await lane.create(Instance(0, 7))
        with pytest.raises(MigratorError):
            await lane.create(Instance(0, 3))
        with pytest.raises(GpuError, match="gone"):
            await lane.environment(Instance(0, 3))
        await lane.close()

    asyncio.run(life())
