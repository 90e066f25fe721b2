"""The drivers by name, opened as the verbs open them."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from support.nvidia_programs import NvidiaPrograms

from migrator.core.errors import InputError
from migrator.core.placement import Place
from migrator.gpu.drivers.base import DriverKind
from migrator.gpu.drivers.registry import open_driver


def test_each_is_called_what_it_is_found_by() -> None:
    assert list(DriverKind) == ["mig", "mps", "emulated"]


def test_an_emulated_gpu_is_the_board_it_was_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MIGRATOR_EMULATED_PACE", "0")
    with open_driver("emulated", 0, state=tmp_path) as driver:
        assert driver.gpu().board.name == "A100-40GB"
        driver.create(Place(0, "1g.5gb"))
    with open_driver("emulated", 1, state=tmp_path, board="A30-24GB") as driver:
        assert driver.gpu().board.name == "A30-24GB"
        driver.create(Place(0, "1g.6gb"))
    with open_driver("emulated", 1, state=tmp_path) as driver:
        assert driver.gpu().board.name == "A30-24GB"
    with (
        pytest.raises(InputError, match=r"gpu-0.json is of a A100-40GB.* remove that file"),
        open_driver("emulated", 0, state=tmp_path, board="A30-24GB"),
    ):
        pass
    with (
        pytest.raises(InputError, match="unknown board 'A31'"),
        open_driver("emulated", 2, state=tmp_path, board="A31"),
    ):
        pass


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


def test_mps_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = NvidiaPrograms(tmp_path / "programs")
    programs.smi()
    programs.mps()
    programs.on_path(monkeypatch)
    with tempfile.TemporaryDirectory(prefix="mps") as folder:  # sockets need a short path
        state = Path(folder)
        with open_driver("mps", 0, state=state) as driver:
            assert (driver.name, driver.gpu().board.name) == ("mps", "H200-141GB")
        with open_driver("mps", 0, state=state, limit_memory=True) as driver:
            share = driver.create(Place(0, "1g.18gb"))
            assert driver.environment(share)["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=16384M"
            driver.destroy(share)


def test_mig_is_found_through_nvml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIGRATOR_FAKE_NVML", f"{tmp_path / 'fake'}:H100-80GB-SXM")
    with open_driver("mig", 0, state=tmp_path) as driver:
        assert (driver.name, driver.gpu().board.name) == ("mig", "H100-80GB-SXM")
        made = driver.create(Place(4, "3g.40gb"))
        assert driver.instances() == (made,)
    assert list((tmp_path / "fake").iterdir())


@pytest.mark.parametrize(
    ("name", "index", "board", "words"),
    [
        ("mip", 0, None, "--driver: there is no 'mip'; did you mean mps or mig"),
        ("cuda", 0, None, "there are mig, mps, emulated"),
        ("emulated", -1, None, "--gpu: -1 is not a GPU's number"),
        ("mps", 0, "A100-40GB", "--board: mps divides the GPU that is there"),
        ("mig", 0, "A100-40GB", "--board: mig divides the GPU that is there"),
    ],
)
def test_what_cannot_be_opened_is_told(
    tmp_path: Path, name: str, index: int, board: str | None, words: str
) -> None:
    with (
        pytest.raises(InputError, match=words),
        open_driver(name, index, state=tmp_path, board=board),
    ):
        pass


def test_nobody_loads_nvml_for_another_driver() -> None:
    code = "import sys, migrator.gpu.drivers.registry; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"pynvml", "numpy", "pydantic", "torch"} & set(done.stdout.split())
