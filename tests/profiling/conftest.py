"""A board as small as can be, and stand-ins for NVIDIA's programs."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from migrator.core.catalogue import Board, MigProfile

TESTS = Path(__file__).parents[1]

_MPS = """#!/bin/bash
pid="$CUDA_MPS_PIPE_DIRECTORY/nvidia-cuda-mps-control.pid"
if [ "$1" = -d ]; then
  sleep 60 >/dev/null 2>&1 &
  echo $! > "$pid"
  echo "start $CUDA_MPS_PIPE_DIRECTORY $CUDA_MPS_LOG_DIRECTORY $!" >> {log}
else
  read said
  echo "$said" >> {log}
  {obey} && kill "$(cat "$pid")"
fi
"""
_SMI = """#!/bin/bash
case "$*" in
  *clocks.sm*) echo "1980, 3201, 41, [N/A]" ;;
  *compute-apps*) echo "123, 456" ;;
  *) echo "0, {name}, GPU-1234, 580.1, {mib}, {mig}" ;;
esac
"""


@pytest.fixture(scope="session")
def board() -> Board:
    """One size, of which there can be two: every further one is a process to start."""
    return Board("toy", 2, 2, (MigProfile("1g.1gb", 1, 1, 2, (0, 1), 1.0, 10, None, None),))


@pytest.fixture(autouse=True)
def _find_support(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(TESTS))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.fixture
def nvidia(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Puts an nvidia-smi and an MPS control program on the path; the latter's log."""

    def install(
        name: str = "NVIDIA H200", mib: int = 143771, mig: str = "Disabled", obey: bool = True
    ) -> Path:
        folder, log = tmp_path / "programs", tmp_path / "mps.log"
        folder.mkdir()
        obeys = "true" if obey else "false"
        _program(folder / "nvidia-cuda-mps-control", _MPS.format(log=log, obey=obeys))
        _program(folder / "nvidia-smi", _SMI.format(name=name, mib=mib, mig=mig))
        monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
        return log

    return install


def _program(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
