"""A board as small as can be, stand-ins for NVIDIA's programs, a state folder that goes again."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.nvidia_programs import NvidiaPrograms

from migrator.core.catalogue import Board, MigProfile
from migrator.gpu.drivers import nvidia_smi
from migrator.gpu.drivers.mps_daemon import MpsDaemon

TESTS = Path(__file__).parents[1]


@pytest.fixture(scope="session")
def board() -> Board:
    """One size, of which there can be two: every further one is a process to start."""
    return Board("toy", 2, 2, (MigProfile("1g.1gb", 1, 1, 2, (0, 1), 1.0, 10, None, None),))


@pytest.fixture(autouse=True)
def _find_support(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(TESTS))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.fixture(autouse=True)
def state(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A short path, as sockets need it; whatever daemon a test leaves there is ended."""
    folder = Path(tempfile.mkdtemp(prefix="profile"))
    monkeypatch.setenv("MIGRATOR_STATE", str(folder))
    yield folder
    for pid_file in folder.rglob("*.pid"):
        MpsDaemon(pid_file.parents[1], {}, end_s=0.0).quit()
    shutil.rmtree(folder)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NvidiaPrograms:
    """An nvidia-smi that tells of an H200, and an MPS control program."""
    found = NvidiaPrograms(tmp_path / "programs")
    found.on_path(monkeypatch)
    found.smi()
    found.mps()
    monkeypatch.setattr(nvidia_smi, "device_sms", lambda _visible: 132)
    return found
