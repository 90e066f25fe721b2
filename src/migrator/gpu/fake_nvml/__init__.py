"""A fake NVML that replaces functions of `pynvml`, with its state on disk, for tests and trials.

MIGRATOR_FAKE_NVML=FOLDER, or FOLDER:BOARD,BOARD,..., makes `--driver mig` use it. `python -m
migrator.gpu.fake_nvml --help` shows how to inject faults.
"""

from migrator.gpu.fake_nvml.library import from_environment, installed
from migrator.gpu.fake_nvml.machine import FakeNvml, FaultKind

__all__ = ["FakeNvml", "FaultKind", "from_environment", "installed"]
