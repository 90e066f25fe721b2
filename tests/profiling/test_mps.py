"""Shares as MPS percentages: a daemon of our own, gone afterwards whatever happened."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.children import child
from support.nvidia_programs import NvidiaPrograms

from migrator.core.catalogue import Place, board
from migrator.core.errors import InputError, MigratorError
from migrator.gpu.drivers import nvidia_smi
from migrator.gpu.drivers.mps import MpsDaemon, MpsDriver, daemon_folder
from migrator.io.processes import is_running
from migrator.profiling.drivers import Mps
from migrator.profiling.drivers import driver as driver_called
from migrator.profiling.measurements import measurements
from migrator.profiling.results import Results
from migrator.profiling.run import profile

H200 = board("H200-141GB")


def daemon_of(state: Path) -> MpsDaemon:
    """The profiler's, as a later process finds it."""
    return MpsDaemon(daemon_folder(state, "profile", nvidia_smi.find_gpu(0)), {})


def starts_and_ends(programs: NvidiaPrograms) -> list[str]:
    return [line.partition(" ")[0] for line in programs.log()]


def test_the_daemon_has_folders_of_its_own_and_quits(programs: NvidiaPrograms, state: Path) -> None:
    driver = Mps.find(0)
    assert driver.board.name == "H200-141GB"
    with driver.open():
        number = daemon_of(state).running()
        assert number is not None
        with driver.share(32) as share, driver.share(132) as beside:
            assert share.environment["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "24.3"
            assert beside.environment["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "100"
            assert share.environment["CUDA_MPS_PIPE_DIRECTORY"] == str(daemon_of(state).pipes)
            assert share.environment["CUDA_MPS_LOG_DIRECTORY"] == str(daemon_of(state).logs)
            assert share.memory_gib == 32.5
        assert "CUDA_MPS_PIPE_DIRECTORY" not in driver.whole().environment
    assert starts_and_ends(programs) == ["start", "quit"]
    assert not is_running(number)
    assert not daemon_of(state).pipes.exists()
    assert driver.reconfigurations == []


def test_what_a_killed_run_left_is_ended_by_the_next(programs: NvidiaPrograms, state: Path) -> None:
    others = MpsDriver.open(0, state)
    share = others.create(Place(4, "3g.71gb"))
    with child("-m", "profiling.killed", "mps", 16) as (_, line):
        assert line == "at work"
    left = daemon_of(state).running()
    assert left is not None
    with Mps.find(0).open():
        assert not is_running(left)
        assert daemon_of(state).running() not in (None, left)
        assert others.daemon.running() is not None
    assert daemon_of(state).running() is None
    assert starts_and_ends(programs) == ["start", "start", "quit", "start", "quit"]
    others.destroy(share)


def test_a_worker_that_crashes_leaves_no_daemon(
    programs: NvidiaPrograms, state: Path, tmp_path: Path
) -> None:
    """There is no GPU behind it, so torch ends the worker with an error."""
    todo = measurements(H200, ["small-cnn"], [1])[:1]
    out = tmp_path / "profiles.json"
    with pytest.raises(MigratorError, match=r"a worker process exited with 1|closed its"):
        profile(todo, Mps.find(0), Results(tmp_path / "rows", {}), out)
    assert starts_and_ends(programs) == ["start", "quit"]
    assert daemon_of(state).running() is None
    assert not out.exists()


def test_gpus_that_cannot_be_shared_out_are_refused(programs: NvidiaPrograms) -> None:
    with pytest.raises(InputError, match="there is no GPU 3; this machine has 0"):
        Mps.find(3)
    with pytest.raises(InputError, match="scenario is of a A30-24GB, GPU 0 is a H200-141GB"):
        driver_called("mps", 0, board("A30-24GB"))
    assert driver_called("mps", 0, H200).board == H200
    programs.smi(mig="Enabled")
    with pytest.raises(InputError, match=r"GPU 0 is in MIG mode.* use --driver mig"):
        Mps.find(0)
    programs.smi("NVIDIA GeForce RTX 4090", 24564)
    with pytest.raises(InputError, match="RTX 4090 with 24 GiB is no board"):
        Mps.find(0)
