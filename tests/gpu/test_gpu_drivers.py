"""The drivers by name, opened as the verbs open them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from migrator.core.catalogue import Place
from migrator.core.errors import InputError
from migrator.gpu.drivers.registry import open_driver


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


def test_other_drivers_do_not_import_nvml() -> None:
    code = "import sys, migrator.gpu.drivers.registry; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"pynvml", "numpy", "pydantic", "torch"} & set(done.stdout.split())
