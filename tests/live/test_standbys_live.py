"""Slices of MPS shares that change their tenant while a daemon serves."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

from support.faults import family
from support.live_daemon import samples, scenario_file, served
from support.waiting import until

from migrator.core.batch import BatchKind
from migrator.gpu.drivers.virtual_board import BoardFile
from migrator.io.processes import is_running, process_name
from migrator.records.batches import read_batches
from migrator.records.rows import UnitRecord
from migrator.records.store import read_records

PROFILE = {
    "board": "H200-141GB-MPS",
    "latency_ms": {"1": {"16": 10, "132": 4}, "4": {"16": 20, "132": 8}},
    "memory_mib": {"1": 500, "4": 800},
}


def _scenario(
    folder: Path,
    policy: str = "support.live_policies:alternating",
    latency_ms: object = PROFILE["latency_ms"],
    **measured: object,
) -> Path:
    profile = {**PROFILE, "latency_ms": latency_ms, **measured}
    path = scenario_file(folder, "photos", "cameras", window_s=8, policy=policy, **profile)
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("gpu: A100-40GB", "gpu: H200-141GB-MPS"), encoding="utf-8")
    return path


def _taken_over(state: Path) -> list[UnitRecord]:
    """Starts on slices that another tenant used before."""
    units = read_records(next(state.rglob("records.db"))).units
    return [unit for unit in units if "standby_s" in unit.parts_s]


def test_slices_change_their_tenant_without_a_new_process_and_everything_ends(
    tmp_path: Path,
) -> None:
    state = tmp_path / "state"
    with served(_scenario(tmp_path), state) as daemon:
        units = until(lambda: _some(_taken_over(state), 12), daemon.said)
        assert {unit.tenant for unit in units} == {"photos", "cameras"}
        # the same workers serve and wait in turn
        assert len({unit.parts_s["standby_s"] for unit in units}) < len(units)
        # one that is killed is replaced when it is needed
        file = BoardFile(next(state.rglob("gpu-0.json")))

        def waiting() -> set[int]:
            serving, board = set(daemon.status()["pids"].values()), file.read()
            assert board is not None
            return {standby.pid for standby in board.standbys if standby.alive} - serving

        for pid in until(waiting, daemon.said):
            os.kill(pid, signal.SIGKILL)
        seen = len(_taken_over(state))
        until(lambda: _some(_taken_over(state)[seen:]), daemon.said)
        members = family(daemon.process.pid)
        assert daemon.stop() == 0
    until(lambda: not any(map(is_running, members)), lambda: str(_running(members)))
    left = file.read()
    assert left is not None
    assert left.instances == ()
    assert "Traceback" not in daemon.said()


def test_workers_and_standbys_share_the_memory_of_the_gpu(tmp_path: Path) -> None:
    """Eight workers take 112,000 of 143,360 MiB; at most two standbys fit beside them."""
    state, said = tmp_path / "state", "out of memory"
    scenario = _scenario(tmp_path, worker_held_mib={"4": 14_000})
    with served(scenario, state) as daemon:
        file = BoardFile(next(state.rglob("gpu-0.json")))
        most = 0

        def taken_over() -> list[UnitRecord]:
            nonlocal most
            board = file.read()
            assert board is not None
            most = max(most, sum(use.process.alive for use in board.memory))
            return _some(_taken_over(state), 6)

        until(taken_over, daemon.said)
        assert 4 < most <= 10
        assert said not in daemon.said()
        assert daemon.stop() == 0


def _running(processes: Iterable[int]) -> dict[int, str]:
    return {pid: process_name(pid) for pid in processes if is_running(pid)}


def _some(units: list[UnitRecord], least: int = 3) -> list[UnitRecord]:
    return units if len(units) >= least else []


def test_idle_slices_answer_the_requests_of_another_tenant(tmp_path: Path) -> None:
    """One slice answers 20 of 40 requests within two seconds."""
    state, slow = tmp_path / "state", {"1": {"16": 100, "132": 100}, "4": {"16": 400, "132": 400}}
    scenario = _scenario(tmp_path, "support.live_policies:Lending", slow)
    with served(scenario, state, "--batches", str(tmp_path / "batches.csv")) as daemon:
        file = BoardFile(next(state.rglob("gpu-0.json")))

        def waiting() -> bool:
            board = file.read()
            return board is not None and sum(standby.alive for standby in board.standbys) >= 8

        until(waiting, daemon.said)
        pictures, _ = samples(0, 1)

        def answered() -> int:
            with ThreadPoolExecutor(40) as clients:
                responses = clients.map(
                    lambda _: daemon.infer("photos", pictures[0], uuid4().hex, None), range(40)
                )
                return sum(response.status_code == 200 for response in responses)

        # standbys that still load answer nothing
        until(lambda: answered() > 28, daemon.said)
        assert daemon.stop() == 0
        assert "Traceback" not in daemon.said()
    batches = [
        batch
        for batch in read_batches(tmp_path / "batches.csv")
        if batch.kind is not BatchKind.EVALUATION
    ]
    assert sum(batch.in_time for batch in batches) > 28
    # before the first plan the workers of its even part answer as well
    assert "1g@0" in {batch.place for batch in batches if batch.kind is BatchKind.OWN}
    assert len({batch.place for batch in batches if batch.kind is BatchKind.LENT}) > 1
    for batch in batches:
        assert batch.taken_s <= batch.sent_s <= batch.began_s < batch.ended_s <= batch.answered_s
