"""NVML opened and refused: one clear sentence each, and the right family of errors."""

import ctypes
import sys
from pathlib import Path

import pynvml
import pytest
from support.fake_nvml.library import installed
from support.fake_nvml.machine import FakeNvml, FaultKind

from migrator.core.errors import GpuError, InputError
from migrator.gpu.drivers import mig, nvml
from migrator.gpu.drivers.base import InUseError, NotPermittedError, RefusedError, TransientError
from migrator.gpu.drivers.nvml import GoneError, LostError, UnsupportedError, absence, refusal


def test_no_driver_library(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> ctypes.CDLL:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(pynvml, "nvmlLib", None)
    monkeypatch.setattr(pynvml, "CDLL", absent)
    with pytest.raises(InputError, match=r"no NVIDIA driver library \(libnvidia-ml\.so\.1\)"):
        mig.gpu_count()


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (FaultKind.NO_LIBRARY, "no NVIDIA driver library .* install the driver"),
        (FaultKind.NO_DRIVER, "installed but not loaded; `modprobe nvidia`"),
    ],
)
def test_a_machine_without_driver(tmp_path: Path, fault: FaultKind, message: str) -> None:
    with installed(tmp_path) as fake:
        fake.fault(fault)
        with pytest.raises(InputError, match=message), nvml.open_nvml():
            pass
        with nvml.open_nvml() as open_now:
            assert open_now.count() == 1


def test_no_binding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(InputError, match="`pip install nvidia-ml-py`"), nvml.open_nvml():
        pass


@pytest.mark.parametrize(
    ("code", "kind", "message"),
    [
        (pynvml.NVML_ERROR_NO_PERMISSION, NotPermittedError, "run it as root"),
        (pynvml.NVML_ERROR_IN_USE, InUseError, "end what uses it"),
        (pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES, RefusedError, "in the way"),
        (pynvml.NVML_ERROR_NOT_SUPPORTED, UnsupportedError, "MIG mode on"),
        (pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, UnsupportedError, "update the driver"),
        (pynvml.NVML_ERROR_TIMEOUT, TransientError, "try again"),
        (pynvml.NVML_ERROR_NOT_READY, TransientError, "try again"),
        (pynvml.NVML_ERROR_INVALID_ARGUMENT, GoneError, "migrator gpu doctor"),
        (pynvml.NVML_ERROR_NOT_FOUND, GoneError, "migrator gpu doctor"),
        (pynvml.NVML_ERROR_RESET_REQUIRED, LostError, "--gpu-reset"),
        (pynvml.NVML_ERROR_GPU_IS_LOST, LostError, "dmesg"),
        (pynvml.NVML_ERROR_UNKNOWN, GpuError, "migrator gpu doctor"),
        (12345, GpuError, "migrator gpu doctor"),
    ],
)
def test_refusals(code: int, kind: type[GpuError], message: str, tmp_path: Path) -> None:
    with installed(tmp_path), nvml.open_nvml():
        error = refusal(pynvml, pynvml.NVMLError(code), "create the GPU instance")
    assert type(error) is kind
    assert str(error).startswith("NVML could not create the GPU instance (")
    assert message in str(error)
    assert ". " not in str(error)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH, "updated while the old one is loaded; reboot"),
        (pynvml.NVML_ERROR_NO_PERMISSION, "may not open the NVIDIA devices"),
        (pynvml.NVML_ERROR_UNKNOWN, "does not start (Unknown Error); look at `nvidia-smi`"),
    ],
)
def test_absences(code: int, message: str) -> None:
    error = absence(pynvml, pynvml.NVMLError(code))
    assert message in str(error)
    assert str(error).endswith("use `--driver emulated`, which needs no GPU")


def test_a_machine_without_gpus(tmp_path: Path) -> None:
    fake = FakeNvml(tmp_path)
    with fake.store.changing() as state:
        state.gpus.clear()
    with installed(tmp_path), pytest.raises(InputError, match="no GPU 0; this machine has none"):
        mig.open_mig(0).__enter__()
