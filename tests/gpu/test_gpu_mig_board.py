"""The board read from NVML: as the catalogue has it, with old drivers too, and new boards."""

from dataclasses import replace
from pathlib import Path

import pytest
from support.fake_gpu import mig_driver
from support.fake_nvml.library import installed
from support.fake_nvml.machine import FaultKind

from migrator.core import catalogue
from migrator.core.catalogue import Board, MigProfile, boards
from migrator.core.errors import InputError
from migrator.gpu.drivers import mig
from migrator.gpu.drivers.mig_board import _name, _numbered
from migrator.gpu.drivers.nvml import GpuInstanceProfile, UnsupportedError


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


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        *((name, FaultKind.NO_VERSION_2) for name in boards()),
        ("A100-40GB", FaultKind.VERSION_MISMATCH),
    ],
)
def test_an_old_driver_tells_no_names(tmp_path: Path, name: str, fault: FaultKind) -> None:
    assert _read(tmp_path / "old", name, fault) == _read(tmp_path / "new", name)


@pytest.mark.parametrize("name", boards())
def test_names_are_formed_as_nvidia_forms_them(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a board that the catalogue does not have, on a driver that tells no names."""
    _without_catalogue(monkeypatch)
    read = _read(tmp_path, name, FaultKind.NO_VERSION_2)
    assert {profile.name for profile in read.profiles} == {
        profile.name for profile in boards()[name].profiles
    }
    assert read.name == f"NVIDIA {name}"


@pytest.mark.parametrize("fault", [FaultKind.NO_PLACEMENTS, FaultKind.NO_PROFILES])
def test_a_driver_that_does_not_report_a_board_needs_the_catalogue(
    tmp_path: Path, fault: FaultKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _read(tmp_path, "H200-141GB", fault) == boards()["H200-141GB"]
    _without_catalogue(monkeypatch)
    with pytest.raises(UnsupportedError, match="update the driver"):
        _read(tmp_path, "H200-141GB", fault)


def test_a_new_board_needs_no_catalogue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    board = catalogue.board("H200-141GB")
    _without_catalogue(monkeypatch)
    read = _read(tmp_path, "H200-141GB")
    assert (read.name, read.profiles) == ("NVIDIA H200-141GB", board.profiles)


def test_boards_with_equal_profiles_are_distinguished_by_name(tmp_path: Path) -> None:
    assert _read(tmp_path / "1", "H20-96GB").name == "H20-96GB"
    assert _read(tmp_path / "2", "H100-96GB-GH200").name == "H100-96GB-GH200"


def test_a_gpu_that_cannot_be_divided(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no MIG instances; `--driver mps` shares any"):
        _read(tmp_path, "A100-40GB", FaultKind.NO_MIG)


def test_the_board_is_read_once(tmp_path: Path) -> None:
    with mig_driver(tmp_path) as (fake, driver):
        driver.gpu()
        fake.fault(FaultKind.NO_PROFILES)
        driver.gpu()
        assert [fault.left for fault in fake.faults()] == [1]


def test_names_on_a_new_board_count_its_own_slices() -> None:
    """Twelve memory slices of 97 GiB; eighths would call the smallest 1g.13gb."""
    profiles = [GpuInstanceProfile(0, 19, 1, 10, 14, 8_000, None)]
    profiles += [GpuInstanceProfile(1, 14, 2, 5, 28, 16_200, None)]
    names = [_name(profile, None, 97 * 1024, 12) for profile in profiles]
    assert names == ["1g.8gb", "2g.16gb"]


def test_equal_names_are_numbered() -> None:
    assert _numbered(["1g.8gb", "2g.16gb", "1g.8gb", "1g.8gb"]) == [
        "1g.8gb",
        "2g.16gb",
        "1g.8gb-2",
        "1g.8gb-3",
    ]
