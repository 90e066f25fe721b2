"""The doctor on emulated GPUs: what it finds in the state folder, the journal, on the board."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from migrator.core.catalogue import board
from migrator.core.placement import Place
from migrator.gpu.doctor import Check, Machine, Verdict, examine, instance_checks, mode_check
from migrator.gpu.drivers.base import Gpu, GpuInstance, Holder
from migrator.gpu.drivers.emulated import EmulatedDriver
from migrator.gpu.journal.journal import Journal
from migrator.gpu.lock import GpuLock
from migrator.gpu.partition.steps import Op

PLACE = Place(4, "3g.20gb")


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIGRATOR_EMULATED_PACE", "0")


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with Journal(tmp_path / "journal.db") as opened:
        yield opened


def gpu_of(*, divides: bool = True) -> Gpu:
    return Gpu(1, "GPU-1", "NVIDIA A100", board("A100-40GB"), "boot", "550.54", divides, "mig")


def found(state: Path, name: str) -> list[Check]:
    return [each for each in examine("emulated", 0, state) if each.name == name]


def worst(checks: list[Check]) -> Verdict:
    return max((each.verdict for each in checks), key=list(Verdict).index)


def test_a_new_gpu_is_sound_and_no_journal_is_made(tmp_path: Path) -> None:
    assert worst([*examine("emulated", 0, tmp_path)]) is Verdict.OK
    assert not (tmp_path / "journal.db").exists()


def test_a_driver_that_cannot_be_opened_is_a_problem_and_the_rest_is_told(tmp_path: Path) -> None:
    checks = examine("emulated", 0, tmp_path, board="A1000")
    (driver,) = [each for each in checks if each.name == "driver"]
    assert driver.verdict is Verdict.PROBLEM
    assert "unknown board 'A1000'" in driver.words


def test_a_state_folder_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)  # the tests may run as root
    (folder,) = found(tmp_path, "state folder")
    assert folder.verdict is Verdict.PROBLEM
    assert folder.run


def test_a_deed_that_was_begun_and_never_finished(tmp_path: Path, journal: Journal) -> None:
    gpu = EmulatedDriver(tmp_path).gpu()
    journal.begin(gpu, "migrator", Op.CREATE, PLACE)
    (check,) = found(tmp_path, "journal")
    assert check.verdict is Verdict.WARNING
    assert "never finished" in check.words


def test_a_change_that_was_begun_and_never_finished(tmp_path: Path, journal: Journal) -> None:
    journal.begin_change(EmulatedDriver(tmp_path).gpu(), "migrator", (), (PLACE,))
    (check,) = found(tmp_path, "journal")
    assert check.verdict is Verdict.WARNING


def test_another_process_at_work_is_named(tmp_path: Path) -> None:
    lock = GpuLock.of(EmulatedDriver(tmp_path).gpu(), tmp_path)
    lock.acquire()
    (check,) = found(tmp_path, "journal")
    lock.release()
    assert check.verdict is Verdict.WARNING
    assert f"process {os.getpid()}" in check.words
    assert worst(found(tmp_path, "journal")) is Verdict.OK


def test_damaged_journals_that_were_kept_aside(tmp_path: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        (tmp_path / f"journal.db.damaged-20261115T120000Z{suffix}").touch()
    checks = found(tmp_path, "journal")
    assert [each.verdict for each in checks] == [Verdict.OK, Verdict.WARNING]
    assert "damaged-20261115T120000Z" in checks[1].words


def test_a_journal_that_cannot_be_opened(tmp_path: Path) -> None:
    (tmp_path / "journal.db").mkdir()
    (check,) = found(tmp_path, "journal")
    assert check.verdict is Verdict.PROBLEM


def test_a_damaged_journal_is_a_problem_and_stays_where_it_is(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    path.write_bytes(b"no database" * 100)
    (check,) = found(tmp_path, "journal")
    assert check.verdict is Verdict.PROBLEM
    assert "the journal is damaged" in check.words
    assert [each.name for each in tmp_path.iterdir()] == ["journal.db"]


def test_nothing_is_changed(tmp_path: Path) -> None:
    with Journal(tmp_path / "journal.db") as journal:
        journal.begin(EmulatedDriver(tmp_path).gpu(), "migrator", Op.CREATE, PLACE)
    EmulatedDriver(tmp_path, pace=0).create(PLACE)
    GpuLock.of(EmulatedDriver(tmp_path).gpu(), tmp_path).acquire()
    before = {each: each.stat() for each in tmp_path.rglob("*")}
    examine("emulated", 0, tmp_path)
    now = {each: each.stat() for each in tmp_path.rglob("*")}
    assert now.keys() == before.keys()
    assert all(now[each].st_mtime_ns == before[each].st_mtime_ns for each in now)


def test_shares_that_the_journal_does_not_know(journal: Journal) -> None:
    gpu = replace(gpu_of(), driver="mps")
    shares = [GpuInstance(PLACE, 2, "MPS-2"), GpuInstance(Place(0, "1g.5gb"), 3, "MPS-3")]
    journal.begin(gpu, "migrator", Op.CREATE, PLACE)
    _, lost = instance_checks("mps", gpu, shares, journal.entries(gpu))
    assert lost.verdict is Verdict.WARNING
    assert "the journal does not know 1g.5gb at 0," in lost.words
    assert len([*instance_checks("mps", gpu, shares[:1], journal.entries(gpu))]) == 1
    assert len([*instance_checks("mig", gpu_of(), shares, ())]) == 1, "MIG has other users"


def test_whose_the_instances_are(journal: Journal) -> None:
    gpu = gpu_of()
    mine = GpuInstance(PLACE, 2, "MIG-2", (Holder(7, "python"),))
    other = GpuInstance(Place(0, "1g.5gb"), 9, "MIG-9")
    journal.begin(gpu, "migrator", Op.CREATE, PLACE)
    (check,) = instance_checks("mig", gpu, [other, mine], journal.entries(gpu))
    assert check.words == "1 ours (1 in use), 1 not ours"
    (none,) = instance_checks("mig", gpu, [], ())
    assert none.words == "none"


def test_half_made_instances_of_ours_and_of_others(journal: Journal) -> None:
    gpu = gpu_of()
    half = GpuInstance(PLACE, 2, None)
    _, theirs = instance_checks("mig", gpu, [half], ())
    assert theirs.verdict is Verdict.PROBLEM
    assert theirs.run == "sudo nvidia-smi mig -i 1 -dgi -gi 2"
    journal.begin(gpu, "migrator", Op.CREATE, PLACE)
    _, ours = instance_checks("mig", gpu, [half], journal.entries(gpu))
    assert ours.verdict is Verdict.WARNING
    assert ours.run == "migrator gpu clear --driver mig --gpu 1"


def test_mig_mode() -> None:
    assert mode_check("mig", gpu_of()).verdict is Verdict.OK
    off = mode_check("mig", gpu_of(divides=False))
    assert off.verdict is Verdict.PROBLEM
    assert off.run == "sudo nvidia-smi -i 1 -mig 1"


def test_without_nvml_everything_else_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "proc").mkdir()
    checks = examine("mps", 0, tmp_path, machine=Machine(tmp_path))
    assert {each.name: each.verdict for each in checks} == {
        "state folder": Verdict.OK,
        "driver": Verdict.PROBLEM,
        "held by": Verdict.OK,
        "MPS": Verdict.OK,
        "compute mode": Verdict.OK,
    }
