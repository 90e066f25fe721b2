"""The board read from NVML: as the catalogue has it, with old drivers too, and new boards."""

from dataclasses import replace
from pathlib import Path

import pytest
from support.fake_nvml.library import installed
from support.fake_nvml.machine import FaultKind

from migrator.core import catalogue
from migrator.core.catalogue import Board, MigProfile, boards
from migrator.core.errors import InputError
from migrator.gpu.drivers import mig
from migrator.gpu.drivers.nvml import UnsupportedError


def _read(folder: Path, name: str, *faults: FaultKind, mig_on: bool = True) -> Board:
    with installed(folder, [name], mig=mig_on) as fake:
        for fault in faults:
            fake.fault(fault, None)
        with mig.open_mig(0) as driver:
            return driver.gpu().board


def _without_catalogue(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("mig_board", "nvidia_smi"):
        monkeypatch.setattr(f"migrator.gpu.drivers.{module}.boards", dict)


def _published(read: MigProfile, catalogued: MigProfile) -> MigProfile:
    """What was read, without what the catalogue does not know."""
    return replace(
        read,
        memory_gib=None if catalogued.memory_gib is None else read.memory_gib,
        sms=None if catalogued.sms is None else read.sms,
        profile_id=None if catalogued.profile_id is None else read.profile_id,
    )


@pytest.mark.parametrize(
    ("name", "mig_on"), [*((name, True) for name in boards()), ("A100-40GB", False)]
)
def test_every_board_is_read_as_it_is(tmp_path: Path, name: str, mig_on: bool) -> None:
    read, board = _read(tmp_path, name, mig_on=mig_on), boards()[name]
    assert read.name == name
    assert (read.compute_slices, read.memory_slices) == (board.compute_slices, board.memory_slices)
    assert len(read.profiles) == len(board.profiles)
    for profile in board.profiles:
        assert _published(read.profile(profile.name), profile) == profile
    assert read.sizes == board.sizes


def test_without_mig_mode_the_catalogue_has_the_placements(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _read(tmp_path, "H200-141GB", FaultKind.NO_PLACEMENTS) == boards()["H200-141GB"]
    _without_catalogue(monkeypatch)
    with pytest.raises(UnsupportedError, match="list the placements"):
        _read(tmp_path, "H200-141GB", FaultKind.NO_PLACEMENTS)


def test_a_driver_that_is_too_old_is_to_be_updated(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=r"list the MIG profiles .* update the driver"):
        _read(tmp_path, "A100-40GB", FaultKind.NO_VERSION_2)


def test_a_new_board_needs_no_catalogue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    board = catalogue.board("H200-141GB")
    _without_catalogue(monkeypatch)
    read = _read(tmp_path, "H200-141GB")
    assert (read.name, read.profiles) == ("NVIDIA H200-141GB", board.profiles)


def test_a_gpu_that_cannot_be_divided(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no MIG instances; `--driver mps` shares any"):
        _read(tmp_path, "A100-40GB", FaultKind.NO_MIG)
