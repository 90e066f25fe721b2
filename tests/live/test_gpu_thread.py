"""The thread that changes the GPU, over the emulated driver."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from migrator.core.errors import GpuError, MigratorError
from migrator.core.problem import Instance
from migrator.gpu.drivers.registry import open_driver
from migrator.live.gpu_thread import GpuThread


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIGRATOR_EMULATED_PACE", "0")


@asynccontextmanager
async def opened(state: Path) -> AsyncIterator[GpuThread]:
    thread = GpuThread("emulated", 0, state, "A100-40GB")
    gpu = await thread.open()
    assert gpu.board.name == "A100-40GB"
    yield thread
    await thread.close()


def _instances(state: Path) -> list[tuple[int, str]]:
    with open_driver("emulated", 0, state=state) as driver:
        return [(instance.place.start, instance.place.profile) for instance in driver.instances()]


async def test_instances_are_created_destroyed_and_gone_when_it_closes(tmp_path: Path) -> None:
    async with opened(tmp_path) as thread:
        await thread.create(Instance(0, 4))
        await thread.create(Instance(4, 3))
        environment = await thread.environment(Instance(4, 3))
        assert environment["CUDA_VISIBLE_DEVICES"] == ""
        await thread.destroy(Instance(0, 4))
        assert _instances(tmp_path) == [(4, "3g.20gb")]
    assert _instances(tmp_path) == []


async def test_another_process_cannot_take_the_gpu_meanwhile(tmp_path: Path) -> None:
    async with opened(tmp_path):
        with pytest.raises(GpuError, match="process"):
            await GpuThread("emulated", 0, tmp_path, "A100-40GB").open()


async def test_instances_of_a_killed_daemon_are_removed(tmp_path: Path) -> None:
    killed = GpuThread("emulated", 0, tmp_path, "A100-40GB")
    await killed.open()
    await killed.create(Instance(0, 2))
    await killed._run(killed._open.close)  # the lock is gone, as after kill -9
    assert _instances(tmp_path) == [(0, "2g.10gb")]
    async with opened(tmp_path) as thread:
        await thread.cleared()
        assert _instances(tmp_path) == []


async def test_an_instance_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    async with opened(tmp_path) as thread:
        await thread.create(Instance(0, 7))
        with pytest.raises(MigratorError):
            await thread.create(Instance(0, 3))
        with pytest.raises(GpuError, match="gone"):
            await thread.environment(Instance(0, 3))
