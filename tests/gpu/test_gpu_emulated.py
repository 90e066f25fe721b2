"""The emulated driver, a virtual board that takes its time; and drivers by name."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from migrator.core.catalogue import Place, board
from migrator.core.errors import InputError
from migrator.gpu.drivers.base import GpuDriver
from migrator.gpu.drivers.registry import open_driver
from migrator.gpu.drivers.virtual_board import EmulatedDriver

PLACE = Place(4, "3g.20gb")


def driver(state: Path) -> EmulatedDriver:
    return EmulatedDriver(state, pace=0)


def test_it_is_a_driver_and_tells_what_it_emulates(tmp_path: Path) -> None:
    emulated: GpuDriver = driver(tmp_path)
    gpu = emulated.gpu()
    assert (gpu.name, gpu.board.name, gpu.divides) == ("Emulated A100-40GB", "A100-40GB", True)
    assert gpu == driver(tmp_path).gpu()
    other = EmulatedDriver(tmp_path, 1).gpu()
    assert other.uuid != gpu.uuid
    assert gpu.uuid.startswith("GPU-")


def test_looking_makes_nothing_and_fixes_no_board(tmp_path: Path) -> None:
    looked_at = EmulatedDriver(tmp_path, 0, board("H200-141GB"))
    assert (looked_at.gpu().board.name, looked_at.instances()) == ("H200-141GB", ())
    assert list(tmp_path.iterdir()) == []
    assert EmulatedDriver(tmp_path).gpu().board.name == "A100-40GB"


def test_a_board_is_remembered(tmp_path: Path) -> None:
    EmulatedDriver(tmp_path, 0, board("H200-141GB"), pace=0).create(Place(0, "1g.18gb"))
    assert EmulatedDriver(tmp_path).gpu().board.name == "H200-141GB"
    with pytest.raises(InputError, match=r"is of a H200-141GB, not of a A30-24GB"):
        EmulatedDriver(tmp_path, 0, board("A30-24GB"))
    EmulatedDriver(tmp_path, 1, board("A30-24GB"))


def test_a_stored_board_that_is_unknown(tmp_path: Path) -> None:
    driver(tmp_path).create(PLACE)
    file = tmp_path / "emulated" / "gpu-0.json"
    file.write_text(file.read_text().replace("A100-40GB", "A101"))
    with pytest.raises(InputError, match=r"gpu-0.json: is of a A101, which is unknown; remove"):
        EmulatedDriver(tmp_path)


def test_creating_and_destroying_take_as_long_as_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits_s: list[float] = []
    monkeypatch.setattr(time, "sleep", waits_s.append)
    for pace in (1.0, 2.0):
        emulated = EmulatedDriver(tmp_path, pace=pace)
        for _ in range(20):
            emulated.destroy(emulated.create(PLACE))
        created = [wait_s / pace for wait_s in waits_s[0::2]]
        destroyed = [wait_s / pace for wait_s in waits_s[1::2]]
        assert 0.16 <= min(created) < max(created) <= 0.24
        assert 0.20 <= min(destroyed) < max(destroyed) <= 0.26
        waits_s.clear()


def test_an_interruption_leaves_no_half_made_instance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_seconds: float) -> None:
        raise KeyboardInterrupt

    emulated = driver(tmp_path)
    monkeypatch.setattr(time, "sleep", interrupted)
    with pytest.raises(KeyboardInterrupt):
        emulated.create(PLACE)
    assert emulated.instances() == ()


# Drivers by name, opened as the verbs open them.


def test_its_pace_is_in_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIGRATOR_EMULATED_PACE", "0")
    with open_driver("emulated", 0, state=tmp_path) as driver:
        place = Place(0, "1g.5gb")
        for _ in range(50):
            driver.destroy(driver.create(place))
    for wrong in ("fast", "-1", "nan"):
        monkeypatch.setenv("MIGRATOR_EMULATED_PACE", wrong)
        with (
            pytest.raises(InputError, match=f"MIGRATOR_EMULATED_PACE: '{wrong}' is not a factor"),
            open_driver("emulated", 0, state=tmp_path),
        ):
            pass


@pytest.mark.parametrize(
    ("name", "index", "board", "message"),
    [
        ("mip", 0, None, "--driver: there is no 'mip'; did you mean mps or mig"),
        ("cuda", 0, None, "there are mig, mps, emulated"),
        ("emulated", -1, None, "--gpu: -1 is not a GPU's number"),
        ("mps", 0, "A100-40GB", "--board: mps divides the GPU that is there"),
        ("mig", 0, "A100-40GB", "--board: mig divides the GPU that is there"),
    ],
)
def test_drivers_that_cannot_be_opened(
    tmp_path: Path, name: str, index: int, board: str | None, message: str
) -> None:
    with (
        pytest.raises(InputError, match=message),
        open_driver(name, index, state=tmp_path, board=board),
    ):
        pass
