"""NVML's errors as ours: what the operator must mend first, and what the board refused."""

from __future__ import annotations

from typing import Any

from migrator.core.errors import GpuError, InputError, MigratorError
from migrator.gpu.driver import InUseError, NotPermittedError, RefusedError, TransientError

INSTEAD = "use `--driver emulated`, which needs no GPU"
RIGHTS = (
    "run it as root, or let this user read the /dev/nvidia-caps node that "
    "/proc/driver/nvidia/capabilities/mig/config names"
)


class UnsupportedError(GpuError):
    """The driver, or this GPU, cannot tell or do it."""


class GoneError(GpuError):
    """What a handle stands for is not there any more: somebody else has destroyed it."""


class LostError(GpuError):
    """The GPU needs a reset or is gone itself; trying again is of no use."""


def absence(binding: Any, error: Exception) -> InputError:
    """Why NVML could not be initialised."""
    reasons = {
        binding.NVMLError_LibraryNotFound: (
            "this machine has no NVIDIA driver library (libnvidia-ml.so.1); install the driver"
        ),
        binding.NVMLError_DriverNotLoaded: (
            "NVIDIA's driver is installed but not loaded; `modprobe nvidia`, or reboot"
        ),
        binding.NVMLError_LibRmVersionMismatch: (
            "NVIDIA's driver was updated while the old one is loaded; reboot"
        ),
        binding.NVMLError_NoPermission: (
            "this user may not open the NVIDIA devices; let it read and write /dev/nvidiactl"
        ),
    }
    reason = reasons.get(type(error), f"NVML does not start ({error}); look at `nvidia-smi`")
    return InputError(f"--driver mig: {reason}, or {INSTEAD}")


def refusal(binding: Any, error: Exception, doing: str) -> MigratorError:
    """NVML's error as one of ours."""
    said = f"NVML could not {doing} ({str(error).rstrip('.')})"
    looked = "`migrator gpu doctor` looks for the cause"
    kinds: dict[type[Exception], MigratorError] = {
        binding.NVMLError_NoPermission: NotPermittedError(f"{said}; {RIGHTS}"),
        binding.NVMLError_InUse: InUseError(f"{said}; end what uses it and try again"),
        binding.NVMLError_InsufficientResources: RefusedError(
            f"{said}; destroy an instance that is in the way"
        ),
        binding.NVMLError_NotSupported: UnsupportedError(
            f"{said}; it needs a GPU with MIG, and MIG mode on"
        ),
        binding.NVMLError_FunctionNotFound: UnsupportedError(f"{said}; update the driver"),
        binding.NVMLError_Timeout: TransientError(f"{said}; try again"),
        binding.NVMLError_NotReady: TransientError(f"{said}; try again"),
        binding.NVMLError_InvalidArgument: GoneError(f"{said}; {looked}"),
        binding.NVMLError_NotFound: GoneError(f"{said}; {looked}"),
        binding.NVMLError_ResetRequired: LostError(
            f"{said}; end every process on the GPU and `nvidia-smi --gpu-reset`, or reboot"
        ),
        binding.NVMLError_GpuIsLost: LostError(f"{said}; reboot, and look at `dmesg`"),
    }
    return kinds.get(type(error), GpuError(f"{said}; {looked}"))
